/** Sends requests as the person that the page shows: they name its session, so that nobody else's does them. */
import { signal } from '@preact/signals';
import { texts } from '../words.ts';
import { ApiError } from './errors.ts';
import { browserStore } from './stores.ts';

export const headerPrefix = document.querySelector<HTMLMetaElement>('meta[name=header-prefix]')?.content ?? 'platform';
const csrfKey = 'slipway-csrf';
const csrfName = `${headerPrefix}-csrf-token`;
const sessionName = `${headerPrefix}-session`;
/** What an error says when the token is refused: in the management family, and in the identity family. */
const tokenRefused = { code: 31, identityCode: 'TokenInvalidError' };

/** The person whom the page shows, by id, and the session in which it asks. */
let shown: { id: string; sessionId: string } | undefined;
/** The email address of the person who has signed in in another tab. */
export const another = signal<string | undefined>(undefined);

export function actAs(person: { id: string; sessionId: string } | undefined): void {
  shown = person && { id: person.id, sessionId: person.sessionId };
  another.value = undefined;
}

export const csrfToken = (): string => browserStore.get(csrfKey) ?? '';

export function keepCsrfToken(token: string | undefined): void {
  if (token === undefined) browserStore.remove(csrfKey);
  else browserStore.set(csrfKey, token);
}

/** Tells of a login or a logout in another tab. */
export function onOtherTab(heard: () => void): void {
  addEventListener('storage', ({ key }) => key === csrfKey && heard());
}

/** Tells that Back has brought this page from the browser's memory, and whether the login is the one with which it was left. */
export function onBack(heard: (isSameLogin: boolean) => void): void {
  let left = '';
  addEventListener('pagehide', () => {
    left = csrfToken();
  });
  addEventListener('pageshow', ({ persisted }) => persisted && heard(csrfToken() === left));
}

/** The headers of a request: what proves that this page sends it, and the session that it is meant for. */
export function ownHeaders(method: string): Record<string, string> {
  return {
    ...(method !== 'GET' && csrfToken() !== '' && { [csrfName]: csrfToken() }),
    ...(shown && { [sessionName]: shown.sessionId }),
  };
}

function withOwnHeaders(request: Request): Request {
  for (const [name, value] of Object.entries(ownHeaders(request.method))) request.headers.set(name, value);
  return request;
}

/** Sends a request; once more if the token has expired while nobody used the session, or if the person has signed in anew. */
export async function send(request: Request): Promise<Response> {
  const again = request.clone();
  const response = await fetch(withOwnHeaders(request));
  if (!(await isMended(response))) return response;
  return fetch(withOwnHeaders(again));
}

async function isMended(response: Response): Promise<boolean> {
  if (response.status !== 401 && response.status !== 403) return false;
  const { error, attributes } = await bodyOf(response);
  if (response.status === 403) return isOfAnother(error?.details ?? attributes?.details) && findWhoIsIn();
  const isTokenRefused = error?.code === tokenRefused.code || attributes?.errorCode === tokenRefused.identityCode;
  return isTokenRefused && renewSession();
}

interface Refusal {
  error?: { code?: number; details?: { path?: string }[] };
  attributes?: { errorCode?: string; details?: { path?: string }[] };
}

/** Of what is no JSON, as a proxy sends it, nothing. */
const bodyOf = (response: Response): Promise<Refusal> =>
  response
    .clone()
    .json()
    .catch(() => ({}));

const isOfAnother = (details: { path?: string }[] = []) => details.some(({ path }) => path === sessionName);

/** Whether the cookie is of a newer session of the person that is shown, in which the page goes on; else it tells of the other. */
async function findWhoIsIn(): Promise<boolean> {
  const response = await fetch('/api/v1/profile/me');
  if (!response.ok || !shown) return false;
  const { id, sessionId, emailAddress, name } = await response.json();
  if (id === shown.id) shown = { id, sessionId };
  else another.value = emailAddress ?? name ?? texts.signIn.somebody;
  return id === shown.id;
}

let renewing: Promise<boolean> | undefined;

/** Renews the session, once for all that ask meanwhile. Resolves to whether it lives. @throws ApiError when that is not known. */
function renewSession(): Promise<boolean> {
  renewing ??= renew().finally(() => {
    renewing = undefined;
  });
  return renewing;
}

async function renew(): Promise<boolean> {
  const response = await fetch('/api/v1/sessions/renew-session', { method: 'POST', headers: ownHeaders('POST') });
  if (response.ok) keepCsrfToken((await response.json()).csrfToken);
  if (response.ok || response.status === 401) return response.ok;
  const body = await bodyOf(response);
  // Another window has been faster if it is the CSRF token that is refused.
  if (response.status === 403) return !isOfAnother(body.attributes?.details) || findWhoIsIn();
  throw new ApiError(response.status, body, response.headers.get('x-request-id') ?? '');
}
