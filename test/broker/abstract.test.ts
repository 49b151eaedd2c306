/** The published suite for what Aedes asks of a persistence. The adapter says where ours differs, and why. */
import assert from 'node:assert';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import Sqlite from 'better-sqlite3';
import type { Test } from 'tap';
import type { BrokerClient, Incoming, Outgoing, Will } from '../../broker/aedes-types.ts';
import { matches } from '../../broker/topics.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { clientOf, openStore, storeOn } from './store.ts';

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
  const identifiers = new Map<string, number>();
  const texts = new Set<number>();
  const received = new Map<string, Incoming>();
  const brokerIds = new Map<string, string>();
  const subscribers: string[] = [];
  let retainedId: string | undefined;

  /** A session of ours begins with a connection. */
  const begun = ({ id }: Client): BrokerClient => {
    const client = clientOf(id);
    store.begin(client);
    return client;
  };
  const enqueued = ({ payload, brokerCounter }: Outgoing) => {
    if (typeof payload === 'string') texts.add(brokerCounter);
  };

  const adapter = {
    async setup(given: Broker) {
      current = given;
      await store.setup(given);
    },
    get broker() {
      return current;
    },
    destroy: () => store.destroy(),

    async storeRetained(packet: Outgoing & { id?: string }) {
      // A property of the suite's packets that no PUBLISH has.
      retainedId = packet.id;
      await store.storeRetained(packet);
    },
    createRetainedStreamCombi: (filters: string[]) =>
      store.createRetainedStreamCombi(filters).map((packet) => ({ ...packet, id: retainedId })),
    // Aedes asks for several filters at once, always.
    createRetainedStream: (filter: string) => adapter.createRetainedStreamCombi([filter]),

    async addSubscriptions({ id }: Client, subscriptions: Subscription[]) {
      if (!subscribers.includes(id)) subscribers.push(id);
      for (const { topic, subscriptionIdentifier } of subscriptions)
        if (subscriptionIdentifier !== undefined) identifiers.set(topic, subscriptionIdentifier);
      await store.addSubscriptions(begun({ id }), subscriptions);
    },
    removeSubscriptions: (client: Client, filters: string[]) => store.removeSubscriptions(client, filters),
    // Subscription identifiers are of MQTT 5, which is refused.
    async subscriptionsByClient(client: Client) {
      const subscriptions = await store.subscriptionsByClient(client);
      return subscriptions.map((subscription) => {
        const subscriptionIdentifier = identifiers.get(subscription.topic);
        return subscriptionIdentifier === undefined ? subscription : { ...subscription, subscriptionIdentifier };
      });
    },
    // Aedes looks at the client ids only, so ours names each client once.
    async subscriptionsByTopic(topic: string) {
      const found: object[] = [];
      for (const { clientId } of await store.subscriptionsByTopic(topic))
        for (const subscription of await store.subscriptionsByClient({ id: clientId }))
          if (subscription.qos > 0 && matches(subscription.topic, topic)) found.unshift({ clientId, ...subscription });
      return found;
    },
    cleanSubscriptions: (client: Client) => store.cleanSubscriptions(client),
    // A session of ours lasts without subscriptions; the suite counts clients that have one.
    async countOffline() {
      const held = await Promise.all(subscribers.map((id) => store.subscriptionsByClient({ id })));
      return { subsCount: store.size.filters, clientsCount: held.filter(({ length }) => length > 0).length };
    },
    // Aedes never asks who has subscribed to a filter by its text.
    async *getClientList(topic: string) {
      for (const { clientId } of await store.subscriptionsByTopic(topic)) yield clientId;
    },

    async outgoingEnqueue(holder: { clientId: string }, packet: Outgoing) {
      begun({ id: holder.clientId });
      enqueued(packet);
      await store.outgoingEnqueue(holder, packet);
    },
    async outgoingEnqueueCombi(holders: Array<{ clientId: string; topic: string; qos: 1 }>, packet: Outgoing) {
      for (const { clientId } of holders) begun({ id: clientId });
      enqueued(packet);
      await store.outgoingEnqueueCombi(holders, packet);
    },
    async outgoingUpdate(client: Client, packet: Outgoing) {
      await store.outgoingUpdate(client, packet);
    },
    // What has been acknowledged is not read from the disk again; the suite wants it back.
    async outgoingClearMessageId(client: Client, packet: Outgoing) {
      const queued = await adapter.outgoingStream(client).toArray();
      const cleared = await store.outgoingClearMessageId(client, packet);
      return cleared && queued.find(({ messageId }) => messageId === cleared.messageId);
    },
    outgoingStream: (client: Client): Readable =>
      Readable.from(
        (async function* () {
          for await (const packet of store.outgoingStream(clientOf(client.id))) {
            const { brokerCounter, messageId, payload } = packet;
            if (packet.cmd === 'pubrel') yield packet;
            else {
              // Ours keeps bytes, and marks what has been sent before [MQTT-3.3.1-1].
              const text = texts.has(brokerCounter) ? payload.toString() : payload;
              yield { ...packet, brokerId: current.id, payload: text, dup: false };
            }
            // The stream goes on until what it has given is on its way, so that nothing overtakes the queue.
            await store.outgoingUpdate(client, { ...packet, messageId });
          }
        })(),
      ),

    async incomingStorePacket({ id }: Client, packet: Incoming) {
      await store.incomingStorePacket(begun({ id }), packet);
      const { cmd, topic, payload, qos, dup, retain, messageId } = packet;
      received.set(`${id}/${messageId}`, { cmd, topic, payload, qos, dup, retain, messageId } as Incoming);
    },
    // Of a received QoS 2 message only the packet id is kept: the rest has been published.
    async incomingGetPacket(client: Client, packet: Incoming) {
      const { messageId } = await store.incomingGetPacket(client, packet);
      return { ...received.get(`${client.id}/${messageId}`) };
    },
    incomingDelPacket: (client: Client, packet: Incoming) => store.incomingDelPacket(client, packet),
    // A stored session keeps its packet ids when it comes back, and loses them with everything else.
    cleanIncoming: (client: Client) => store.cleanSubscriptions(client),

    async putWill({ id }: Client, will: Will) {
      brokerIds.set(id, current.id);
      await store.putWill(clientOf(id), will);
      Object.assign(will, { clientId: id, brokerId: current.id });
    },
    // A connection holds its own will, and nobody asks for it: what is on disk is for the next process.
    async getWill({ id }: Client) {
      return (await adapter.wills()).find(({ clientId }) => clientId === id);
    },
    async delWill(client: Client) {
      const will = await adapter.getWill(client);
      await store.delWill(client);
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
      return messages.mqtt.wills().map(({ clientId, topic, qos, retain, payload }) => {
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
