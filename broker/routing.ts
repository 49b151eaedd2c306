/**
 * The one place that knows Aedes. Its `publish` takes a message that has been decided through three steps, in this order and
 * without a pause: our store keeps it, if it is retained; our store puts it into the queues of stored sessions, if its QoS is 1
 * or 2; the fan-out hands it to those who have subscribed, and says when all have it.
 *
 * That is all that Aedes does here. It never listens: it reads and writes no packet, knows no client, publishes no will and
 * says nothing on `$SYS`. It copies the message, with its number and `brokerId`. docs/aedes.md says what it would do by itself.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Aedes } from 'aedes';
import type { MessageNumbers } from './message-numbers.ts';
import { forAll, type Incoming, type Outgoing } from './message-types.ts';
import type { FanOut } from './packets/fan-out.ts';
import type { SessionStore } from './sessions/persistence.ts';

export class Routing {
  readonly #aedes: Aedes;
  readonly #fanOut: FanOut;
  readonly #numbers: MessageNumbers;

  constructor(store: Pick<SessionStore, 'storeRetained' | 'enqueue'>, fanOut: FanOut, numbers: MessageNumbers) {
    this.#fanOut = fanOut;
    this.#numbers = numbers;
    const persistence = {
      storeRetained: (packet: Outgoing) => answered(store.storeRetained(packet)),
      // Who gets it is looked up when it is queued.
      subscriptionsByTopic: () => answered([]),
      outgoingEnqueueCombi: (_: unknown, packet: Outgoing) => answered(store.enqueue(packet)),
    };
    const mq = { emit: (packet: Outgoing, done: (error?: Error) => void) => fanOut.emit(packet, done) };
    this.#aedes = Object.assign(new Aedes({ mq }), { persistence });
  }

  /** Hands a message on to its subscribers; `done` when all have it, or with an error when the broker is closed. */
  publish(packet: Incoming, done: (error?: Error) => void): void {
    packet.brokerId = forAll;
    packet.brokerCounter = this.#numbers.next();
    this.#aedes.publish(packet as Parameters<Aedes['publish']>[0], done);
  }

  get isClosed(): boolean {
    return this.#fanOut.isClosed;
  }

  /** Nothing is handed on any more; resolves when what was under way in this turn of the event loop has ended. */
  async close(): Promise<void> {
    this.#fanOut.close();
    await nextTurn();
  }
}

/** Aedes calls `then`. Called back in a later microtask, a message would be overtaken by one that Aedes need not ask for. */
function answered<T>(value: T): object {
  // biome-ignore lint/suspicious/noThenProperty: being a promise is its purpose
  return { then: (use: (value: T) => void) => use(value) };
}
