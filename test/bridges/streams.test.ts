/** Bridges to real servers: NATS JetStream, an MQTT broker, and a Kinesis server from npm. */
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer, type Server } from 'node:net';
import {
  CreateStreamCommand,
  DescribeStreamCommand,
  GetRecordsCommand,
  GetShardIteratorCommand,
  KinesisClient,
} from '@aws-sdk/client-kinesis';
import { NodeHttpHandler } from '@smithy/node-http-handler';
import { Aedes } from 'aedes';
import mqtt from 'mqtt';
import mqttPacket, { type Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { freePort } from '../support/free-port.ts';
import { mosquitto, withMosquitto } from '../support/mosquitto.ts';
import { makeStream, type NatsServer, natsServer, readStream, withNats } from '../support/nats-server.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
let templateId: string;
t.before(async () => {
  const env = {
    SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
    SLIPWAY_BRIDGE_TIMEOUT_SECONDS: '2',
    SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
  };
  service = await startService(t, { env });
  const channels = [
    { name: 'sure', streamBridgeDelivery: 2 },
    { name: 'effort', streamBridgeDelivery: 1 },
    { name: 'other', streamBridgeDelivery: 2 },
  ];
  templateId = (await service.template({ channels })).id;
});

const statusOf = async ({ id }: { id: string }) => (await service.ok('GET', `/api/v1/bridges/${id}`)).bridge.status;

/** A bridge that is deleted with the test. */
async function bridgeTo(t: Test, body: object) {
  const bridge = await service.create('/bridges', 'bridge', { name: service.unique('Bridge'), ...body });
  t.teardown(() => service.http('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { etag: bridge.version } }));
  return bridge;
}

async function speaker() {
  const { device, secret } = await service.device({ deviceTemplateId: templateId });
  const client = await service.connect({ deviceId: device.id, secret });
  const say = (channel: string, text: string) =>
    client.publishAsync(service.topic(device.id, channel), text, { qos: 1 });
  return { id: device.id as string, say };
}

async function startNats(t: Test): Promise<NatsServer> {
  const nats = await natsServer(temporaryDirectory(t));
  t.teardown(() => nats.stop());
  await nats.start();
  return nats;
}

t.test(
  'every acknowledged message is in the stream of NATS once, in order per device, though the server is killed',
  withNats,
  async (t) => {
    const nats = await startNats(t);
    await makeStream(nats.servers);
    const bridge = await bridgeTo(t, { kind: 'nats', url: nats.url, form: 'json' });
    const speakers = await Promise.all(Array.from({ length: 5 }, speaker));
    const count = 60;
    for (let round = 0; round < count; round += 1) {
      await Promise.all(speakers.map(({ say }) => say('sure', String(round))));
      if (round === 20) await nats.stop();
      if (round === 40) await nats.start();
    }
    await until(async () => (await statusOf(bridge)).pending === 0);
    const found = await readStream(nats.servers);
    t.equal(found.length, speakers.length * count);
    t.equal(new Set(found.map(({ id }) => id)).size, found.length, 'each once');
    for (const { id } of speakers) {
      const subject = `slipway.${service.accountId}.d.${id}.sure`;
      const own = found.filter((one) => one.subject === subject);
      const texts = own.map(({ data }) => Buffer.from(JSON.parse(data.toString()).payloadBase64, 'base64').toString());
      t.strictSame(
        texts,
        Array.from({ length: count }, (_, index) => String(index)),
      );
    }
  },
);

t.test(
  'a replay gives messages the id they had, so the stream drops them; raw has its names in headers',
  withNats,
  async (t) => {
    const nats = await startNats(t);
    await makeStream(nats.servers);
    const bridge = await bridgeTo(t, { kind: 'nats', url: nats.url, form: 'raw' });
    const { id, say } = await speaker();
    await say('sure', 'once');
    await say('effort', 'maybe');
    await until(async () => (await readStream(nats.servers)).length === 2);
    await until(async () => (await statusOf(bridge)).pending === 0);
    const before = await service.ok('POST', `/api/v1/bridges/${bridge.id}/replay`, {
      body: { from: '2020-01-01', to: '2100-01-01' },
    });
    t.equal(before.replay.messages, 1);
    await until(async () => (await statusOf(bridge)).pending === 0);
    const found = await readStream(nats.servers);
    t.strictSame(found.map(({ data }) => data.toString()).sort(), ['maybe', 'once']);
    t.match(found[0]?.headers, {
      'slipway-device': id,
      'slipway-topic': /\/(sure|effort)$/,
      'slipway-account': service.accountId,
    });
  },
);

t.test('a message that the stream refuses for its size is a dead letter, and others pass it', withNats, async (t) => {
  const nats = await startNats(t);
  await makeStream(nats.servers, { max_msg_size: 2000 });
  const bridge = await bridgeTo(t, { kind: 'nats', url: nats.url, form: 'raw' });
  const { say } = await speaker();
  await say('sure', 'first');
  await say('sure', 'x'.repeat(5000));
  await say('sure', 'last');
  await until(async () => (await statusOf(bridge)).pending === 0);
  t.strictSame(
    (await readStream(nats.servers)).map(({ data }) => data.toString()),
    ['first', 'last'],
  );
  const { deadLetters } = await service.ok('GET', `/api/v1/bridges/${bridge.id}/dead-letters`);
  t.match(deadLetters, { meta: { count: 1 }, results: [{ reason: /larger than the stream/ }] });
});

t.test('the status says that no stream takes the subject; a test message says it at once', withNats, async (t) => {
  const nats = await startNats(t);
  const bridge = await bridgeTo(t, { kind: 'nats', url: nats.url });
  const test = () => service.ok('POST', `/api/v1/bridges/${bridge.id}/test`);
  t.match(await test(), { test: { delivered: false, reason: /^no stream has this subject/, milliseconds: Number } });
  const { say } = await speaker();
  await say('sure', 'waits');
  await until(async () => (await statusOf(bridge)).lastFailureReason?.startsWith('no stream has this subject'));
  t.equal((await statusOf(bridge)).pending, 1);
  await makeStream(nats.servers);
  t.match(await test(), { test: { delivered: true, reason: null } });
  const [marked] = await readStream(nats.servers);
  t.match(JSON.parse(marked?.data.toString() ?? ''), { test: true, channel: '_test', accountId: service.accountId });
  await until(async () => (await statusOf(bridge)).pending === 0);
});

/** A bare MQTT broker; it keeps what it gets. */
async function startBroker(t: Test) {
  const aedes = await Aedes.createBroker();
  const got: Array<{ topic: string; payload: string; qos: number }> = [];
  const clients: string[] = [];
  aedes.authenticate = (client, username, password, done) => {
    clients.push(client.id);
    done(null, username === 'me' && password?.toString() === 'pass');
  };
  aedes.on('publish', ({ topic, payload, qos }, client) => {
    if (client) got.push({ topic, payload: payload.toString(), qos });
  });
  const server: Server = createServer(aedes.handle).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    aedes.close();
  });
  return { aedes, got, clients, url: `mqtt://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

t.test(
  'another MQTT broker gets messages with QoS 1 on the same topic under the prefix, in order, also after it went away',
  async (t) => {
    const broker = await startBroker(t);
    const credentials = { username: 'me', password: 'pass' };
    const bridge = await bridgeTo(t, {
      kind: 'mqtt',
      url: broker.url,
      form: 'raw',
      settings: { prefix: 'fleet/eu' },
      credentials,
    });
    service.secrets.add('pass-that-is-never-shown');
    t.notMatch(JSON.stringify(await service.ok('GET', `/api/v1/bridges/${bridge.id}`)), /"pass"|credentials/);
    const { id, say } = await speaker();
    for (let index = 0; index < 20; index += 1) {
      await say('sure', String(index));
      if (index === 9) {
        await until(() => broker.got.length >= 5);
        for (const client of Object.values(
          (broker.aedes as unknown as { clients: Record<string, { close(): void }> }).clients,
        ))
          client.close();
      }
    }
    await until(async () => (await statusOf(bridge)).pending === 0);
    const texts = broker.got.map(({ payload }) => payload);
    t.strictSame(
      [...new Set(texts)],
      Array.from({ length: 20 }, (_, index) => String(index)),
      'all, in order; a lost answer may repeat one',
    );
    t.ok(broker.got.every(({ topic, qos }) => topic === `fleet/eu/${service.topic(id, 'sure')}` && qos === 1));
    t.strictSame([...new Set(broker.clients)], [`slipway-${bridge.id}`], 'one session');
  },
);

t.test(
  'Mosquitto gets messages with QoS 1 in order, also after it was killed and started again',
  withMosquitto,
  async (t) => {
    const broker = await mosquitto(temporaryDirectory(t), 'me', 'pass');
    t.teardown(() => broker.stop());
    await broker.start();
    const credentials = { username: 'me', password: 'pass' };
    const settings = { prefix: 'fleet' };
    const bridge = await bridgeTo(t, { kind: 'mqtt', url: broker.url, form: 'raw', settings, credentials });
    const got: string[] = [];
    const listen = async () => {
      const reader = await mqtt.connectAsync(broker.url, { ...credentials, reconnectPeriod: 0 });
      t.teardown(() => reader.end(true));
      reader.on('error', () => {});
      reader.on('message', (_topic, payload) => got.push(payload.toString()));
      await reader.subscribeAsync('fleet/#', { qos: 1 });
    };
    await listen();
    const { say } = await speaker();
    for (let index = 0; index < 10; index += 1) await say('sure', String(index));
    await until(() => new Set(got).size === 10);
    await until(async () => (await statusOf(bridge)).pending === 0);
    await broker.stop();
    for (let index = 10; index < 20; index += 1) await say('sure', String(index));
    await until(async () => (await statusOf(bridge)).lastFailureReason !== null);
    t.equal((await statusOf(bridge)).pending, 10);
    // What arrives before the reader is back would be lost to it, so the bridge leads elsewhere meanwhile.
    const lead = async (url: string) => {
      const { version } = (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge;
      const put = (body: object) =>
        service.http('PUT', `/api/v1/bridges/${bridge.id}`, { headers: { etag: version }, body });
      const refused = {
        status: 400,
        body: { error: { code: 106, details: [{ path: 'credentials', message: /again/ }] } },
      };
      t.match(await put({ url }), refused, 'stored credentials do not go to another server');
      t.match(await put({ url, credentials }), { status: 200 });
    };
    await lead('mqtt://127.0.0.1:9');
    await broker.start();
    await listen();
    await lead(broker.url);
    await until(async () => (await statusOf(bridge)).pending === 0);
    await until(() => new Set(got).size === 20);
    t.strictSame(
      [...new Set(got)],
      Array.from({ length: 20 }, (_, index) => String(index)),
      'all, in order; a lost answer may repeat one',
    );
  },
);

t.test(
  'what Mosquitto refuses by its access list waits, and what is too large for it is a dead letter',
  withMosquitto,
  async (t) => {
    const access = ['topic read #', 'topic write slipway/v1/+/d/+/sure'];
    const broker = await mosquitto(temporaryDirectory(t), 'me', 'pass', { access, more: ['message_size_limit 2000'] });
    t.teardown(() => broker.stop());
    await broker.start();
    const credentials = { username: 'me', password: 'pass' };
    const reader = await mqtt.connectAsync(broker.url, { ...credentials, reconnectPeriod: 0 });
    t.teardown(() => reader.end(true));
    const got: string[] = [];
    reader.on('message', (_topic, payload) => got.push(payload.toString()));
    await reader.subscribeAsync('#', { qos: 1 });
    const bridge = await bridgeTo(t, { kind: 'mqtt', url: 'mqtt://127.0.0.1:9', form: 'raw', credentials });
    const speakers = await Promise.all(Array.from({ length: 30 }, speaker));
    const [first] = speakers;
    await first?.say('sure', 'small');
    await first?.say('sure', 'x'.repeat(3000));
    await first?.say('sure', 'after it');
    await Promise.all(speakers.slice(1).map(({ say }, n) => say('sure', `one of many ${n}`)));
    await speakers[1]?.say('other', 'may not be there');
    const { version } = (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge;
    const change = { headers: { etag: version }, body: { url: broker.url, credentials } };
    const { bridge: changed } = await service.ok('PUT', `/api/v1/bridges/${bridge.id}`, change);
    t.teardown(() => service.http('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { etag: changed.version } }));
    await until(async () => new Set(got).size === 31 && (await statusOf(bridge)).pending === 1);
    t.strictSame(
      got.filter((text) => !text.startsWith('one of many')),
      ['small', 'after it'],
    );
    t.equal(got.length, 31, 'each once');
    const { deadLetters } = await service.ok('GET', `/api/v1/bridges/${bridge.id}/dead-letters`);
    t.match(deadLetters, { meta: { count: 1 }, results: [{ reason: /larger than the broker takes.*0x95/ }] });
    t.match(await statusOf(bridge), { note: null });
    t.match(await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`), {
      test: { delivered: false, reason: /may not publish on this topic.*0x87/, note: null },
    });
  },
);

t.test('of a broker that takes no QoS 1 the state says so, and the message waits', withMosquitto, async (t) => {
  const broker = await mosquitto(temporaryDirectory(t), 'me', 'pass', { more: ['max_qos 0'] });
  t.teardown(() => broker.stop());
  await broker.start();
  const credentials = { username: 'me', password: 'pass' };
  const bridge = await bridgeTo(t, { kind: 'mqtt', url: broker.url, credentials });
  const { say } = await speaker();
  await say('sure', 'waits');
  await until(async () => (await statusOf(bridge)).lastFailureReason?.includes('takes no messages with QoS 1'));
  t.match(await statusOf(bridge), { pending: 1, deadLetters: 0, lastFailureReason: /maximum QoS.*0x9b/ });
});

t.test('no more messages are under way to a broker than it takes', async (t) => {
  const port = await freePort();
  const bridge = await bridgeTo(t, { kind: 'mqtt', url: `mqtt://127.0.0.1:${port}`, form: 'raw' });
  const speakers = await Promise.all(Array.from({ length: 30 }, speaker));
  await Promise.all(speakers.map(({ say }) => say('sure', 'one of many')));
  const receiveMaximum = 3;
  let [got, most] = [0, 0];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    const underWay: number[] = [];
    const parser = mqttPacket.parser({ protocolVersion: 5 });
    const answer = (packet: Packet) => socket.write(mqttPacket.generate(packet, { protocolVersion: 5 }));
    const acknowledge = () => {
      for (const messageId of underWay.splice(0)) answer({ cmd: 'puback', messageId, reasonCode: 0 });
    };
    parser.on('packet', (packet) => {
      if (packet.cmd === 'connect')
        answer({ cmd: 'connack', reasonCode: 0, sessionPresent: false, properties: { receiveMaximum } });
      if (packet.cmd !== 'publish') return;
      got += 1;
      underWay.push(packet.messageId ?? 0);
      most = Math.max(most, underWay.length);
      // What has arrived with it counts as well.
      setImmediate(acknowledge);
    });
    socket.on('data', (chunk) => parser.parse(chunk));
  }).listen(port, '127.0.0.1');
  t.teardown(() => server.close());
  await until(async () => (await statusOf(bridge)).pending === 0);
  t.equal(got, 30);
  t.ok(most > 0 && most <= receiveMaximum, `${most} at once`);
});

t.test('of a broker without MQTT 5 the state says what it cannot tell', async (t) => {
  const broker = await startBroker(t);
  const credentials = { username: 'me', password: 'pass' };
  const bridge = await bridgeTo(t, { kind: 'mqtt', url: broker.url, credentials });
  const note = /^The broker has no MQTT 5\. It does not say which messages it refuses/;
  t.match(await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`), { test: { delivered: true, note } });
  t.match(await statusOf(bridge), { note });
});

t.test('a broker that refuses the login is said so, and a new password mends it', async (t) => {
  const broker = await startBroker(t);
  const wrong = { username: 'me', password: 'wrong' };
  const bridge = await bridgeTo(t, { kind: 'mqtt', url: broker.url, credentials: wrong });
  t.match(await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`), {
    test: { delivered: false, reason: String },
  });
  const credentials = { username: 'me', password: 'pass' };
  await service.ok('PUT', `/api/v1/bridges/${bridge.id}`, { headers: { etag: bridge.version }, body: { credentials } });
  t.match(await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`), { test: { delivered: true, reason: null } });
});

/** A server that speaks Kinesis, with one stream. */
async function startKinesis(t: Test) {
  const kinesalite = createRequire(import.meta.url)('kinesalite') as (options: object) => Server;
  const server = kinesalite({ createStreamMs: 0, shardLimit: 10 }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new KinesisClient({
    endpoint: url,
    region: 'eu-west-1',
    requestHandler: new NodeHttpHandler(),
    credentials: { accessKeyId: 'a', secretAccessKey: 'b' },
  });
  t.teardown(() => client.destroy());
  await client.send(new CreateStreamCommand({ StreamName: 'messages', ShardCount: 2 }));
  const describe = () => client.send(new DescribeStreamCommand({ StreamName: 'messages' }));
  await until(async () => (await describe()).StreamDescription?.StreamStatus === 'ACTIVE');
  const read = async () => {
    const { StreamDescription } = await describe();
    const records = [];
    for (const { ShardId } of StreamDescription?.Shards ?? []) {
      const { ShardIterator } = await client.send(
        new GetShardIteratorCommand({ StreamName: 'messages', ShardId, ShardIteratorType: 'TRIM_HORIZON' }),
      );
      records.push(...((await client.send(new GetRecordsCommand({ ShardIterator }))).Records ?? []));
    }
    return records.map(({ PartitionKey, Data }) => ({ key: PartitionKey, text: Buffer.from(Data ?? []).toString() }));
  };
  return { url, read };
}

t.test('Kinesis gets one record for each message, in order by the device id as partition key', async (t) => {
  const kinesis = await startKinesis(t);
  const settings = { stream: 'messages', region: 'eu-west-1' };
  const credentials = { accessKeyId: 'a', secretAccessKey: 'b' };
  const bridge = await bridgeTo(t, { kind: 'kinesis', url: kinesis.url, form: 'raw', settings, credentials });
  const speakers = await Promise.all([speaker(), speaker(), speaker()]);
  for (let index = 0; index < 10; index += 1) await Promise.all(speakers.map(({ say }) => say('sure', String(index))));
  await until(async () => (await statusOf(bridge)).pending === 0);
  const records = await kinesis.read();
  for (const { id } of speakers)
    t.strictSame(
      records.filter(({ key }) => key === id).map(({ text }) => text),
      Array.from({ length: 10 }, (_, index) => String(index)),
    );
  await service.ok('PUT', `/api/v1/bridges/${bridge.id}`, {
    headers: { etag: bridge.version },
    body: { settings: { stream: 'elsewhere', region: 'eu-west-1' } },
  });
  t.match(await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`), {
    test: { delivered: false, reason: /stream does not exist.*ResourceNotFoundException/ },
  });
});

t.test('credentials of a Kafka cluster do not go to brokers that a change adds', async (t) => {
  const credentials = { username: 'me', password: 'pass' };
  const settings = { mechanism: 'PLAIN' };
  const bridge = await bridgeTo(t, { kind: 'kafka', url: 'kafka://127.0.0.1:9', settings, credentials });
  const put = (body: object) =>
    service.http('PUT', `/api/v1/bridges/${bridge.id}`, { headers: { etag: bridge.version }, body });
  const wider = { settings: { ...settings, brokers: '127.0.0.2:9' } };
  t.match(await put(wider), { status: 400, body: { error: { details: [{ path: 'credentials' }] } } });
  t.match(await put({ ...wider, credentials }), { status: 200 });
});

t.test('what a kind of target cannot be is refused, naming the property', async (t) => {
  const refused = async (body: object, path: string, message: RegExp) => {
    const answer = await service.http('POST', '/api/v1/bridges', {
      body: { accountId: service.accountId, name: service.unique('No'), ...body },
    });
    t.match(answer, { status: 400, body: { error: { code: 106, details: [{ path, message }] } } }, path);
  };
  await refused({ kind: 'nats', url: 'https://nats.example.com' }, 'url', /tls or nats/);
  await refused(
    { kind: 'nats', url: 'tls://nats.example.com', settings: { topic: 'x' } },
    'settings.topic',
    /subjectPrefix/,
  );
  await refused(
    { kind: 'nats', url: 'tls://nats.example.com', settings: { subjectPrefix: 'a.>' } },
    'settings.subjectPrefix',
    /tokens/,
  );
  await refused(
    { kind: 'nats', url: 'tls://nats.example.com', credentials: { key: 'x' } },
    'credentials.key',
    /username, password, token/,
  );
  await refused(
    { kind: 'nats', url: 'tls://nats.example.com', secret: 'sixteen-characters' },
    'secret',
    /webhooks only/,
  );
  await refused(
    { kind: 'kinesis', url: 'https://kinesis.example.com', settings: { region: 'eu-west-1' } },
    'settings.stream',
    /required/,
  );
  await refused({ kind: 'webhook', url: 'https://hooks.example.com', form: 'raw' }, 'form', /json/);
  const credentials = { secret: 'sixteen-characters' };
  await refused({ kind: 'webhook', url: 'https://hooks.example.com', credentials }, 'credentials', /use secret/);
  await refused(
    { kind: 'mqtt', url: 'mqtts://mqtt.example.com', settings: { prefix: 'a/#' } },
    'settings.prefix',
    /wildcards/,
  );
  await refused(
    { kind: 'kafka', url: 'kafkas://kafka.example.com', settings: { mechanism: 'GSSAPI' } },
    'settings.mechanism',
    /SCRAM/,
  );
});

t.end();
