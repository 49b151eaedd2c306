/** One cell as the command asks it while an account moves. */
import { readFileSync } from 'node:fs';
import { type IncomingMessage, Agent as PlainAgent, request as requestHttp } from 'node:http';
import { request as requestHttps, Agent as TlsAgent } from 'node:https';
import { buffer } from 'node:stream/consumers';
import { UsageError } from '../../../src/core/usage-error.ts';
import type { Cell } from '../../config.ts';

/** Milliseconds that one answer may take: a cell may have to remove what an earlier attempt has left. */
const patience = 600_000;

type Query = Readonly<Record<string, string>>;

export interface MoveStatus {
  version: string;
  topicRoot: string;
  state: 'here' | 'away' | 'coming' | 'none';
  move: string | null;
  from: string | null;
  to: string | null;
}

/** A cell has refused something, or does not answer: then there is no `status`. */
export class CellFailure extends Error {
  override name = 'CellFailure';

  readonly path: string;
  readonly status: number | undefined;
  /** What the cell has said of it. */
  readonly reason: string;

  constructor(message: string, path: string, status: number | undefined, reason = '') {
    super(message);
    this.path = path;
    this.status = status;
    this.reason = reason;
  }
}

export class MovingCell {
  readonly #cell: Cell;
  readonly #token: string;
  readonly #agent: PlainAgent;

  constructor(cell: Cell, token: string, authority: string | undefined) {
    this.#cell = cell;
    this.#token = token;
    const verified = authority === undefined ? {} : { ca: readFileSync(authority) };
    // As HAProxy does: with the CAs of the cells, whatever name the certificate has.
    this.#agent = cell.tls
      ? new TlsAgent({
          keepAlive: true,
          rejectUnauthorized: authority !== undefined,
          checkServerIdentity: () => undefined,
          ...verified,
        })
      : new PlainAgent({ keepAlive: true });
  }

  get name(): string {
    return this.#cell.name;
  }

  status(accountId: string): Promise<MoveStatus> {
    return this.get('', { accountId });
  }

  async get<R>(path: string, query: Query): Promise<R> {
    return JSON.parse(await this.text(path, query)) as R;
  }

  async text(path: string, query: Query): Promise<string> {
    return (await this.bytes(path, query)).toString();
  }

  bytes(path: string, query: Query): Promise<Buffer> {
    return this.#askCell('GET', path, query);
  }

  /** `body` is JSON, bytes or an object. */
  async post<R = unknown>(path: string, query: Query, body: string | Buffer | object = {}): Promise<R> {
    const sent = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    return JSON.parse((await this.#askCell('POST', path, query, sent)).toString()) as R;
  }

  async #askCell(method: string, path: string, query: Query, body?: string | Buffer): Promise<Buffer> {
    const { address, http: port, tls, name } = this.#cell;
    const options = {
      host: address,
      port,
      path: `/cell/move${path}?${new URLSearchParams(query)}`,
      method,
      agent: this.#agent,
      headers: {
        authorization: `Bearer ${this.#token}`,
        ...(body !== undefined && {
          'content-type': Buffer.isBuffer(body) ? 'application/octet-stream' : 'application/json',
          'content-length': Buffer.byteLength(body),
        }),
      },
      signal: AbortSignal.timeout(patience),
    };
    let answer: IncomingMessage;
    let content: Buffer;
    try {
      answer = await new Promise<IncomingMessage>((resolve, reject) => {
        (tls ? requestHttps : requestHttp)(options, resolve).on('error', reject).end(body);
      });
      content = await buffer(answer);
    } catch (error) {
      throw new CellFailure(`${name} does not answer (${(error as Error).message}).`, path, undefined);
    }
    const { statusCode = 0 } = answer;
    if (statusCode === 200) return content;
    const where = `${name} (${address}:${port})`;
    if (statusCode === 401) throw new UsageError(`${where} has another SLIPWAY_MOVE_TOKEN than this command.`);
    if (path === '' && statusCode === 404) throw new UsageError(`SLIPWAY_MOVE_TOKEN is not set in ${where}.`);
    throw new CellFailure(`${name} refuses ${path || 'to say'}: ${content}`, path, statusCode, reasonOf(content));
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** What an error of the API says, in one line. */
function reasonOf(content: Buffer): string {
  try {
    const { error } = JSON.parse(content.toString());
    const details: { path: string; message: string }[] = error.details;
    return details.map(({ path, message }) => `${path} ${message}`).join(', ') || error.message;
  } catch {
    return content.toString();
  }
}
