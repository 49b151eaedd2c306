/** HTTP over connections that stay open, with as little work for each request as there can be: the machine is shared. */
import { connect, type Socket } from 'node:net';
import { Pacer } from './pacer.ts';

const headEnd = Buffer.from('\r\n\r\n');
/** The digit that a status begins with when all went well. */
const ok = 0x32;

/** One connection, one request at a time. */
export class HttpLine {
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #taken: ((answer: Buffer) => void) | undefined;
  #failed: ((error: Error) => void) | undefined;

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (chunk) => this.#take(chunk));
    this.#socket.on('error', (error) => this.#failed?.(error));
    this.#socket.on('close', () => this.#failed?.(new Error('the connection ended')));
  }

  /** Sends these bytes. @returns the whole answer, whatever its status is. */
  ask(request: Buffer | string): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      this.#failed = reject;
      this.#taken = resolve;
      this.#socket.write(request);
    });
  }

  end(): void {
    this.#failed = undefined;
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    const head = this.#received.indexOf(headEnd);
    if (head < 0) return;
    const length = /content-length: (\d+)/i.exec(this.#received.toString('latin1', 0, head))?.[1];
    if (length === undefined) throw new Error('an answer without its length');
    if (this.#received.length < head + headEnd.length + Number(length)) return;
    const answer = this.#received;
    this.#received = Buffer.alloc(0);
    this.#taken?.(answer);
  }
}

/** The bytes of a GET. */
export function getBytes(path: string, token = ''): Buffer {
  return Buffer.from(`GET ${path} HTTP/1.1\r\nhost: bench\r\n${token && `authorization: Bearer ${token}\r\n`}\r\n`);
}

/** The bytes of a POST. */
export function postBytes(path: string, token: string, body: object): Buffer {
  const json = JSON.stringify(body);
  const head = `POST ${path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer ${token}\r\ncontent-type: application/json`;
  return Buffer.from(`${head}\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n${json}`);
}

/** The same GET again and again. @returns milliseconds of each, and the last answer's text. */
export async function askAgain(
  port: number,
  path: string,
  token: string,
  { warmUp, asks }: { warmUp: number; asks: number },
): Promise<{ times: number[]; answer: string }> {
  const line = new HttpLine(port);
  const request = getBytes(path, token);
  const times: number[] = [];
  let answer: Buffer = Buffer.alloc(0);
  for (let n = -warmUp; n < asks; n += 1) {
    const from = performance.now();
    answer = await line.ask(request);
    if (n >= 0) times.push(performance.now() - from);
  }
  line.end();
  return { times, answer: answer.toString() };
}

/**
 * Requests a second over so many connections, at most `atMost`; `next` gives the request, and measuring begins after a fifth
 * of the time. @throws Error for an answer that is not 2xx.
 */
export async function rateOf(
  port: number,
  connections: number,
  duration: number,
  next: () => Buffer,
  atMost = Number.POSITIVE_INFINITY,
): Promise<{ perSecond: number; times: number[] }> {
  const [from, until] = [performance.now() + duration / 5, performance.now() + duration * 1.2];
  const times: number[] = [];
  const pace = new Pacer(atMost);
  const goOn = async () => {
    const line = new HttpLine(port);
    for (;;) {
      await pace.nextTurn();
      const asked = performance.now();
      if (asked > until) break;
      const answer = await line.ask(next());
      if (answer[9] !== ok) throw new Error(answer.toString());
      if (asked >= from) times.push(performance.now() - asked);
    }
    line.end();
  };
  await Promise.all(Array.from({ length: connections }, goOn));
  return { perSecond: (times.length / (performance.now() - from)) * 1000, times };
}
