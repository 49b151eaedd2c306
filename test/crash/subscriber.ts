import type { IPublishPacket, Packet } from 'mqtt-packet';
import { type Link, type Login, openLink } from '../../bench/link.ts';

/** What was heard of one publisher. */
class Heard {
  readonly numbers = new Set<number>();
  highest = 0;
  repeated = 0;
  /** Numbers that came after a higher one, for the first time. */
  late = 0;

  add(n: number): void {
    if (this.numbers.has(n)) {
      this.repeated += 1;
      return;
    }
    this.numbers.add(n);
    if (n < this.highest) this.late += 1;
    else this.highest = n;
  }
}

/** An honest subscriber with a stored session: it acknowledges what it hears and knows a QoS 2 repetition by its id. */
export class Subscriber {
  readonly #heard = new Map<string, Heard>();
  readonly #unreleased = new Set<number>();
  #link: Link | undefined;
  #heardMore: (() => void) | undefined;

  readonly login: Login;
  readonly filters: string[];
  readonly read: (topic: string, payload: string) => number;

  /** `read` takes the number out of a payload. */
  constructor(login: Login, filters: string[], read: (topic: string, payload: string) => number) {
    this.login = login;
    this.filters = filters;
    this.read = read;
  }

  /** Connects, and subscribes when there is no session yet. @throws Error when a session should be there and is not. */
  async connect(port: number, session: 'new' | 'stored'): Promise<void> {
    const link = await openLink({ port }, { ...this.login, clean: false }, (packet, own) => this.#hear(packet, own));
    if (link.returnCode !== 0) throw new Error(`a subscriber was refused with ${link.returnCode}`);
    if (link.sessionPresent !== (session === 'stored')) throw new Error(`${session} session: the service says no`);
    this.#link = link;
    if (session === 'stored') return;
    const subscriptions = this.filters.map((topic) => ({ topic, qos: 2 }));
    const granted = new Promise<void>((resolve) => {
      this.#heardMore = resolve;
    });
    link.send({ cmd: 'subscribe', messageId: 1, subscriptions } as Packet);
    await granted;
  }

  /** Ends the connection, cleanly, if it has not ended yet. */
  async disconnect(): Promise<void> {
    this.#link?.send({ cmd: 'disconnect' });
    await this.ended();
  }

  async ended(): Promise<void> {
    await this.#link?.closed;
    this.#link = undefined;
  }

  of(topic: string): Heard {
    const known = this.#heard.get(topic) ?? new Heard();
    this.#heard.set(topic, known);
    return known;
  }

  /** Resolves with true when all of `expected` have been heard; with false when nothing more comes for `patience` ms. */
  async hears(expected: Map<string, number[]>, patience: number): Promise<boolean> {
    for (const [topic, numbers] of expected) {
      const { numbers: heard } = this.of(topic);
      for (const n of numbers) while (!heard.has(n)) if (!(await this.#more(patience))) return false;
    }
    return true;
  }

  #more(patience: number): Promise<boolean> {
    return new Promise((resolve) => {
      // That no more comes shows only by waiting.
      const timer = setTimeout(() => resolve(false), patience);
      this.#heardMore = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  #hear(packet: Packet, link: Link): void {
    const { cmd, messageId = 0 } = packet;
    if (cmd === 'publish') this.#take(packet, link);
    if (cmd === 'pubrel') {
      this.#unreleased.delete(messageId);
      link.send({ cmd: 'pubcomp', messageId });
    }
    this.#heardMore?.();
  }

  #take({ topic, payload, qos, messageId = 0 }: IPublishPacket, link: Link): void {
    const isRepeated = qos === 2 && this.#unreleased.has(messageId);
    if (!isRepeated) this.of(topic).add(this.read(topic, payload.toString()));
    if (qos === 2) this.#unreleased.add(messageId);
    if (qos > 0) link.send({ cmd: qos === 1 ? 'puback' : 'pubrec', messageId });
  }
}
