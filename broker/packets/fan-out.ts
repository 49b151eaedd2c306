import type { Lane } from '../../src/core/scheduler/lanes.ts';
import type { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import type { Outgoing } from '../message-types.ts';
import { AccountFilters } from '../sessions/account-filters.ts';

/** As the account of receivers that hear the messages of all accounts: they are the service's own. */
const everyAccount = '';

/**
 * `accountId` is that of a client or a group; `wants` that of a receiver that has subscribed to more than it wants, where
 * `publisher` is a client id.
 */
export type Receive = ((packet: Outgoing, received: () => void) => void) & {
  accountId?: string;
  wants?(topic: string, publisher: string | undefined): boolean;
};
type HandedOn = (error?: Error) => void;

export interface FanOutParts {
  scheduler: Scheduler;
  /** The account whose receivers a message on `topic` has. */
  accountOf(topic: string): string;
  /** Told of what a receiver has thrown. */
  failed(error: unknown): void;
}

/** A message that could not be handed on to all at once. */
interface Waiting {
  packet: Outgoing;
  receivers: readonly Receive[];
  /** The next receiver. */
  at: number;
  received: () => void;
}

/**
 * Hands each message on to its subscribers. At once as long as the turn of the event loop has time, else in turns of
 * accounts. Receivers decide when a message comes to them, so one that has waited is delivered under the rights of then.
 */
export class FanOut {
  readonly #parts: FanOutParts;
  readonly #filters = new AccountFilters<Receive>();
  /** Messages that wait. */
  #count = 0;
  /** Not in use. */
  readonly #countdowns: Countdown[] = [];
  readonly #release = (countdown: Countdown) => this.#countdowns.push(countdown);
  isClosed = false;

  constructor(parts: FanOutParts) {
    this.#parts = parts;
  }

  /** Messages that have not been handed on to all. */
  get waiting(): number {
    return this.#count;
  }

  subscribe(filter: string, receive: Receive): void {
    this.#filters.add(receive.accountId ?? everyAccount, filter, receive);
  }

  unsubscribe(filter: string, receive: Receive): void {
    this.#filters.delete(receive.accountId ?? everyAccount, filter, receive);
  }

  /** Those who have subscribed to a filter that matches `topic`. */
  receiversOf(topic: string): readonly Receive[] {
    const all = this.#filters.match(everyAccount, topic);
    const accountId = this.#parts.accountOf(topic);
    if (accountId === everyAccount) return all;
    const own = this.#filters.match(accountId, topic);
    return all.length === 0 ? own : [...all, ...own];
  }

  /** How many want a message on `topic`. */
  countReceivers(topic: string, publisher: string | undefined): number {
    let count = 0;
    for (const receive of this.receiversOf(topic)) if (receive.wants?.(topic, publisher) ?? true) count += 1;
    return count;
  }

  /** `done` is called when all receivers have said that they have it. */
  emit(packet: Outgoing, done: HandedOn): void {
    const receivers = this.receiversOf(packet.topic);
    if (this.isClosed || receivers.length === 0) {
      if (this.isClosed) done(new Error('the broker is closed'));
      else done();
      return;
    }
    const { received } = (this.#countdowns.pop() ?? new Countdown(this.#release)).begin(receivers.length, done);
    const { scheduler } = this.#parts;
    let at = 0;
    if (this.#count === 0 || !scheduler.hasWaiting(this.#laneOf(packet.topic)))
      for (; at < receivers.length && !scheduler.isOver; at += 1) {
        scheduler.spend(1);
        (receivers[at] as Receive)(packet, received);
      }
    if (at < receivers.length) {
      this.#count += 1;
      this.#wait({ packet, receivers, at, received }, this.#laneOf(packet.topic));
    }
  }

  close(): void {
    this.isClosed = true;
  }

  #wait(message: Waiting, lane: Lane, place: 'last' | 'first' = 'last'): void {
    this.#parts.scheduler.wait(lane, () => this.#goOn(message, lane), 1, place);
  }

  /** Hands on a message that has waited, as far as its account may go on now. */
  #goOn(message: Waiting, lane: Lane): void {
    const { scheduler, failed } = this.#parts;
    const { packet, receivers, received } = message;
    while (message.at < receivers.length) {
      if (scheduler.isOver) {
        this.#wait(message, lane, 'first');
        return;
      }
      const receive = receivers[message.at] as Receive;
      message.at += 1;
      scheduler.spend(1);
      try {
        receive(packet, received);
      } catch (error) {
        failed(error);
      }
    }
    this.#count -= 1;
  }

  #laneOf(topic: string): Lane {
    return { accountId: this.#parts.accountOf(topic), callerId: '' };
  }
}

/** Calls back when it has been called so many times. It is used again and again: messages are many. */
class Countdown {
  readonly received: () => void;
  #left = 0;
  #done: HandedOn | undefined;

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

  begin(count: number, done: HandedOn): this {
    this.#left = count;
    this.#done = done;
    return this;
  }
}
