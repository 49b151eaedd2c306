/** Every failure the platform reports: its code, its HTTP status and its sentence. */
const failures = {
  notFound: { code: 100, status: 404, message: 'The item does not exist.' },
  unknownReference: { code: 102, status: 400, message: 'A referenced entity does not exist.' },
  etagMissing: { code: 103, status: 400, message: 'The etag header is missing.' },
  etagInvalid: { code: 103, status: 412, message: 'The etag header is not a version.' },
  constraint: { code: 104, status: 400, message: 'The entity cannot be deleted: others depend on it.' },
  tooDeep: { code: 105, status: 400, message: 'The organization would exceed the maximum nesting depth of 5.' },
  badCode: { code: 106, status: 400, message: 'The code is wrong, used or too old.' },
  badToken: { code: 106, status: 400, message: 'The token is wrong, used or too old.' },
  invalid: { code: 106, status: 400, message: 'A parameter value is invalid.' },
  notUnique: { code: 106, status: 400, message: 'A parameter value violates uniqueness.' },
  deleted: { code: 107, status: 410, message: 'The entity is deleted.' },
  staleVersion: { code: 108, status: 412, message: 'The given version does not match the latest version.' },
  pageOutside: { code: 109, status: 416, message: 'The requested page is outside the range of results.' },
  userExists: {
    code: 110,
    status: 400,
    message: 'The user id or e-mail address already exists as a user of the account.',
  },
  tokenMissing: { code: 30, status: 401, message: 'Credentials are missing.' },
  badCredentials: { code: 30, status: 401, message: 'The credentials are wrong.' },
  tokenInvalid: { code: 31, status: 401, message: 'The token is invalid, expired or revoked.' },
  wrongToken: { code: 20, status: 403, message: 'The endpoint takes a token of another kind.' },
  forbidden: { code: 21, status: 403, message: 'The caller is not permitted to do this.' },
  methodNotAllowed: { code: 106, status: 405, message: 'The endpoint does not support this method.' },
  tooLarge: { code: 106, status: 413, message: 'The body is too large.' },
  mediaType: { code: 106, status: 415, message: 'The media type is not supported.' },
  answerGone: { code: 106, status: 410, message: 'The answer has been destroyed: its secret has been used.' },
  resultsGone: {
    code: 106,
    status: 410,
    message: 'The results have been destroyed: they were confirmed, or they have expired.',
  },
  offerGone: { code: 106, status: 410, message: 'The offer was cancelled, replaced or revoked.' },
  rangeOutside: { code: 109, status: 416, message: 'The range is outside the file.' },
  cannotUndo: { code: 104, status: 400, message: 'The job cannot be undone.' },
  association: { code: 106, status: 422, message: 'The device cannot be associated.' },
  tooMany: { code: -199, status: 429, message: 'Too many requests.' },
  providerFailed: { code: -199, status: 502, message: 'The identity provider does not answer correctly.' },
  stopping: {
    code: -199,
    status: 503,
    message: 'The service is stopping, or the account is on its way to another server. Try again.',
  },
  storeFull: { code: -199, status: 507, message: 'The store is full.' },
  server: { code: -199, status: 500, message: 'An unexpected error occurred.' },
} as const;

export type FailureKind = keyof typeof failures;
export const failureKinds = Object.keys(failures) as FailureKind[];

/** The code, status and sentence of a failure, for what describes it and throws nothing. */
export function failureOf(kind: FailureKind): { code: number; status: number; message: string } {
  return failures[kind];
}

/** One thing that is wrong; `path` names the property, header or query parameter. */
export interface ErrorDetail {
  message: string;
  path?: string;
  [more: string]: unknown;
}

/** A failure that is told, not thrown. A PlatformError is one, too. */
export interface Failure {
  kind: FailureKind;
  message: string;
  details: ErrorDetail[];
}

/** What a failure says of itself: a message of its own, or what is wrong by its details and then the sentence of its kind. */
interface FailureText {
  message?: string;
  details?: ErrorDetail[];
}

/** A failure that is told. */
export function failure(kind: FailureKind, said: FailureText = {}): Failure {
  return { kind, message: messageOf(kind, said), details: said.details ?? [] };
}

function messageOf(kind: FailureKind, { message, details = [] }: FailureText): string {
  if (message !== undefined) return message;
  const reasons = reasonsOf(details, mostLeading);
  return reasons === '' ? failures[kind].message : `${reasons}. ${failures[kind].message}`;
}

/** Details in a message; further ones are counted. */
const mostLeading = 3;
/** How a detail begins that is said of its path: “serialNumber is required”. Others stand for themselves. */
const saidOfPath =
  /^(is|are|has|have|had|was|must|may|can|cannot|could|does|needs|names|exceeds|would|says|holds|looks|plus) /;

/** What details say, as one sentence without its full stop. */
export function reasonsOf(details: readonly ErrorDetail[], most = Number.POSITIVE_INFINITY): string {
  const reasons = details.filter(({ message }) => message !== '').map(reasonOf);
  const more = reasons.length - most;
  return [...reasons.slice(0, most), ...(more > 0 ? [`and ${more} more`] : [])].join('; ');
}

function reasonOf({ path = '', message }: ErrorDetail): string {
  const reason = message.replace(/\.$/, '');
  // A whole sentence needs no name before it. An empty path begins every text.
  if (/^[A-Z]/.test(reason) || reason.startsWith(path)) return reason;
  return saidOfPath.test(reason) ? `${path} ${reason}` : `${path}: ${reason}`;
}

/** A failure in one line: its message, and the reasons that this does not say. */
export function lineOf({ message, details }: Pick<Failure, 'message' | 'details'>): string {
  const reasons = reasonsOf(details, mostLeading);
  return reasons === '' || message.includes(reasons) ? message : `${message} (${reasons})`;
}

/** A failure as the management family and MQTT show it. */
export function errorBody({ kind, message, details }: Failure) {
  return { code: failures[kind].code, message, details };
}

/** The rest of a limit: tries, and seconds until it starts again. 0 means no limit. */
export interface Allowance {
  limit: number;
  remaining: number;
  reset: number;
}

/** An error with a documented code and status. Anything else that is thrown answers 500 and says nothing. */
export class PlatformError extends Error {
  readonly code: number;
  readonly status: number;
  readonly details: ErrorDetail[];
  /** The limit that was reached, and the seconds until it is over. */
  readonly allowance: Allowance | undefined;
  readonly kind: FailureKind;

  constructor(kind: FailureKind, options: FailureText & { allowance?: Allowance } = {}) {
    super(messageOf(kind, options));
    this.kind = kind;
    this.name = 'PlatformError';
    this.code = failures[kind].code;
    this.status = failures[kind].status;
    this.details = options.details ?? [];
    this.allowance = options.allowance;
  }
}

/** 400 with 106 for one property, query parameter or header. */
export function invalid(path: string, message: string): PlatformError {
  return new PlatformError('invalid', { details: [{ path, message }] });
}

/** Where an unknown property has no effect, it may be a mistyped one that matters. @throws PlatformError that names it */
export function demandKnown(given: object, known: readonly string[], of: string): void {
  const name = Object.keys(given).find((one) => !known.includes(one));
  if (name !== undefined) throw invalid(name, `is not a property of ${of}`);
}

/** 413; `limit` is the variable that says how large a body may be. */
export function tooLarge(limit: string): PlatformError {
  return new PlatformError('tooLarge', { message: `${limit}: the body is too large.` });
}

/** 404 with 100: an account that does not exist, or is not the caller's. */
export function unknownAccount(): PlatformError {
  const details = [{ path: 'accountId', message: 'does not refer to an account of yours' }];
  return new PlatformError('notFound', { message: 'The account does not exist.', details });
}

/** 400 with 102: `path` names a live entity that the caller cannot see or that does not exist; `given` is what it was called. */
export function unknownReference(path: string, given?: string): PlatformError {
  const named = given === undefined ? '' : ` “${given.toWellFormed().slice(0, 100)}”`;
  return new PlatformError('unknownReference', {
    details: [{ path, message: `${path}${named} does not refer to an existing entity.` }],
  });
}

/**
 * The `message` of the identity family, which apps show to people: what is wrong, with the reasons after it. A failed
 * login says no more than that it failed.
 */
export function identityMessage({ kind, message, details }: PlatformError): string {
  const [first] = details;
  // With details the caller has proven who it is, and may be told why that is not enough.
  if (kind === 'badCredentials') return first?.message ?? 'Unauthorized';
  if (kind === 'userExists' || (kind === 'notUnique' && /email/i.test(first?.path ?? '')))
    return 'The user already exists.';
  if (kind !== 'invalid' || first === undefined) return message;
  const isPassword = details.length === 1 && /password$/i.test(first.path ?? '') && first.message !== 'is required';
  if (isPassword) return `The password is not valid. It ${first.message}.`;
  return reasonsOf(details);
}

/** Messages of the identity endpoints, which have no codes. */
export function identityErrorCode(kind: FailureKind): string {
  if (kind === 'badCredentials') return 'InvalidCredentialsError';
  return `${kind.charAt(0).toUpperCase()}${kind.slice(1)}Error`;
}
