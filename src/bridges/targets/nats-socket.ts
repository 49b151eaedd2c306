/** The connection of a NATS client on a socket of ours: its address is checked, and what the server sends is limited. */
import type { Socket } from 'node:net';
import type { ConnectionOptions, ServerInfo, Transport } from '@nats-io/nats-core/internal';
import { limitAnswers, secureSocket, type Trust } from '../../core/network/outbound.ts';

/** The pattern of the first line of a server. */
const infoLine = /^INFO\s+(\{.*\})\s*\r\n/s;
const versionForm = /^\d+\.\d+\.\d+[\w.+-]{0,50}$/;
/** Bytes of that line. */
const maxInfoBytes = 65_536;

/** `openSocket` opens a plain connection; with `tls` it is encrypted, with a certificate for that host. */
export interface SocketOptions extends ConnectionOptions {
  openSocket: () => Socket;
  tls: (Trust & { hostname: string }) | undefined;
}

export class NatsSocket implements Transport {
  readonly lang = 'nats.js';
  readonly version = '3.4.0';
  closeError?: Error;
  isClosed = false;
  #socket: Socket | undefined;
  #encrypted = false;
  #chunks: Uint8Array[] = [];
  #wake: () => void = () => {};
  readonly #closed: Promise<Error | undefined>;
  #end: (error: Error | undefined) => void = () => {};

  constructor() {
    this.#closed = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  /** @throws Error if the connection fails, or the server does not begin as a NATS server does. */
  async connect(_server: unknown, options: ConnectionOptions): Promise<void> {
    const { openSocket, tls } = options as SocketOptions;
    let socket = openSocket();
    this.#socket = socket;
    socket.setNoDelay(true);
    limitAnswers(socket);
    const first = await readInfo(socket);
    if (tls !== undefined) {
      // Nothing is sent in plain text, whatever the server says of itself.
      if (!first.info.tls_required && !first.info.tls_available) throw failure('NO_TLS');
      socket = await encrypt(socket, tls);
      this.#socket = socket;
      this.#encrypted = true;
    }
    if (this.isClosed) throw failure('CLOSED');
    this.#chunks.push(first.bytes);
    socket.on('data', (chunk: Uint8Array) => {
      this.#chunks.push(chunk);
      this.#wake();
    });
    socket.on('error', (error) => {
      this.closeError = error;
    });
    socket.on('close', () => this.#finish());
    socket.resume();
  }

  async *[Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    while (!this.isClosed) {
      yield* this.#chunks.splice(0);
      if (this.#chunks.length > 0 || this.isClosed) continue;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  isEncrypted(): boolean {
    return this.#encrypted;
  }

  send(frame: Uint8Array): void {
    if (!this.isClosed) this.#socket?.write(frame);
  }

  async close(error?: Error): Promise<void> {
    if (error) this.closeError ??= error;
    this.#socket?.destroy();
    this.#finish();
  }

  disconnect(): void {
    void this.close();
  }

  discard(): void {
    void this.close();
  }

  closed(): Promise<Error | undefined> {
    return this.#closed;
  }

  #finish(): void {
    this.isClosed = true;
    this.#wake();
    this.#end(this.closeError);
  }
}

/** The first line of the server, and all bytes that came with it. The socket is paused then. */
function readInfo(socket: Socket): Promise<{ bytes: Buffer; info: Partial<ServerInfo> }> {
  return new Promise((resolve, reject) => {
    let bytes = Buffer.alloc(0);
    const hear = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      const [, json] = infoLine.exec(bytes.toString('latin1')) ?? [];
      if (json === undefined) {
        if (bytes.length > maxInfoBytes || bytes.includes('\n')) socket.destroy(failure('NOT_NATS'));
        return;
      }
      socket.pause();
      socket.off('data', hear);
      const info = parseInfo(json);
      if (info) resolve({ bytes, info });
      else socket.destroy(failure('NOT_NATS'));
    };
    socket.on('data', hear);
    // A later error has nobody else to hear it.
    socket.on('error', reject);
    socket.on('close', () => reject(failure('CLOSED')));
  });
}

/** Undefined for what no server says. The client prints a version that it cannot read, with whatever is in it. */
function parseInfo(json: string): Partial<ServerInfo> | undefined {
  try {
    const info: Partial<ServerInfo> = JSON.parse(json);
    return versionForm.test(String(info.version)) ? info : undefined;
  } catch {
    return undefined;
  }
}

function encrypt(socket: Socket, tls: Trust & { hostname: string }): Promise<Socket> {
  const secure = secureSocket(socket, tls);
  return new Promise((resolve, reject) => {
    secure.once('secureConnect', () => resolve(secure));
    secure.on('error', reject);
    secure.on('close', () => reject(failure('CLOSED')));
  });
}

function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}
