import type { Duplex } from 'node:stream';
import type { LimitName } from './counters.js';
import { OverLimit } from './limits.js';
import type { PublishRate, Rates } from './publish-rate.js';

/** Bytes; Infinity for no limit. */
export interface PacketLimits {
  /** The CONNECT packet, after its fixed header. */
  connect: number;
  publish: number;
  other: number;
}

const connectType = 1;
const publishType = 3;
const subscribeType = 8;
/** What the rate of a client counts: PUBLISH, SUBSCRIBE, UNSUBSCRIBE. */
const ratedTypes: readonly number[] = [publishType, subscribeType, 10];

/** The limit that a client is over, by what it sends too much of. */
const rateLimits = {
  packets: 'publish_rate_per_client',
  bytes: 'byte_rate_per_client',
  points: 'point_rate_per_client',
} as const satisfies Record<keyof Rates, LimitName>;

/**
 * Stands between a connection and the packet parser, which buffers up to 256 MB of a packet before it looks at it.
 * Reads only fixed headers: CONNECT comes first and is small, what follows it waits until CONNACK has been sent, and a
 * packet that announces more than its limit ends the connection before its body is read. A client that publishes faster
 * than it may is not read for a while; after a SUBSCRIBE the next waits until what is retained for the first has been
 * sent, so that nobody has many such searches going on.
 */
export class Gate {
  #state: 'connect' | 'held' | 'open' | 'slowed' | 'subscribing' = 'connect';
  #subscribing = false;
  #conn: Duplex | undefined;
  /** Bytes of the current packet that are still to come; its fixed header is behind. */
  #body = 0;
  /** Bytes of a fixed header seen so far, its type, and the length it has announced up to now. */
  #header = 0;
  #type = 0;
  #length = 0;

  readonly #limits: PacketLimits;
  readonly #rate: PublishRate;
  readonly #onSlowed: (limit: LimitName) => void;

  /** `onSlowed` hears of it when a client begins to be slowed. */
  constructor(limits: PacketLimits, rate: PublishRate, onSlowed: (limit: LimitName) => void) {
    this.#limits = limits;
    this.#rate = rate;
    this.#onSlowed = onSlowed;
  }

  /** Puts itself in front of `conn.read`, the only way in which Aedes takes bytes. */
  attach(conn: Duplex): void {
    this.#conn = conn;
    const read = conn.read.bind(conn);
    conn.read = (size?: number) => {
      // Node itself asks for 0 bytes, to refill the buffer.
      if (size === 0) return read(0);
      if (this.#state !== 'connect' && this.#state !== 'open') return null;
      const chunk: Buffer | null = read(size);
      if (chunk === null) return null;
      const passing = this.#inspect(chunk);
      if (passing instanceof Error) {
        conn.destroy(passing);
        return null;
      }
      if (passing === chunk.length) return chunk;
      conn.unshift(chunk.subarray(passing));
      if (this.#isSlowed()) this.#wait(conn);
      return passing === 0 ? null : chunk.subarray(0, passing);
    };
  }

  /** A message that has passed holds so many points. */
  charge(points: number): void {
    this.#rate.charge('points', points);
  }

  /** CONNACK has been sent: everything may pass, within the limits. */
  open(): void {
    this.#state = 'open';
  }

  /** The last SUBSCRIBE has been answered, what is retained included. */
  subscribed(): void {
    this.#subscribing = false;
    if (this.#state !== 'subscribing') return;
    this.#state = 'open';
    // A refused SUBSCRIBE is answered while the parser is still inside its packet: reading on now would parse it twice.
    setImmediate(() => this.#conn?.emit('readable'));
  }

  #isSlowed(): boolean {
    return this.#state === 'slowed';
  }

  /** Nothing is read until the next slice. */
  #wait(conn: Duplex): void {
    const { wait, over, begins, tooLong } = this.#rate.slow();
    if (tooLong) {
      conn.destroy(new OverLimit(rateLimits[over]));
      return;
    }
    if (begins) this.#onSlowed(rateLimits[over]);
    const goOn = setTimeout(() => {
      conn.off('close', forget);
      this.#state = 'open';
      // Aedes reads on when it is told that there is something.
      conn.emit('readable');
    }, wait);
    const forget = () => clearTimeout(goOn);
    conn.once('close', forget);
  }

  /** How many bytes of the chunk may pass now, or why the connection must end. */
  #inspect(chunk: Buffer): number | Error {
    let at = 0;
    while (at < chunk.length) {
      if (this.#body > 0) {
        const step = Math.min(this.#body, chunk.length - at);
        this.#body -= step;
        at += step;
      } else if (this.#header === 0) {
        this.#type = (chunk[at] as number) >> 4;
        if (this.#state === 'connect' && this.#type !== connectType) return new Error('not a CONNECT');
        if (this.#type === subscribeType && this.#subscribing) {
          this.#state = 'subscribing';
          return at;
        }
        if (ratedTypes.includes(this.#type) && !this.#rate.take()) {
          this.#state = 'slowed';
          return at;
        }
        if (this.#type === subscribeType) this.#subscribing = true;
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
          if (this.#header > 4) return new Error('malformed length');
          continue;
        }
        if (this.#length > this.#limit()) return this.#tooLarge();
        this.#header = 0;
        this.#body = this.#length;
        if (this.#type === publishType) this.#rate.charge('bytes', this.#length);
      }
      if (this.#body === 0 && this.#state === 'connect') {
        this.#state = 'held';
        return at;
      }
    }
    return at;
  }

  #limit(): number {
    if (this.#state === 'connect') return this.#limits.connect;
    return this.#type === publishType ? this.#limits.publish : this.#limits.other;
  }

  #tooLarge(): Error {
    if (this.#state === 'connect') return new OverLimit('max_packet_bytes_before_connect');
    return this.#type === publishType ? new OverLimit('max_payload_bytes') : new Error('packet too large');
  }
}
