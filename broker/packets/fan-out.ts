import type { AedesPublishPacket } from 'aedes';
import { FilterTree } from '../sessions/filter-tree.ts';
import type { Pace, Work } from './pace.ts';

/** Receivers that are known by topic, and topics; beyond it all are looked up again. */
const maxKnown = 20_000;

type Receive = (packet: AedesPublishPacket, received: () => void) => void;
type Done = (error?: Error) => void;

export interface FanOutParts {
  pace: Pace;
  /** The account whose receivers a message on `topic` has. */
  accountOf(topic: string): string;
  /** Told of what a receiver has thrown. */
  failed(error: unknown): void;
}

/** A message that could not be handed on to all at once. */
interface Waiting {
  packet: AedesPublishPacket;
  receivers: readonly Receive[];
  /** The next receiver. */
  at: number;
  received: () => void;
}

/**
 * Hands each message on to those who have subscribed to it; Aedes' `mq`. At once as long as the turn of the event loop has
 * time, else in parts, when it is the turn of the account. Messages of one account keep their order. Receivers decide when a
 * message comes to them, so one that has waited is delivered under the rights of then.
 */
export class FanOut {
  readonly #parts: FanOutParts;
  readonly #filters = new FilterTree<Receive>();
  /** Receivers by topic, as long as no subscription changes. */
  readonly #known = new Map<string, readonly Receive[]>();
  #knownSize = 0;
  readonly #waiting = new Map<string, AccountQueue>();
  #count = 0;
  /** Not in use. */
  readonly #countdowns: Countdown[] = [];
  readonly #release = (countdown: Countdown) => this.#countdowns.push(countdown);
  #changed: Done[] = [];
  #isClosed = false;

  constructor(parts: FanOutParts) {
    this.#parts = parts;
  }

  /** Messages that have not been handed on to all. */
  get waiting(): number {
    return this.#count;
  }

  on(filter: string, receive: Receive, done?: Done): this {
    this.#filters.set(filter, receive, 0);
    this.#forget();
    this.#after(done);
    return this;
  }

  removeListener(filter: string, receive: Receive, done?: Done): this {
    this.#filters.delete(filter, receive);
    this.#forget();
    this.#after(done);
    return this;
  }

  /** Those who have subscribed to a filter that matches `topic`. */
  receiversOf(topic: string): readonly Receive[] {
    const known = this.#known.get(topic);
    if (known) return known;
    const receivers = [...this.#filters.match(topic).keys()];
    if (this.#knownSize > maxKnown) this.#forget();
    this.#knownSize += 1 + receivers.length;
    this.#known.set(topic, receivers);
    return receivers;
  }

  /** `done` is called when all receivers have said that they have it. */
  emit(packet: AedesPublishPacket, done: Done = () => {}): this {
    const receivers = this.receiversOf(packet.topic);
    if (this.#isClosed || receivers.length === 0) {
      if (this.#isClosed) done(new Error('the broker is closed'));
      else done();
      return this;
    }
    const { received } = (this.#countdowns.pop() ?? new Countdown(this.#release)).begin(receivers.length, done);
    const { pace, accountOf } = this.#parts;
    if (pace.isOver || (this.#waiting.size > 0 && this.#waiting.has(accountOf(packet.topic)))) {
      this.#wait({ packet, receivers, at: 0, received });
      return this;
    }
    for (let at = 0; at < receivers.length; at += 1) {
      if (pace.isOver) {
        this.#wait({ packet, receivers, at, received });
        return this;
      }
      pace.spend(1);
      (receivers[at] as Receive)(packet, received);
    }
    return this;
  }

  close(done: Done): this {
    this.#isClosed = true;
    setImmediate(done);
    return this;
  }

  #wait(waiting: Waiting): void {
    const accountId = this.#parts.accountOf(waiting.packet.topic);
    let queue = this.#waiting.get(accountId);
    if (!queue) {
      const ended = () => this.#waiting.delete(accountId);
      queue = new AccountQueue(this.#parts, { handedOn: () => this.#handedOn(), ended });
      this.#waiting.set(accountId, queue);
      this.#parts.pace.wait(accountId, queue);
    }
    this.#count += 1;
    queue.add(waiting);
  }

  #handedOn(): void {
    this.#count -= 1;
  }

  #forget(): void {
    if (this.#knownSize === 0) return;
    this.#known.clear();
    this.#knownSize = 0;
  }

  /** A SUBSCRIBE has many filters: all that change in one turn are told of together. */
  #after(done: Done | undefined): void {
    if (!done) return;
    if (this.#changed.length === 0)
      setImmediate(() => {
        const changed = this.#changed;
        this.#changed = [];
        for (const tell of changed) tell();
      });
    this.#changed.push(done);
  }
}

/** The messages of an account that wait, oldest first. */
class AccountQueue implements Work {
  readonly #parts: FanOutParts;
  readonly #told: { handedOn(): void; ended(): void };
  readonly #messages = new Set<Waiting>();

  constructor(parts: FanOutParts, told: { handedOn(): void; ended(): void }) {
    this.#parts = parts;
    this.#told = told;
  }

  add(waiting: Waiting): void {
    this.#messages.add(waiting);
  }

  goOn(): boolean {
    for (const message of this.#messages) {
      if (!this.#handOn(message)) return false;
      this.#messages.delete(message);
      this.#told.handedOn();
    }
    this.#told.ended();
    return true;
  }

  /** Whether all have it. */
  #handOn(message: Waiting): boolean {
    const { pace, failed } = this.#parts;
    const { packet, receivers, received } = message;
    while (message.at < receivers.length) {
      if (pace.isOver) return false;
      const receive = receivers[message.at] as Receive;
      message.at += 1;
      pace.spend(1);
      try {
        receive(packet, received);
      } catch (error) {
        failed(error);
      }
    }
    return true;
  }
}

/** Calls back when it has been called so many times. It is used again and again: messages are many. */
class Countdown {
  readonly received: () => void;
  #left = 0;
  #done: Done | undefined;

  constructor(release: (countdown: Countdown) => void) {
    this.received = () => {
      this.#left -= 1;
      if (this.#left !== 0) return;
      const done = this.#done;
      this.#done = undefined;
      release(this);
      done?.();
    };
  }

  begin(count: number, done: Done): this {
    this.#left = count;
    this.#done = done;
    return this;
  }
}
