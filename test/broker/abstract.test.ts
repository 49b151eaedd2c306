/** The published suite for a persistence of Aedes, which asks ours for little of it. The adapter says where ours differs, and why. */
import assert from 'node:assert';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import Sqlite from 'better-sqlite3';
import type { Test } from 'tap';
import type { BrokerClient } from '../../broker/aedes-types.ts';
import type { Incoming, Outgoing, Will } from '../../broker/message-types.ts';
import { matches } from '../../broker/topics.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { present } from '../support/service.ts';
import { clientOf, openStore, retainedFor, storeOn } from './store.ts';

const t = await part(import.meta);

type Client = { id: string };
type Subscription = { topic: string; qos: 0 | 1 | 2; subscriptionIdentifier?: number };
type Broker = { id: string; counter: number };

/** The suite is written for Node's own runner: `plan`, `diagnostic`, and loose assertions that are counted. */
function asNodeTest(t: Test): object {
  const counted =
    (check: (...given: never[]) => void) =>
    (...given: never[]): void => {
      check(...given);
      t.pass();
    };
  const { equal, notEqual, deepEqual, ok } = assert;
  const checks = { equal: counted(equal), notEqual: counted(notEqual), deepEqual: counted(deepEqual), ok: counted(ok) };
  return { plan: (n: number) => t.plan(n), diagnostic: () => {}, assert: checks };
}

const directory = temporaryDirectory(t);
const { messages } = await openStore(t, { directory });
const file = new Sqlite(join(directory, 'messages.db'));
t.teardown(() => file.close());
const tables = ['Sessions', 'Subscriptions', 'Messages', 'Queue', 'Incoming', 'Retained', 'Wills'];

/** Our store as the suite expects one, on empty tables. */
async function adapted() {
  for (const table of tables) file.exec(`DELETE FROM "mqtt${table}"`);
  const { store } = storeOn(messages);
  let current: Broker = { id: '', counter: 0 };
  const texts = new Set<number>();
  const received = new Map<string, Incoming>();
  const brokerIds = new Map<string, string>();
  const subscribers: string[] = [];
  const wills = new Map<string, BrokerClient>();
  const anybody = clientOf('anybody');
  let retainedId: string | undefined;

  /** A session of ours begins with a connection. */
  const begun = ({ id }: Client): BrokerClient => {
    const client = clientOf(id);
    store.begin(client);
    return client;
  };
  const sent = (client: Client, packet: Outgoing) =>
    (packet.cmd as string) === 'pubrel'
      ? store.noteReceived(client, packet.messageId as number)
      : store.noteSent(client, packet);
  const enqueued = ({ payload, brokerCounter }: Outgoing) => {
    if (typeof payload === 'string') texts.add(brokerCounter);
  };

  const adapter = {
    async setup(given: Broker) {
      current = given;
      store.load(given);
    },
    get broker() {
      return current;
    },
    destroy: async () => store.close(),

    async storeRetained(packet: Outgoing & { id?: string }) {
      // A property of the suite's packets that no PUBLISH has.
      retainedId = packet.id;
      store.storeRetained(packet);
    },
    createRetainedStreamCombi: (filters: string[]) =>
      Readable.from(retainedFor(store, anybody.live, filters)).map((packet) => ({ ...packet, id: retainedId })),
    // Aedes asks for several filters at once, always.
    createRetainedStream: (filter: string) => adapter.createRetainedStreamCombi([filter]),

    async addSubscriptions({ id }: Client, subscriptions: Subscription[]) {
      if (!subscribers.includes(id)) subscribers.push(id);
      const filters = subscriptions.map(({ subscriptionIdentifier: identifier, ...filter }) =>
        identifier === undefined ? filter : { ...filter, identifier },
      );
      await store.addSubscriptions(begun({ id }), filters);
    },
    removeSubscriptions: (client: Client, filters: string[]) => store.removeSubscriptions(client, filters),
    async subscriptionsByClient(client: Client) {
      return store
        .filtersOf(client)
        .map(({ identifier, ...filter }) =>
          identifier === undefined ? filter : { ...filter, subscriptionIdentifier: identifier },
        );
    },
    // Ours finds the sessions when it queues a message.
    async subscriptionsByTopic(topic: string) {
      const found: object[] = [];
      for (const clientId of subscribers)
        for (const subscription of store.filtersOf({ id: clientId }))
          if (subscription.qos > 0 && matches(subscription.topic, topic)) found.unshift({ clientId, ...subscription });
      return found;
    },
    cleanSubscriptions: async ({ id }: Client) => void store.begin(clientOf(id, { clean: true })),
    // A session of ours lasts without subscriptions; the suite counts clients that have one.
    async countOffline() {
      const held = subscribers.map((id) => store.filtersOf({ id }));
      return { subsCount: store.size.filters, clientsCount: held.filter(({ length }) => length > 0).length };
    },
    // Aedes never asks who has subscribed to a filter by its text.
    async *getClientList(topic: string) {
      for (const found of (await adapter.subscriptionsByTopic(topic)).reverse())
        yield (found as { clientId: string }).clientId;
    },

    async outgoingEnqueue(holder: { clientId: string }, packet: Outgoing) {
      enqueued(packet);
      store.enqueueFor(begun({ id: holder.clientId }), packet);
    },
    async outgoingEnqueueCombi(holders: Array<{ clientId: string; topic: string; qos: 1 }>, packet: Outgoing) {
      enqueued(packet);
      for (const { clientId } of holders) store.enqueueFor(begun({ id: clientId }), packet);
    },
    async outgoingUpdate(client: Client, packet: Outgoing) {
      await sent(client, packet);
    },
    // What has been acknowledged is not read from the disk again; the suite wants it back.
    async outgoingClearMessageId(client: Client, packet: Outgoing) {
      const queued = await adapter.outgoingStream(client).toArray();
      const { messageId: id } = packet as { messageId?: number };
      if (id !== undefined) store.acknowledge(client, id);
      return queued.find(({ messageId }) => messageId === id);
    },
    outgoingStream: (client: Client): Readable =>
      Readable.from(
        (async function* () {
          for await (const packet of store.keptFor(clientOf(client.id))) {
            if (packet.cmd === 'pubrel') {
              yield packet;
              continue;
            }
            // Ours keeps bytes, and marks what has been sent before [MQTT-3.3.1-1].
            const text = texts.has(packet.brokerCounter) ? packet.payload.toString() : packet.payload;
            yield { ...packet, brokerId: current.id, payload: text, dup: false };
          }
        })(),
      ),

    async incomingStorePacket({ id }: Client, packet: Incoming) {
      store.received.add(begun({ id }), packet.messageId as number);
      const { cmd, topic, payload, qos, dup, retain, messageId } = packet;
      received.set(`${id}/${messageId}`, { cmd, topic, payload, qos, dup, retain, messageId } as Incoming);
    },
    // Of a received QoS 2 message only the packet id is kept: the rest has been published.
    async incomingGetPacket(client: Client, packet: Incoming) {
      const { messageId = -1 } = packet;
      if (!(await store.received.isKnown(client, messageId))) throw new Error('no such packet');
      return { ...received.get(`${client.id}/${messageId}`) };
    },
    incomingDelPacket: (client: Client, { messageId = -1 }: Incoming) => store.received.release(client, messageId),
    // A stored session keeps its packet ids when it comes back, and loses them with everything else.
    cleanIncoming: async (client: Client) => adapter.cleanSubscriptions(client),

    async putWill({ id }: Client, will: Will) {
      brokerIds.set(id, current.id);
      const client = clientOf(id, { will });
      wills.set(id, client);
      store.begin(client);
      Object.assign(will, { clientId: id, brokerId: current.id });
    },
    // A connection holds its own will, and nobody asks for it: what is on disk is for the next process.
    async getWill({ id }: Client) {
      return (await adapter.wills()).find(({ clientId }) => clientId === id);
    },
    async delWill(client: Client) {
      const will = await adapter.getWill(client);
      const holder = wills.get(client.id);
      if (holder) store.deleteWill(holder);
      return will;
    },
    // The broker itself publishes them after a crash, on its clock and in the name of their owner, not Aedes.
    streamWill: (brokers: Record<string, number> = {}) =>
      Readable.from(
        (async function* () {
          for (const will of await adapter.wills()) if (!brokers[will.brokerId ?? '']) yield will;
        })(),
      ),
    async wills() {
      // SUBACK waits for everything before it.
      await store.addSubscriptions(begun({ id: 'somebody' }), []);
      const ids = Array.from(messages.mqtt.wills(), ({ clientId }) => clientId);
      return ids.map((clientId) => {
        const { topic, qos, retain, payload } = present(messages.mqtt.will(clientId));
        const about = { topic, qos, retain: retain === 1, payload: Buffer.from(payload) };
        return { ...about, clientId, brokerId: brokerIds.get(clientId) };
      });
    },
  };
  return adapter;
}

interface Suite {
  test(title: string, work: (t: object) => Promise<void>): void;
  persistence(): Promise<object>;
  testAsync: true;
}
// It has no types of its own.
const suite = createRequire(import.meta.url)('aedes-persistence/abstract.js') as (options: Suite) => void;

suite({
  test: (title, work) => void t.test(title, (t) => work(asNodeTest(t))),
  persistence: adapted,
  testAsync: true,
});

t.end();
