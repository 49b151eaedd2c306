/** Bridges to a real Kafka: only where SLIPWAY_TEST_KAFKA names one, with topics that are created automatically. */
import { Admin, Consumer, ListOffsetTimestamps } from '@platformatic/kafka';
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

t.end();
