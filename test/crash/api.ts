import type { Body, Ok } from '../support/answers.ts';

/** A request that got an answer. */
export interface Answered<B> {
  status: number;
  body: B;
}

/** An admin of the service, wherever it listens now. */
export class Api {
  url = '';
  mqttPort = 0;
  #token = '';

  readonly accountId: string;
  readonly admin: { email: string; password: string };

  constructor(accountId: string, admin: { email: string; password: string }) {
    this.accountId = accountId;
    this.admin = admin;
  }

  get token(): string {
    return this.#token;
  }

  async login(): Promise<void> {
    const { email: emailAddress, password } = this.admin;
    this.#token = (await this.ok('POST', '/api/v1/auth/login-user', { emailAddress, password })).jwt;
  }

  /** @throws Error when no whole answer comes. */
  async ask<const M extends string, const P extends string>(
    method: M,
    path: P,
    body?: object,
    etag?: string,
  ): Promise<Answered<Body<M, P>>> {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        ...(body && { 'content-type': 'application/json' }),
        ...(this.#token && { authorization: `Bearer ${this.#token}` }),
        ...(etag && { etag }),
      },
      ...(body && { body: JSON.stringify({ accountId: this.accountId, ...body }) }),
    });
    return { status: response.status, body: (await response.json()) as Body<M, P> };
  }

  /** As ask, and it must answer 200. */
  async ok<const M extends string, const P extends string>(
    method: M,
    path: P,
    body?: object,
    etag?: string,
  ): Promise<Ok<M, P>> {
    const answer = await this.ask(method, path, body, etag);
    if (answer.status !== 200)
      throw new Error(`${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }
}
