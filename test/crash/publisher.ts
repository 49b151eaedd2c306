import type { Packet } from 'mqtt-packet';
import { type Link, type Login, openLink, publishBytes } from '../../bench/link.ts';

/** Messages on their way at once; the service sees many of them in one chunk. */
const window = 20;

export interface Stream {
  login: Login;
  topic: string;
  qos: 1 | 2;
  retain: boolean;
  /** The payload of message number `n`, from 1. */
  payload(n: number): string;
}

interface Sent {
  n: number;
  /** QoS 2: PUBREC has come, so that only PUBREL may follow. */
  released: boolean;
}

/** An honest publisher: it numbers its messages, and sends again what was not acknowledged when the connection ended. */
export class Publisher {
  /** Numbers acknowledged (PUBACK, PUBREC) since `takeAcknowledged`. */
  #acknowledged: number[] = [];
  readonly #inFlight = new Map<number, Sent>();
  #link: Link | undefined;
  #running = false;
  #whenSettled: (() => void) | undefined;
  /** Numbers up to here may be given out. */
  limit = Number.POSITIVE_INFINITY;
  /** The last number that was given out, and the last one that was acknowledged. */
  sent = 0;
  last = 0;

  readonly stream: Stream;

  constructor(stream: Stream) {
    this.stream = stream;
  }

  /** Connects to its session and sends again what is open, in its order. */
  async connect(port: number): Promise<void> {
    const link = await openLink({ port }, { ...this.stream.login, clean: false }, (packet) => this.#hear(packet));
    if (link.returnCode !== 0) throw new Error(`a publisher was refused with ${link.returnCode}`);
    this.#link = link;
    for (const [messageId, { n, released }] of this.#inFlight)
      if (released) link.send({ cmd: 'pubrel', messageId });
      else this.#publish(n, messageId, true);
  }

  /** Publishes as fast as its window allows, until the connection ends or `settle`. */
  run(): void {
    this.#running = true;
    this.#fill();
  }

  /** Sends nothing new; resolves when everything sent has been acknowledged. */
  settle(): Promise<void> {
    this.#running = false;
    if (this.#inFlight.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenSettled = resolve;
    });
  }

  /** Resolves when the connection is over and every acknowledgement that had arrived is counted. */
  async ended(): Promise<void> {
    this.#running = false;
    await this.#link?.closed;
    this.#link = undefined;
  }

  /** Numbers that were sent and not acknowledged; they are sent again with the next connection. */
  open(): number[] {
    return [...this.#inFlight.values()].map(({ n }) => n);
  }

  takeAcknowledged(): number[] {
    const taken = this.#acknowledged;
    this.#acknowledged = [];
    return taken;
  }

  #fill(): void {
    while (this.#running && this.#inFlight.size < window && this.sent < this.limit) {
      this.sent += 1;
      const messageId = (this.sent % 65_535) + 1;
      this.#inFlight.set(messageId, { n: this.sent, released: false });
      this.#publish(this.sent, messageId, false);
    }
  }

  #publish(n: number, messageId: number, dup: boolean): void {
    const { topic, qos, retain, payload } = this.stream;
    this.#link?.send(publishBytes(topic, payload(n), { qos, retain, messageId, dup }));
  }

  #hear(packet: Packet): void {
    const { cmd, messageId = 0 } = packet;
    const sent = this.#inFlight.get(messageId);
    if (cmd === 'puback' || cmd === 'pubrec') {
      if (sent && !sent.released) {
        this.#acknowledged.push(sent.n);
        this.last = sent.n;
        sent.released = true;
      }
      if (cmd === 'pubrec') this.#link?.send({ cmd: 'pubrel', messageId });
      else this.#inFlight.delete(messageId);
    }
    if (cmd === 'pubcomp') this.#inFlight.delete(messageId);
    if (this.#inFlight.size === 0) this.#whenSettled?.();
    this.#fill();
  }
}
