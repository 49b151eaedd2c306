/** The API client: types from our own OpenAPI document, the CSRF header, errors as one sentence, and a record of calls. */
import { signal } from '@preact/signals';
import createClient, { type Middleware } from 'openapi-fetch';
import type { paths } from '../api-types.d.ts';
import { texts } from '../texts.ts';
import { blankSecrets, maxParsedLength, recordCall } from './calls.ts';

export const headerPrefix = document.querySelector<HTMLMetaElement>('meta[name=header-prefix]')?.content ?? 'platform';
const csrfKey = 'slipway-csrf';
/** What an error says when the token is refused: in the management family, and in the identity family. */
const tokenRefused = { code: 31, identityCode: 'TokenInvalidError' };

/** Whether the last request reached the service. */
export const online = signal(true);
/** Called when the session has ended. */
export const sessionEnded = signal(0);

export const csrfToken = (): string => localStorage.getItem(csrfKey) ?? '';

export function keepCsrfToken(token: string | undefined): void {
  if (token === undefined) localStorage.removeItem(csrfKey);
  else localStorage.setItem(csrfKey, token);
}

/** An error of the API: a sentence, the details, and the id of the request. */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly status: number;
  readonly requestId: string;
  readonly details: { path?: string; message?: string; [more: string]: unknown }[];

  constructor(status: number, body: unknown, requestId: string) {
    const said = body as {
      message?: string;
      error?: { message?: string; details?: ApiError['details'] } | string;
      attributes?: { error?: string; details?: ApiError['details'] };
    } | null;
    const error = typeof said?.error === 'object' ? said.error : undefined;
    const plain = status === 401 ? (said?.attributes?.error ?? said?.message) : said?.message;
    super(error?.message ?? plain ?? texts.failed);
    this.status = status;
    this.requestId = requestId;
    this.details = error?.details ?? said?.attributes?.details ?? [];
  }
}

const recording: Middleware = {
  onRequest({ request }) {
    const csrf = localStorage.getItem(csrfKey);
    if (csrf !== null && request.method !== 'GET') request.headers.set(`${headerPrefix}-csrf-token`, csrf);
    return request;
  },
  // Without a filter the answer is another one, and a page would show it as if it were filtered.
  onResponse({ request, response }) {
    const ignored = request.method === 'GET' ? response.headers.get(`${headerPrefix}-ignored-properties`) : null;
    if (response.ok && ignored !== null)
      throw new Error(texts.notHeeded(ignored.split(', ').map(decodeURIComponent).join(', ')));
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return;
    online.value = false;
    return new Error(texts.unreachable);
  },
};

let renewing: Promise<boolean> | undefined;

/** Renews the session, once for all that ask meanwhile. Resolves to whether it lives. */
export function renewSession(): Promise<boolean> {
  renewing ??= renew().finally(() => {
    renewing = undefined;
  });
  return renewing;
}

async function renew(): Promise<boolean> {
  const headers = { [`${headerPrefix}-csrf-token`]: csrfToken() };
  const response = await fetch('/api/v1/sessions/renew-session', { method: 'POST', headers });
  if (response.ok) keepCsrfToken((await response.json()).csrfToken);
  // Another window has been faster if it is the CSRF token that is refused.
  return response.ok || response.status === 403;
}

/** Whether the token is refused, and not a password. */
async function needsRenewal(response: Response): Promise<boolean> {
  if (response.status !== 401) return false;
  const { error, attributes } = await response.clone().json();
  return error?.code === tokenRefused.code || attributes?.errorCode === tokenRefused.identityCode;
}

/** Sends a request, and once more if the token has expired while nobody used the session. */
async function fetchRenewed(request: Request): Promise<Response> {
  const again = request.clone();
  const response = await fetch(request);
  if (!(await needsRenewal(response)) || !(await renewSession())) return response;
  const name = `${headerPrefix}-csrf-token`;
  if (again.headers.has(name)) again.headers.set(name, csrfToken());
  return fetch(again);
}

async function recordedFetch(request: Request): Promise<Response> {
  const isText = /json|csv/.test(request.headers.get('content-type') ?? '');
  const requestBody = isText ? await request.clone().text() : '';
  const response = await fetchRenewed(request);
  online.value = true;
  const type = response.headers.get('content-type') ?? '';
  const answer = type.includes('json') ? await beginningOf(response) : '';
  recordCall({
    method: request.method,
    url: request.url,
    requestBody: blankSecrets(requestBody),
    status: response.status,
    answer: blankSecrets(answer),
    requestId: response.headers.get('x-request-id') ?? '',
  });
  return response;
}

/** The text of an answer, of a long one only its beginning: a page of 1,000 rows is not read twice. */
async function beginningOf(response: Response): Promise<string> {
  const reader = response.clone().body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (reader && text.length <= maxParsedLength) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
  }
  await reader?.cancel();
  return text;
}

export const api = createClient<paths>({ baseUrl: location.origin, fetch: recordedFetch });
api.use(recording);

/** A body that is sent as it is; the document knows only JSON bodies. */
export function rawBody(text: string, type: string) {
  return { body: text as never, bodySerializer: () => text, headers: { 'content-type': type } };
}

/** Of the two forms of a list, the one with whole entities: that with `fields` may have none of their properties. */
type Whole<T> =
  T extends Record<string, { results?: (infer E)[] }>
    ? 'version' extends keyof E
      ? undefined extends E['version']
        ? never
        : T
      : T
    : T;

/** The data of an answer; of a list that was asked for some `fields`, read these alone. @throws ApiError */
export async function done<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<Whole<T>> {
  const { data, error, response } = await answer;
  if (response.ok) return data as Whole<T>;
  const requestId = response.headers.get('x-request-id') ?? '';
  if (response.status === 401 && !response.url.includes('/auth/')) sessionEnded.value += 1;
  throw new ApiError(response.status, error, requestId);
}
