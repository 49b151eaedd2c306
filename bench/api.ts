/** Asks the HTTP API of the service under measurement, as a script would. */
import type { ServingService } from './processes.ts';
import { seedAdmin } from './seed.ts';

export interface Api {
  token: string;
  /** Asks, with a body where there is one: an object as JSON, a text as CSV. @throws Error for any answer but 2xx. */
  call<T>(method: string, path: string, body?: object | string, etag?: string): Promise<T>;
}

/** Logs in, by default as the admin of a seeded registry. */
export async function logIn(
  { url }: Pick<ServingService, 'url'>,
  accountId: string,
  { email: emailAddress, password } = seedAdmin,
): Promise<Api> {
  const headers: Record<string, string> = {};
  const call = async <T>(method: string, path: string, body?: object | string, etag?: string): Promise<T> => {
    const response = await fetch(url + path, {
      method,
      headers: {
        ...headers,
        ...(body !== undefined && { 'content-type': typeof body === 'string' ? 'text/csv' : 'application/json' }),
        ...(etag !== undefined && { etag }),
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`);
    return JSON.parse(text) as T;
  };
  const { jwt } = await call<{ jwt: string }>('POST', '/auth/login-user', { accountId, emailAddress, password });
  headers.authorization = `Bearer ${jwt}`;
  return { token: jwt, call };
}
