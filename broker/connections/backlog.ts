import type { Duplex } from 'node:stream';
import { type Clock, monotonic } from '../../src/core/clock.ts';

/** Milliseconds between two looks at what a client has taken. */
const lookInterval = 1000;
/** Milliseconds that others wait for a client at most. */
const othersWait = 5000;
/** Milliseconds in which a client has to take something; a kernel asks for more only when a third of its buffer is free. */
const patience = 60_000;

export interface BacklogParts {
  clock: Clock;
  /** Bytes that may wait for it. */
  maxUnsent: number;
  /** The socket has room again. */
  drained(): void;
  /** It is to be ended. */
  failed(error: Error): void;
}

/** What waits until a client has taken what has been written to it. One that takes nothing for too long is ended. */
export class Backlog {
  readonly #conn: Duplex;
  /** That the bytes leave by: of a WebSocket, the one below it. */
  readonly #socket: Duplex;
  readonly #parts: BacklogParts;
  #waiting: Array<() => void> | undefined;
  #isSlow = false;

  constructor(conn: Duplex, socket: Duplex, parts: BacklogParts) {
    this.#conn = conn;
    this.#socket = socket;
    this.#parts = parts;
  }

  /** Whether others have waited for it as long as they do. It is not for ever: until the socket has room again. */
  get isSlow(): boolean {
    return this.#isSlow;
  }

  /** Calls back when the socket has room, when others wait no longer, or when the connection ends. */
  wait(done: () => void): void {
    if (this.#waiting) {
      this.#waiting.push(done);
      return;
    }
    this.#waiting = [done];
    const look = setInterval(this.#looker(), lookInterval);
    const end = () => {
      clearInterval(look);
      this.#conn.off('drain', end);
      this.#conn.off('close', end);
      this.#isSlow = false;
      const waiting = this.#waiting ?? [];
      this.#waiting = undefined;
      this.#parts.drained();
      for (const goOn of waiting) setImmediate(goOn);
    };
    this.#conn.on('drain', end);
    this.#conn.on('close', end);
  }

  #looker(): () => void {
    const { clock, maxUnsent, failed } = this.#parts;
    const begun = monotonic(clock);
    let since = begun;
    let taken = takenFrom(this.#socket);
    return () => {
      const now = monotonic(clock);
      const before = taken;
      taken = takenFrom(this.#socket);
      if (taken !== before) since = now;
      if (now - begun < othersWait) return;
      if (now - since >= patience || this.#conn.writableLength > maxUnsent) {
        failed(new Error('drain timeout'));
        return;
      }
      this.#isSlow = true;
      const waiting = this.#waiting ?? [];
      this.#waiting = [];
      for (const goOn of waiting) setImmediate(goOn);
    };
  }
}

/** Bytes that the kernel has taken. Node tells a stream of a write only when all of it has been, as its own timeouts know. */
function takenFrom(socket: Duplex): number {
  type Handle = { bytesWritten?: number; writeQueueSize?: number; _parent?: Handle };
  const { _handle } = socket as { _handle?: Handle };
  // Below TLS is what it is sent by.
  const { bytesWritten = 0, writeQueueSize = 0 } = _handle?._parent ?? _handle ?? {};
  return bytesWritten - writeQueueSize;
}
