import { isUtf8 } from 'node:buffer';
import {
  InvalidProperties,
  type PacketWithProperties,
  type PropertiesRead,
  readProperties,
} from '../../src/core/formats/message-properties.ts';

/** Reason codes of MQTT 5 for packets that end a connection. */
export const faults = {
  malformed: 0x81,
  protocol: 0x82,
  window: 0x93,
  topicAlias: 0x94,
  tooLarge: 0x95,
} as const;
type Fault = (typeof faults)[keyof typeof faults];

/** A packet that ends the connection. */
export class Malformed extends Error {
  override name = 'Malformed';

  /** What DISCONNECT or CONNACK of MQTT 5 says. */
  readonly code: Fault;
  readonly about: { action: 'publish' | 'subscribe'; topic: string } | undefined;

  /** `about` is the topic or filter that is malformed, when it is one. */
  constructor(
    message: string,
    {
      code = faults.malformed,
      about,
    }: { code?: Fault; about?: { action: 'publish' | 'subscribe'; topic: string } } = {},
  ) {
    super(message);
    this.code = code;
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

  /** The properties of MQTT 5. */
  properties(packet: PacketWithProperties): PropertiesRead {
    try {
      const read = readProperties(this.#body, this.#at, packet);
      this.#at = read.end;
      return read;
    } catch (error) {
      if (error instanceof InvalidProperties) throw new Malformed(error.message, { code: error.code });
      throw error;
    }
  }

  rest(): Buffer {
    return this.#take(this.left);
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
