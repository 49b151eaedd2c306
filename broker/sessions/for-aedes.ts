import type { BrokerCore } from '../aedes-types.ts';
import type { Outgoing } from '../message-types.ts';
import type { SessionStore } from './persistence.ts';

/** What Aedes asks of a persistence when it starts and while it routes a message. */
export function persistenceForAedes(store: SessionStore): object {
  return {
    async setup(broker: Pick<BrokerCore, 'counter'>) {
      store.load(broker);
    },
    storeRetained: (packet: Outgoing) => answered(store.storeRetained(packet)),
    // Who gets it is looked up when it is queued.
    subscriptionsByTopic: () => answered([]),
    outgoingEnqueueCombi: (_: unknown, packet: Outgoing) => answered(store.enqueue(packet)),
    // Aedes would publish the wills of dead processes after four minutes, without asking whose they are.
    streamWill: () => [],
  };
}

/**
 * A promise that calls back at once, not in a later microtask. Aedes counts a message, then waits for the persistence, then
 * hands it on; a message that arrives in between would overtake the earlier one.
 */
function answered<T>(value: T): Pick<PromiseLike<T>, never> {
  // biome-ignore lint/suspicious/noThenProperty: being a promise is its purpose
  return { then: (use: (value: T) => void) => use(value) };
}
