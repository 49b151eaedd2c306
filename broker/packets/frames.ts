import { Malformed } from './fields.ts';

/** A control packet: its first byte, and what follows its fixed header. */
export interface Frame {
  first: number;
  body: Buffer;
}

/** Bytes of the shortest packet. */
const shortest = 2;
/** Bytes of the longest fixed header. */
const maxHeaderLength = 5;

const nothing = Buffer.alloc(0);

/** Cuts a stream of bytes into control packets, whatever its segments are. */
export class Frames {
  #buffer: Buffer = nothing;
  #at = 0;
  /** Bytes after `#buffer`. They are joined once the next packet is complete, so a long packet is copied once. */
  #more: Buffer[] = [];
  #unread = 0;
  /** Unread bytes below which no packet can be complete. */
  #needed = shortest;

  push(chunk: Buffer): void {
    if (this.#unread === 0) {
      this.#buffer = chunk;
      this.#at = 0;
    } else this.#more.push(chunk);
    this.#unread += chunk.length;
  }

  /** Whether every byte that was pushed has been returned in a packet. */
  get isEmpty(): boolean {
    return this.#unread === 0;
  }

  /**
   * The next packet, or undefined until all of it is there. `check` is told the first byte, the length of the body, and whether the
   * length has as few bytes as it needs, before the body comes. @throws Malformed for a malformed length, and what `check` throws.
   */
  next(check: (first: number, length: number, isShortest: boolean) => void): Frame | undefined {
    if (this.#unread < this.#needed) return undefined;
    if (this.#more.length > 0) {
      this.#buffer = Buffer.concat([this.#buffer.subarray(this.#at), ...this.#more]);
      this.#more = [];
      this.#at = 0;
    }
    const buffer = this.#buffer;
    const first = buffer[this.#at] as number;
    let length = 0;
    let header = 1;
    for (;;) {
      if (header === maxHeaderLength) throw new Malformed('malformed length');
      if (header === this.#unread) {
        this.#needed = header + 1;
        return undefined;
      }
      const byte = buffer[this.#at + header] as number;
      length += (byte & 127) << (7 * (header - 1));
      header += 1;
      if (byte < 128) break;
    }
    check(first, length, header === 2 || (buffer[this.#at + header - 1] as number) > 0);
    const total = header + length;
    if (this.#unread < total) {
      this.#needed = total;
      return undefined;
    }
    const body = buffer.subarray(this.#at + header, this.#at + total);
    this.#at += total;
    this.#unread -= total;
    this.#needed = shortest;
    // A connection that waits keeps nothing of what it has read.
    if (this.#unread === 0) this.#buffer = nothing;
    return { first, body };
  }
}
