import { isUtf8 } from 'node:buffer';

/** A packet that ends the connection. */
export class Malformed extends Error {
  override name = 'Malformed';

  readonly about?: { action: 'publish' | 'subscribe'; topic: string };

  /** `about` is the topic or filter that is malformed, when it is one. */
  constructor(message: string, about?: { action: 'publish' | 'subscribe'; topic: string }) {
    super(message);
    this.about = about;
  }
}

/** The fields of the body of a packet, in order. Each throws Malformed past the end. */
export class Fields {
  readonly #body: Buffer;
  #at = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  get left(): number {
    return this.#body.length - this.#at;
  }

  byte(): number {
    return this.#take(1)[0] as number;
  }

  number(): number {
    return this.#take(2).readUInt16BE(0);
  }

  bytes(): Buffer {
    return this.#take(this.number());
  }

  /** UTF-8 without U+0000 [MQTT-1.5.3-1, MQTT-1.5.3-2]. */
  text(name: string): string {
    const bytes = this.bytes();
    const text = bytes.toString();
    if (!isUtf8(bytes) || text.includes('\0')) throw new Malformed(`malformed ${name}`);
    return text;
  }

  /** Skips the properties of MQTT 5: their length takes one to four bytes. */
  properties(): void {
    let length = 0;
    for (let place = 0; place < 4; place += 1) {
      const byte = this.byte();
      length += (byte & 127) << (7 * place);
      if (byte < 128) break;
    }
    this.#take(length);
  }

  end(): void {
    if (this.left > 0) throw new Malformed('surplus bytes');
  }

  #take(length: number): Buffer {
    if (length > this.left) throw new Malformed('the packet is too short');
    const bytes = this.#body.subarray(this.#at, this.#at + length);
    this.#at += length;
    return bytes;
  }
}
