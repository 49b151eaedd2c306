/** A session store on a message store of its own, without a broker. */
import assert from 'node:assert';
import type { Test } from 'tap';
import type { BrokerClient, LiveClient } from '../../broker/client-types.ts';
import { type Counters, newCounters } from '../../broker/connections/counters.ts';
import { MessageNumbers } from '../../broker/message-numbers.ts';
import type { Outgoing } from '../../broker/message-types.ts';
import { FanOut } from '../../broker/packets/fan-out.ts';
import { PacketIds } from '../../broker/sessions/packet-ids.ts';
import { SessionStore } from '../../broker/sessions/persistence.ts';
import type { PersistenceRules } from '../../broker/sessions/persistence-rules.ts';
import { MessageStore } from '../../db/messages/store.ts';
import { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import { slices } from '../../src/core/scheduler/time-slice.ts';
import { temporaryDirectory } from '../support/directory.ts';

export interface OpenStore {
  store: SessionStore;
  messages: MessageStore;
  counters: Counters;
  directory: string;
  /** Ends it as a process does that is asked to end. */
  close(): Promise<void>;
}

/** Milliseconds since 1970. */
export const clock = { now: () => 1_700_000_000_000 };
const unlimited = {
  maxFilterBytes: 0,
  maxWillBytes: 0,
  maxQueueBytes: 0,
  maxSessions: 0,
  maxUnreleased: 0,
  retainedRoom: { count: 0, bytes: 0 },
};
const rules: PersistenceRules = {
  deviceOf: (topic) => topic,
  accountOf: () => 'a',
  receivingAccountOf: () => 'a',
  mayHear: () => true,
  mayStand: () => true,
  reachOf: () => ({ prefix: '', mayHear: () => true, isOver: () => false }),
  mayQueue: () => true,
  hasOwner: () => true,
  isAway: () => false,
  mayBeRetained: () => true,
};

export interface StoreOptions {
  directory?: string;
  maxQueue?: number;
  mayStand?: PersistenceRules['mayStand'];
}

export async function openStore(
  t: Test,
  { directory = temporaryDirectory(t), maxQueue = 0, mayStand = rules.mayStand }: StoreOptions = {},
): Promise<OpenStore> {
  const messages = await MessageStore.open(directory, { log: { error: () => {} } });
  const counters = newCounters();
  const log = { error: (details: object) => assert.fail(JSON.stringify(details)) };
  const scheduler = new Scheduler({ slice: slices.packets });
  const fanOut = new FanOut({ scheduler, accountOf: () => 'a', failed: assert.fail });
  const messageNumbers = new MessageNumbers();
  const own = { messages, clock, ages: clock, log, counters, fanOut, messageNumbers, scheduler };
  const store = new SessionStore({ ...own, maxQueue, sessionExpiry: 0, ...unlimited }, { ...rules, mayStand });
  const close = async () => {
    store.close();
    await messages.close();
  };
  t.teardown(close);
  return { store, messages, counters, directory, close };
}

/** A connection as far as the store looks at it. */
export function clientOf(id: string, more: Partial<BrokerClient> = {}): BrokerClient {
  const { clean = false } = more;
  const of = { id, clean, cleanStart: clean, sessionExpiry: clean ? 0 : Number.POSITIVE_INFINITY };
  return {
    ...of,
    receiveMaximum: Number.POSITIVE_INFINITY,
    closed: false,
    live: { ids: new PacketIds() },
    ...more,
  } as BrokerClient;
}

/** What a client that subscribes to these filters finds. */
export async function* retainedFor(store: SessionStore, live: LiveClient, filters: string[]): AsyncIterable<Outgoing> {
  const found: Outgoing[] = [];
  const search = store.searchRetained(live, filters, (packet) => {
    found.push(packet);
    return { length: packet.payload.length, qos: packet.qos, delivered: Promise.resolve() };
  });
  for await (const _ of store.sendRetained(search)) yield* found.splice(0);
  search.close();
}
