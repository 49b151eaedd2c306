/** What a target says of one device's messages delays that device alone, at every kind of target and at both levels. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { kafkaCluster, withKafkaCluster } from '../support/kafka-cluster.ts';
import { mosquitto, withMosquitto } from '../support/mosquitto.ts';
import { makeStream, natsServer, readStream, withNats } from '../support/nats-server.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { type Receiver, startReceiver, textOf } from './receiver.ts';

const t = await part(import.meta);

/** The clock stands still but for what a test adds, so that a pause of the bridge is a pause of the test. */
let now = Date.now();
/** Milliseconds that others may have to wait. */
const maxDelay = 2000;
const env = {
  SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
  SLIPWAY_BRIDGE_TIMEOUT_SECONDS: '2',
  SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
};

/** A target that refuses what comes on the channels `bad1` and `bad2`, and the texts that it has of the others. */
interface Refusing {
  body: object;
  has(): Promise<string[]> | string[];
  mend?(): Promise<void>;
}

const targets: Record<string, { options: object; start(t: Test): Promise<Refusing> }> = {
  webhook: {
    options: {},
    start: async (t) => {
      const receiver = await startReceiver(t);
      receiver.behave = ({ messages }) => (messages.some(({ channel }) => channel.startsWith('bad')) ? 422 : 200);
      return { body: { kind: 'webhook', url: receiver.url }, has: () => receiver.messages.map(textOf) };
    },
  },
  nats: { options: withNats, start: (t) => startNats(t) },
  'nats that permits less': {
    options: withNats,
    start: async (t) => {
      const own = ['good1', 'good2'].map((name) => `"slipway.*.d.*.${name}"`).join(', ');
      const may = `permissions { publish: ["$JS.>", ${own}], subscribe: ">" }`;
      const users = `users: [{ user: all, password: all }, { user: me, password: pass, ${may} }]`;
      const { body, has } = await startNats(t, [`authorization { ${users} }`, 'no_auth_user: all'], ['slipway.>']);
      return { body: { ...body, credentials: { username: 'me', password: 'pass' } }, has };
    },
  },
  mqtt: {
    options: withMosquitto,
    start: async (t) => {
      const access = ['topic read #', 'topic write slipway/v1/+/d/+/good1', 'topic write slipway/v1/+/d/+/good2'];
      const broker = await mosquitto(temporaryDirectory(t), 'me', 'pass', { access });
      t.teardown(() => broker.stop());
      await broker.start();
      const credentials = { username: 'me', password: 'pass' };
      const got: string[] = [];
      const reader = await mqtt.connectAsync(broker.url, { ...credentials, reconnectPeriod: 0 });
      t.teardown(() => reader.end(true));
      reader.on('message', (_topic, payload) => got.push(payload.toString()));
      await reader.subscribeAsync('#', { qos: 1 });
      return { body: { kind: 'mqtt', url: broker.url, form: 'raw', credentials }, has: () => got };
    },
  },
  kinesis: {
    options: {},
    start: async (t) => {
      const { url, got } = await startKinesis(t);
      const settings = { stream: 'messages', region: 'eu-west-1' };
      const credentials = { accessKeyId: 'a', secretAccessKey: 'b' };
      return { body: { kind: 'kinesis', url, settings, credentials }, has: () => got };
    },
  },
  kafka: {
    options: withKafkaCluster,
    start: async (t) => {
      const cluster = await kafkaCluster(t, 2);
      for (const topic of ['good1', 'good2']) await cluster.tell('topic', topic, 4);
      for (const [topic, fault] of [
        ['bad1', 29],
        ['bad2', 3],
      ] as const)
        await cluster.tell('fault', topic, fault);
      const has = async () => Array<string>((await cluster.count('good1', 4)) + (await cluster.count('good2', 4)));
      return { body: { kind: 'kafka', url: cluster.url, form: 'raw', settings: { topic: '{channel}' } }, has };
    },
  },
};

/** A server of NATS; a stream takes these subjects. */
async function startNats(
  t: Test,
  lines: string[] = [],
  subjects = ['slipway.*.d.*.good1', 'slipway.*.d.*.good2'],
): Promise<Refusing> {
  const nats = await natsServer(temporaryDirectory(t), lines);
  t.teardown(() => nats.stop());
  await nats.start();
  await makeStream(nats.servers, { subjects });
  const has = async () => (await readStream(nats.servers)).map(({ data }) => data.toString());
  return { body: { kind: 'nats', url: nats.url, form: 'raw' }, has };
}

/** An endpoint of Kinesis that refuses the records of the channels `bad1` and `bad2`. */
async function startKinesis(t: Test) {
  const got: string[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { Records } = JSON.parse(Buffer.concat(chunks).toString());
    const messages = Records.map(({ Data }: { Data: string }) => JSON.parse(Buffer.from(Data, 'base64').toString()));
    const answers = messages.map((message: Receiver['messages'][0]) => {
      if (message.channel.startsWith('bad')) return { ErrorCode: 'ProvisionedThroughputExceededException' };
      got.push(textOf(message));
      return { SequenceNumber: String(got.length), ShardId: 'shardId-000000000000' };
    });
    const FailedRecordCount = answers.filter((answer: object) => 'ErrorCode' in answer).length;
    response.writeHead(200, { 'content-type': 'application/x-amz-json-1.1' });
    response.end(JSON.stringify({ FailedRecordCount, Records: answers }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return { got, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

async function speakerOf(service: Service, deviceTemplateId: string) {
  const { device, secret } = await service.device({ deviceTemplateId });
  const client = await service.connect({ deviceId: device.id, secret });
  return (channel: string, text: string) => client.publishAsync(service.topic(device.id, channel), text, { qos: 1 });
}

for (const [kind, { options, start }] of Object.entries(targets))
  t.test(`${kind}: 5, 600 and 5,000 refused messages of a device delay no other`, options, async (t) => {
    const service = await startService(t, { env, clock: { now: () => now } });
    const channels = [1, 2].flatMap((level) => [
      { name: `bad${level}`, streamBridgeDelivery: level },
      { name: `good${level}`, streamBridgeDelivery: level },
    ]);
    const { id } = await service.template({ channels });
    const target = await start(t);
    const bridge = await service.create('/bridges', 'bridge', { name: kind, ...target.body });
    const status = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge.status;
    let expected = 0;
    for (const count of [5, 600, 5000]) {
      const [bad, good] = [await speakerOf(service, id), await speakerOf(service, id)];
      for (const level of [1, 2]) {
        await Promise.all(Array.from({ length: count }, (_, index) => bad(`bad${level}`, `bad ${index}`)));
        const texts = Array.from({ length: 20 }, (_, index) => `${count} ${level} ${index}`);
        for (const text of texts) await good(`good${level}`, text);
        expected += texts.length;
        const began = now;
        await until(
          async () => {
            const arrived = (await target.has()).length;
            if (arrived < expected && now - began < maxDelay) now += 200;
            return { arrived, now };
          },
          ({ arrived }) => arrived >= expected,
        );
        t.ok(now - began <= maxDelay, `${count} at level ${level}: ${now - began} ms`);
        const all = await target.has();
        t.equal(all.length, expected, 'each once');
        if (kind !== 'kafka') t.strictSame(all.slice(-texts.length), texts, 'in order');
      }
    }
    t.ok((await status()).lastFailureReason);
  });

/** A receiver that resets the connection of a body that is larger than it likes, as some proxies do. */
async function startResetting(t: Test, most: number) {
  const receiver = await startReceiver(t);
  const server = createTcpServer((socket: Socket) => {
    let bytes = 0;
    const chunks: Buffer[] = [];
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > most) return socket.resetAndDestroy();
      const all = Buffer.concat(chunks).toString();
      const [head = '', body = ''] = all.split('\r\n\r\n', 2);
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      if (body.length < length) return;
      receiver.messages.push(...JSON.parse(body).messages);
      [bytes, chunks.length] = [0, 0];
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return { receiver, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

t.test('a webhook that resets connections with large bodies gets smaller ones', async (t) => {
  const service = await startService(t, { env, clock: { now: () => now } });
  const { id } = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const { receiver, url } = await startResetting(t, 100_000);
  const body = { name: 'Resets', kind: 'webhook', url: 'http://127.0.0.1:9/' };
  const bridge = await service.create('/bridges', 'bridge', body);
  const say = await speakerOf(service, id);
  const texts = Array.from({ length: 100 }, (_, index) => `${index} ${'x'.repeat(5000)}`);
  await Promise.all(texts.map((text) => say('sure', text)));
  const change = { headers: { etag: bridge.version }, body: { url } };
  await service.ok('PUT', `/api/v1/bridges/${bridge.id}`, change);
  await until(() => {
    now += 200;
    return receiver.messages.length >= texts.length;
  });
  t.strictSame(receiver.messages.map(textOf), texts);
});

t.test(
  'with one of two Kafka brokers down the other gets its records, each once; the rest comes when it is back',
  withKafkaCluster,
  async (t) => {
    const service = await startService(t, { env, clock: { now: () => now } });
    const { id } = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
    const cluster = await kafkaCluster(t, 2);
    await cluster.tell('topic', 'all', 2);
    await cluster.tell('leader', 'all', 0, 1);
    await cluster.tell('leader', 'all', 1, 2);
    const bridge = await service.create('/bridges', 'bridge', {
      name: 'Two brokers',
      kind: 'kafka',
      url: cluster.url,
      settings: { topic: 'all' },
    });
    const pending = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge.status.pending;
    // Their ids decide on partitions: so many are never all in one.
    const count = 30;
    const speakers = await Promise.all(Array.from({ length: count }, () => speakerOf(service, id)));
    await Promise.all(speakers.map((say) => say('sure', 'before')));
    await until(async () => (await pending()) === 0);
    t.equal(await cluster.count('all', 2), count);
    await cluster.tell('down', 2);
    await Promise.all(speakers.map((say) => say('sure', 'while it is down')));
    await until(async () => {
      now += 500;
      return (await pending()) < count;
    });
    const failures = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge.status.lastFailure;
    for (let tries = 0; tries < 4; tries += 1) {
      const before = await failures();
      await until(async () => {
        now += 5000;
        return (await failures()) !== before;
      });
    }
    t.ok((await pending()) > 0 && (await pending()) < count, 'one broker has its own');
    await cluster.tell('up', 2);
    await until(async () => {
      now += 5000;
      return (await pending()) === 0;
    });
    t.equal(await cluster.count('all', 2), 2 * count, 'nothing twice');
  },
);

t.test(
  'a record that Kafka never takes is a dead letter, and those of its partition pass it',
  withKafkaCluster,
  async (t) => {
    const service = await startService(t, { env, clock: { now: () => now } });
    const { id } = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
    const cluster = await kafkaCluster(t, 1);
    await cluster.tell('topic', 'all', 1);
    const settings = { topic: 'all' };
    const bridge = await service.create('/bridges', 'bridge', {
      name: 'Never',
      kind: 'kafka',
      url: cluster.url,
      settings,
    });
    const [bad, good] = [await speakerOf(service, id), await speakerOf(service, id)];
    const status = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge.status;
    const produce = 0;
    const invalidRecord = 87;
    await cluster.tell('errors', produce, invalidRecord, 1);
    await bad('sure', 'never taken');
    await until(async () => (await status()).deadLetters === 1);
    for (let index = 0; index < 20; index += 1) await good('sure', `good ${index}`);
    await until(async () => (await status()).pending === 0);
    t.match(await status(), { deadLetters: 1, lastFailureReason: 'INVALID_RECORD' });
    t.equal(await cluster.count('all', 1), 20);
  },
);

t.end();
