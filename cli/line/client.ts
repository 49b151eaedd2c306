/**
 * Calls a server over a bad network. Every call may be sent twice: reading, and what carries an Idempotency-Key, has the
 * same effect and answer the second time. `node:http` and not fetch, which takes longer to load than one unit may.
 */
import { once } from 'node:events';
import { Agent as HttpAgent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientConfig } from '../../src/core/config.ts';
import { lineOf } from '../../src/core/errors.ts';
import { refused, trouble, UsageError } from '../usage.ts';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

export interface Call {
  /** An object is sent as JSON. */
  body?: object | string | Buffer;
  headers?: Record<string, string>;
  type?: string;
  idempotencyKey?: string;
  /** Milliseconds without a byte after which the connection counts as broken. */
  patience?: number;
}

export interface ClientOptions extends ClientConfig {
  /** PEM of who signed the server's certificate, next to the usual ones. */
  ca: string | undefined;
  /** How long one call is tried again, in milliseconds. */
  retryFor: number;
  /** Ends what is under way: nobody waits for it any more. */
  signal: AbortSignal | undefined;
  /** Said once for each call that has to be tried again. */
  printLine(sentence: string): void;
}

interface Claims {
  accountId: string;
  userId: string;
  roles?: string[];
}

/** A JWT and not an appToken. */
const jwtForm = /^eyJ[\w-]*\.[\w-]+\.[\w-]+$/;
const usualPatience = 30_000;
const maxPause = 5000;
const unknownHost = 'ENOTFOUND';

export class Client {
  readonly #agent: HttpAgent;
  /** Ends calls under way when nobody waits for them any more. */
  readonly #closing = new AbortController();
  readonly #signal: AbortSignal;
  readonly #request: typeof httpRequest;
  #jwt: string | undefined;
  /** Whether anything has been answered. */
  #isKnown = false;
  /** The account of the units. */
  accountId = '';
  /** The caller that makes them. A station sees only its own units. */
  caller = { id: '', isStation: false };

  readonly options: ClientOptions;

  private constructor(options: ClientOptions, transport: { agent: HttpAgent; request: typeof httpRequest }) {
    this.options = options;
    this.#agent = transport.agent;
    this.#signal = options.signal ? AbortSignal.any([options.signal, this.#closing.signal]) : this.#closing.signal;
    this.#request = transport.request;
  }

  /** Logged in where an appToken was given. @throws Ending 3, 4; UsageError for a token that cannot be one. */
  static async open(options: ClientOptions): Promise<Client> {
    const client = new Client(options, await transportOf(options));
    if (jwtForm.test(options.token)) client.#takeToken(options.token);
    else await client.#login();
    return client;
  }

  /** For calls that need no token: it logs nobody in. */
  static async openAnonymous(options: Omit<ClientOptions, 'token' | 'appId' | 'accountId'>): Promise<Client> {
    const nobody = { token: '', appId: undefined, accountId: undefined };
    return new Client({ ...options, ...nobody }, await transportOf(options));
  }

  /** The newest token of its session. */
  get token(): string | undefined {
    return this.#jwt;
  }

  /**
   * The answer; after 429, 5xx and no answer it is tried again. @throws Ending 3 when it does not get through in time, 4 for 401;
   * UsageError for what is no Slipway server, and for parameters of a GET that it does not know.
   */
  async call(method: string, path: string, call: Call = {}): Promise<Answer> {
    const answer = await this.#persist(method, path, call);
    if (method === 'GET') demandHeeded(path, answer);
    if (answer.status !== 401 || this.options.token === '') return answer;
    // The token may have expired while nobody used its session; the session may have ended, then the appToken makes a new one.
    if (!jwtForm.test(this.options.token)) await this.#login();
    else if (!(await this.#renewSession())) throw refused(`The token is refused: ${reasonOf(answer)}`);
    const again = await this.#persist(method, path, call);
    if (method === 'GET') demandHeeded(path, again);
    if (again.status === 401) throw refused(`The token is refused: ${reasonOf(again)}`);
    return again;
  }

  /** As call, and the body of a 2xx answer. @throws Ending 4 for 403 and 404; UsageError for what else is refused. */
  async ok<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const answer = await this.call(method, path, call);
    if (answer.status < 300) return JSON.parse(answer.text) as T;
    const sentence = `${method} ${path.replace(/\?.*/, '')} was refused: ${reasonOf(answer)}`;
    throw answer.status === 403 || answer.status === 404 ? refused(sentence) : new UsageError(sentence);
  }

  close(): void {
    // Without it, another call than the one that failed would be tried again on its broken connection.
    this.#closing.abort();
    this.#agent.destroy();
  }

  async #login(): Promise<void> {
    const { appId, token, accountId } = this.options;
    if (!appId || !accountId)
      throw new UsageError('SLIPWAY_APP_ID and SLIPWAY_ACCOUNT_ID are needed: the token is an appToken, not a JWT.');
    this.#jwt = undefined;
    const body = { appId, appToken: token, accountId };
    const answer = await this.#persist('POST', '/auth/login-application', { body });
    if (answer.status !== 200) throw refused(`The application cannot log in: ${reasonOf(answer)}`);
    this.#takeToken((JSON.parse(answer.text) as { jwt: string }).jwt);
  }

  /** Whether the session of the token still lives, and has a new token now. */
  async #renewSession(): Promise<boolean> {
    const answer = await this.#persist('POST', '/sessions/renew-session', {});
    if (answer.status !== 200) return false;
    this.#takeToken((JSON.parse(answer.text) as { jwt: string }).jwt);
    return true;
  }

  #takeToken(jwt: string): void {
    try {
      const claims = JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString()) as Claims;
      this.accountId = claims.accountId;
      this.caller = { id: claims.userId, isStation: claims.roles?.includes('station') ?? false };
    } catch {
      throw new UsageError('The token is not a JWT that this command can read.');
    }
    this.#jwt = jwt;
  }

  async #persist(method: string, path: string, call: Call): Promise<Answer> {
    const { retryFor } = this.options;
    const deadline = Date.now() + retryFor;
    for (let pause = 100; ; pause = Math.min(2 * pause, maxPause)) {
      const { answer, why, wait } = await this.#try(method, path, call);
      if (answer && isForeign(answer)) throw this.#noServer(speaksTls(answer) ? 'no HTTP' : `answer ${answer.status}`);
      if (answer) return answer;
      const left = deadline - Date.now();
      // A name that was known is known again: a line may lose its resolver with its network.
      const isSettled = why === unknownHost && pause > 100 && !this.#isKnown;
      if (left <= 0 || isSettled) throw trouble(`${this.options.url}: ${why}. Run the command again when it answers.`);
      if (pause === 100) this.options.printLine(`${this.options.url}: ${why}; trying again`);
      // Many stations that lost the same server do not come back in the same moment.
      await delay(Math.min(left, Math.max(wait, pause * (0.5 + Math.random()))), undefined, { signal: this.#signal });
    }
  }

  async #try(method: string, path: string, call: Call): Promise<{ answer?: Answer; why: string; wait: number }> {
    try {
      const answer = await this.#send(method, path, call).catch((error) => {
        // The server has ended a connection that rested: that says nothing about the server.
        if (error instanceof EndedConnection) return this.#send(method, path, call);
        throw error;
      });
      if (answer.status < 500 && answer.status !== 429) return { answer, why: '', wait: 0 };
      return { why: reasonOf(answer), wait: 1000 * (Number(answer.headers['retry-after']) || 0) };
    } catch (error) {
      this.#signal.throwIfAborted();
      const { code, message } = error as NodeJS.ErrnoException;
      // Trying again helps against no wrong certificate and no wrong name.
      if (/CERT|SIGNATURE|ALTNAME/.test(code ?? ''))
        throw new UsageError(`${this.options.url}: ${message} (see --ca).`);
      if (/^HPE_/.test(code ?? '')) throw this.#noServer('no HTTP');
      if (/^ERR_SSL_(WRONG_VERSION|PACKET_LENGTH)|^EPROTO$/.test(code ?? '')) throw this.#noServer('no TLS');
      const isHungUp = !this.#isKnown && code === 'ECONNRESET' && this.options.url.startsWith('http:');
      return { why: `${code ?? message}${isHungUp ? ` (${this.#otherScheme})` : ''}`, wait: 0 };
    }
  }

  #noServer(found: string): UsageError {
    const hint = /^no/.test(found) ? `; ${this.#otherScheme}` : '';
    return new UsageError(`There is no Slipway server at ${this.options.url} (${found}${hint}).`);
  }

  get #otherScheme(): string {
    const { url } = this.options;
    return url.startsWith('https:') ? 'perhaps it speaks http, without TLS' : 'perhaps it speaks https';
  }

  /** The answer of an endpoint whose answer has no end, as it comes. @throws as ok. */
  async stream(path: string, headers: Record<string, string>): Promise<IncomingMessage> {
    const url = new URL(`${this.options.url}/api/v1${path}`);
    const given = { headers: { ...headers, authorization: `Bearer ${this.#jwt}` }, signal: this.#signal };
    const request = this.#request(url, given);
    request.end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    if (response.statusCode === 200) return response;
    const text = Buffer.concat(await response.toArray()).toString();
    const sentence = `GET ${path.replace(/\?.*/, '')} was refused: ${reasonOf({ status: response.statusCode ?? 0, headers: {}, text })}`;
    throw [401, 403, 404].includes(response.statusCode ?? 0) ? refused(sentence) : new UsageError(sentence);
  }

  #send(
    method: string,
    path: string,
    { body, headers: more, type, idempotencyKey, patience = usualPatience }: Call,
  ): Promise<Answer> {
    const content = typeof body === 'object' && !Buffer.isBuffer(body) ? JSON.stringify(body) : body;
    const headers = {
      ...more,
      ...(this.#jwt && { authorization: `Bearer ${this.#jwt}` }),
      ...(content !== undefined && {
        'content-type': type ?? 'application/json',
        'content-length': Buffer.byteLength(content),
      }),
      ...(idempotencyKey && { 'idempotency-key': idempotencyKey }),
    };
    return new Promise((resolve, reject) => {
      const url = new URL(`${this.options.url}/api/v1${path}`);
      const given = { method, headers, agent: this.#agent, timeout: patience, signal: this.#signal };
      const request = this.#request(url, given, (response) => {
        const parts: Buffer[] = [];
        response.on('data', (part) => parts.push(part));
        // An answer that is cut off ends with an error.
        response.on('error', reject);
        response.on('end', () => {
          const { statusCode = 0, headers } = response;
          this.#isKnown = true;
          this.#renew(headers);
          resolve({ status: statusCode, headers, text: Buffer.concat(parts).toString() });
        });
      });
      request.on('timeout', () => request.destroy(new Error('no answer')));
      request.on('error', (error: NodeJS.ErrnoException) => {
        const hasRested = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
        reject(hasRested ? new EndedConnection(error) : error);
      });
      request.end(content);
    });
  }

  /** Sessions go on as they are used: an answer may carry the next token, under the prefix of that service. */
  #renew(headers: IncomingHttpHeaders): void {
    const name = Object.keys(headers).find((one) => one.endsWith('-access-token'));
    const jwt = name && headers[name];
    if (typeof jwt === 'string' && this.#jwt) this.#jwt = jwt;
  }
}

/** A connection that had been used before has broken without an answer. */
class EndedConnection extends Error {
  readonly code: string | undefined;

  constructor({ message, code }: NodeJS.ErrnoException) {
    super(message);
    this.code = code;
  }
}

/** TLS is loaded where it is spoken. */
async function transportOf({ url, ca }: Pick<ClientOptions, 'url' | 'ca'>) {
  const settings = { keepAlive: true, maxSockets: 16 };
  if (!url.startsWith('https:')) return { agent: new HttpAgent(settings), request: httpRequest };
  const { Agent, request } = await import('node:https');
  const { rootCertificates } = await import('node:tls');
  return { agent: new Agent({ ...settings, ...(ca && { ca: [...rootCertificates, ca] }) }), request };
}

/** Whether it comes from something else than Slipway, or from an address below it that has no API. */
function isForeign({ status, headers, text }: Answer): boolean {
  if (status >= 300 && status < 400) return true;
  const isPage = /^text\/html/.test(headers['content-type'] ?? '');
  if (status < 300) return isPage;
  if (![400, 403, 404, 405, 426].includes(status)) return false;
  try {
    const { error, message, attributes } = JSON.parse(text);
    const said = error?.message ?? (attributes && message);
    return typeof said !== 'string' || error?.details?.some(({ path }: { path?: string }) => path === 'url') === true;
  } catch {
    return true;
  }
}

/** Whether a port of TLS has answered to plain HTTP, as Slipway's does, and others do. */
function speaksTls({ status, text }: Answer): boolean {
  return status === 400 && /\b(TLS|SSL|HTTPS)\b/i.test(text);
}

/** The prefix of the header is a setting of the service. @throws UsageError naming what had no effect. */
function demandHeeded(path: string, { headers }: Answer): void {
  const name = Object.keys(headers).find((one) => one.endsWith('-ignored-properties'));
  if (name === undefined) return;
  const ignored = String(headers[name]).split(', ').map(decodeURIComponent).join(', ');
  throw new UsageError(`GET ${path.replace(/\?.*/, '')} has no filter or parameter ${ignored}.`);
}

/** The message of an error answer, in one line. */
export function reasonOf({ status, text }: Answer): string {
  try {
    const { error, message, attributes } = JSON.parse(text);
    const said = { message: error?.message ?? message ?? '', details: error?.details ?? attributes?.details ?? [] };
    return `${status} ${lineOf(said)}`;
  } catch {
    return `answer ${status}`;
  }
}
