import type { Duplex } from 'node:stream';

/** Bytes; Infinity for no limit. */
export interface PacketLimits {
  /** The CONNECT packet, after its fixed header. */
  connect: number;
  publish: number;
  other: number;
}

const connectType = 1;
const publishType = 3;

/**
 * Stands between a connection and the packet parser, which buffers up to 256 MB of a packet before it looks at it.
 * Reads only fixed headers: CONNECT comes first and is small, what follows it waits until CONNACK has been sent, and a
 * packet that announces more than its limit ends the connection before its body is read.
 */
export class Gate {
  #state: 'connect' | 'held' | 'open' = 'connect';
  /** Bytes of the current packet that are still to come; its fixed header is behind. */
  #body = 0;
  /** Bytes of a fixed header seen so far, its type, and the length it has announced up to now. */
  #header = 0;
  #type = 0;
  #length = 0;

  constructor(readonly limits: PacketLimits) {}

  /** Puts itself in front of `conn.read`, the only way in which Aedes takes bytes. */
  attach(conn: Duplex): void {
    const read = conn.read.bind(conn);
    conn.read = (size?: number) => {
      // Node itself asks for 0 bytes, to refill the buffer.
      if (size === 0) return read(0);
      if (this.#state === 'held') return null;
      const chunk: Buffer | null = read(size);
      if (chunk === null) return null;
      const passing = this.#inspect(chunk);
      if (passing < 0) {
        conn.destroy(new Error('packet refused: not a CONNECT, malformed or over the limit'));
        return null;
      }
      if (passing === chunk.length) return chunk;
      conn.unshift(chunk.subarray(passing));
      return chunk.subarray(0, passing);
    };
  }

  /** CONNACK has been sent: everything may pass, within the limits. */
  open(): void {
    this.#state = 'open';
  }

  /** How many bytes of the chunk may pass now; -1 when the connection must end. */
  #inspect(chunk: Buffer): number {
    let at = 0;
    while (at < chunk.length) {
      if (this.#body > 0) {
        const step = Math.min(this.#body, chunk.length - at);
        this.#body -= step;
        at += step;
      } else if (this.#header === 0) {
        this.#type = (chunk[at] as number) >> 4;
        if (this.#state === 'connect' && this.#type !== connectType) return -1;
        this.#header = 1;
        this.#length = 0;
        at += 1;
        continue;
      } else {
        const byte = chunk[at] as number;
        this.#length += (byte & 127) << (7 * (this.#header - 1));
        this.#header += 1;
        at += 1;
        if (byte & 128) {
          if (this.#header > 4) return -1;
          continue;
        }
        if (this.#length > this.#limit()) return -1;
        this.#header = 0;
        this.#body = this.#length;
      }
      if (this.#body === 0 && this.#state === 'connect') {
        this.#state = 'held';
        return at;
      }
    }
    return at;
  }

  #limit(): number {
    if (this.#state === 'connect') return this.limits.connect;
    return this.#type === publishType ? this.limits.publish : this.limits.other;
  }
}
