/** The API client: types from our own OpenAPI document, errors as one sentence, and a record of calls. */
import { signal } from '@preact/signals';
import createClient, { type Middleware } from 'openapi-fetch';
import type { paths } from '../api-types.d.ts';
import { texts } from '../words.ts';
import { headerPrefix, send } from './acting.ts';
import { blankSecrets, maxParsedLength, recordCall } from './calls.ts';
import { ApiError, isFromProxy } from './errors.ts';

export { ApiError };

/** Whether the last request reached the service. */
export const online = signal(true);
/** Called when the session has ended. */
export const sessionEnded = signal(0);

const telling: Middleware = {
  // Without a filter the answer is another one, and a page would show it as if it were filtered.
  onResponse({ request, response }) {
    const ignored = request.method === 'GET' ? response.headers.get(`${headerPrefix}-ignored-properties`) : null;
    if (response.ok && ignored !== null)
      throw new Error(texts.notHeeded(ignored.split(', ').map(decodeURIComponent).join(', ')));
  },
  onError({ error }) {
    if (error instanceof ApiError || (error instanceof DOMException && error.name === 'AbortError')) return;
    online.value = false;
    return new Error(texts.unreachable);
  },
};

async function recordedFetch(request: Request): Promise<Response> {
  const isText = /json|csv/.test(request.headers.get('content-type') ?? '');
  const requestBody = isText ? await request.clone().text() : '';
  const response = await send(request);
  const requestId = response.headers.get('x-request-id') ?? '';
  online.value = !isFromProxy(response.status, requestId);
  const type = response.headers.get('content-type') ?? '';
  const answer = type.includes('json') ? await beginningOf(response) : '';
  recordCall({
    method: request.method,
    url: request.url,
    requestBody: blankSecrets(requestBody),
    status: response.status,
    answer: blankSecrets(answer),
    requestId,
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
api.use(telling);

/** A body that is sent as it is; the document knows only JSON bodies. */
export function rawBody(text: string, type: string) {
  return { body: text as never, bodySerializer: () => text, headers: { 'content-type': type } };
}

/** Of the two forms of a list, the one with whole entities: that with `fields` may have none of their properties. */
export type Whole<T> =
  T extends Record<string, { results?: (infer E)[] }>
    ? 'version' extends keyof E
      ? undefined extends E['version']
        ? never
        : T
      : T
    : T;

/** The data of an answer; of a list that was asked for some `fields`, read these alone. @throws ApiError */
export async function unwrap<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<Whole<T>> {
  const { data, error, response } = await answer;
  if (response.ok) return data as Whole<T>;
  const requestId = response.headers.get('x-request-id') ?? '';
  if (response.status === 401 && !response.url.includes('/auth/')) sessionEnded.value += 1;
  throw new ApiError(response.status, error, requestId);
}
