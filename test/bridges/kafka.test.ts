/** Bridges to Kafka: a real one where SLIPWAY_TEST_KAFKA names it, with topics that are created automatically, or one that is played. */
import { once } from 'node:events';
import { type AddressInfo, createServer, connect as open } from 'node:net';
import { Admin, Consumer, ListOffsetTimestamps } from '@platformatic/kafka';
import { kafkaCluster, withKafkaCluster } from '../support/kafka-cluster.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const broker = process.env.SLIPWAY_TEST_KAFKA;
const withKafka = broker ? {} : { skip: 'SLIPWAY_TEST_KAFKA names no Kafka broker' };

t.test('every message is in the topic of Kafka, in order per device', withKafka, async (t) => {
  const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true', SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' };
  const service = await startService(t, { env });
  const topic = `slipway-test-${Date.now()}`;
  const admin = new Admin({ clientId: 'slipway-test', bootstrapBrokers: [broker ?? ''] });
  t.teardown(() => admin.close());
  await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 });
  t.teardown(() => admin.deleteTopics({ topics: [topic] }));
  const template = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const bridge = await service.create('/bridges', 'bridge', {
    name: 'Kafka',
    kind: 'kafka',
    url: `kafka://${broker}`,
    form: 'raw',
    settings: { topic },
  });
  const texts = Array.from({ length: 50 }, (_, index) => String(index));
  const devices: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    devices.push(device.id);
    const client = await service.connect({ deviceId: device.id, secret });
    for (const text of texts) await client.publishAsync(service.topic(device.id, 'sure'), text, { qos: 1 });
  }
  const status = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge.status;
  await until(async () => (await status()).pending === 0);
  const consumer = new Consumer({ groupId: topic, clientId: 'slipway-test', bootstrapBrokers: [broker ?? ''] });
  t.teardown(() => consumer.close(true));
  const offsets = await consumer.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps.LATEST });
  const count = (offsets.get(topic) ?? []).reduce((sum, offset) => sum + Number(offset), 0);
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest' });
  const found = new Map<string, string[]>(devices.map((id) => [id, []]));
  let read = 0;
  for await (const { key, value } of stream) {
    found.get(key.toString())?.push(value.toString());
    read += 1;
    if (read === count) break;
  }
  await stream.close();
  for (const own of found.values()) t.strictSame([...new Set(own)], texts);
});

t.test('a producer asks for an id of its own: -1, and -1 as its epoch', withKafkaCluster, async (t) => {
  const cluster = await kafkaCluster(t, 1);
  await cluster.tell('topic', 'all', 1);
  const [host = '', port] = (cluster.bootstraps[0] ?? '').split(':');
  const requests: Buffer[] = [];
  // In front of the broker, whose requests are frames: a length, the number of the API, its version and more.
  const front = createServer((client) => {
    const broker = open(Number(port), host);
    let bytes = Buffer.alloc(0);
    client.on('data', (chunk: Buffer) => {
      broker.write(chunk);
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 4 && bytes.length >= 4 + bytes.readInt32BE(0)) {
        const end = 4 + bytes.readInt32BE(0);
        requests.push(bytes.subarray(4, end));
        bytes = bytes.subarray(end);
      }
    });
    broker.on('data', (chunk) => client.write(chunk));
    for (const [one, other] of [
      [client, broker],
      [broker, client],
    ] as const) {
      one.on('error', () => {});
      one.on('close', () => other.destroy());
    }
  }).listen(0, '127.0.0.1');
  await once(front, 'listening');
  t.teardown(() => front.close());
  const service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  const template = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const url = `kafka://127.0.0.1:${(front.address() as AddressInfo).port}`;
  await service.create('/bridges', 'bridge', { name: 'Front', kind: 'kafka', url, settings: { topic: 'all' } });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'sure'), 'x', { qos: 1 });
  await until(async () => (await cluster.count('all', 1)) === 1);
  const initProducerId = 22;
  const asked = requests.filter((request) => request.readInt16BE(0) === initProducerId);
  t.ok(asked.length > 0);
  // Eight bytes of the id, two of the epoch, and no tags.
  for (const request of asked) t.equal(request.subarray(-11).toString('hex'), `${'ff'.repeat(10)}00`);
});

t.end();
