import type { Json } from '../support/service.js';

/** A request that got an answer. */
export interface Answered {
  status: number;
  body: Json;
}

/** An admin of the service, wherever it listens now. */
export class Api {
  url = '';
  #token = '';

  constructor(
    readonly accountId: string,
    readonly admin: { email: string; password: string },
  ) {}

  get token(): string {
    return this.#token;
  }

  async login(): Promise<void> {
    const { email: emailAddress, password } = this.admin;
    this.#token = (await this.ok('POST', '/api/v1/auth/login-user', { emailAddress, password })).jwt;
  }

  /** @throws Error when no whole answer comes. */
  async ask(method: string, path: string, body?: object, etag?: string): Promise<Answered> {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        ...(body && { 'content-type': 'application/json' }),
        ...(this.#token && { authorization: `Bearer ${this.#token}` }),
        ...(etag && { etag }),
      },
      ...(body && { body: JSON.stringify({ accountId: this.accountId, ...body }) }),
    });
    return { status: response.status, body: await response.json() };
  }

  /** As ask, and it must answer 200. */
  async ok(method: string, path: string, body?: object, etag?: string) {
    const answer = await this.ask(method, path, body, etag);
    if (answer.status !== 200)
      throw new Error(`${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }
}
