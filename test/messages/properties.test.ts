/** Properties of MQTT 5 for those who do not speak it: publishing over HTTP, streams, bridges. */
import { startReceiver } from '../bridges/receiver.ts';
import { type Fixture, fixture, rawConnected } from '../broker/fixture.ts';
import { subscribePacket } from '../broker/raw.ts';
import { openStream } from '../support/events.ts';
import { part } from '../support/part.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let f: Fixture;
/** It stands still: what is left of a message's time is told in whole seconds. */
let now = Date.now();
t.before(async () => {
  const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
  f = await fixture(t, env, { clock: { now: () => now } });
});

const properties = {
  contentType: 'text/plain; charset=utf-8',
  correlationData: 'AP8H',
  userProperties: [
    ['b', '1'],
    ['a', 'ü'],
    ['a', '3'],
  ],
  messageExpiry: 100,
};

function publish(topic: string, said: object, payload = 'hello', more: object = {}) {
  const query = Object.entries({ ...said, ...more }).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return `${name}=${encodeURIComponent(text)}`;
  });
  return f.service.http('POST', `/api/v1/messaging/publish/${topic}?${query.join('&')}`, {
    body: payload,
    headers: { 'content-type': 'text/plain' },
  });
}

t.test('a stream and a bridge get what was said of a message, and who said nothing finds nothing', async (t) => {
  const receiver = await startReceiver(t);
  const template = await f.service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const { device } = await f.service.device({ deviceTemplateId: template.id });
  const topic = f.service.topic(device.id, 'sure');
  await f.service.create('/bridges', 'bridge', { name: 'Bridge', kind: 'webhook', url: receiver.url });
  const events = await openStream(t, f.service, topic);
  const said = { ...properties, responseTopic: topic };
  t.equal((await publish(topic, said)).status, 200);
  const { data } = await events.next();
  t.match(data, { payload: 'hello', properties: said });
  t.equal((await publish(topic, {}, 'plain')).status, 200);
  t.equal('properties' in (await events.next()).data, false);
  const [first, second] = await receiver.received(2);
  t.same(first?.properties, said);
  t.equal(second?.properties, undefined);
});

t.test('what is no property is refused by name', async (t) => {
  const topic = f.topic('chat');
  const pairs = (count: number) => Array.from({ length: count }, (_, n) => [`n${n}`, '']);
  for (const [bad, path] of [
    [{ userProperties: 'no json' }, 'userProperties'],
    [{ userProperties: [['a']] }, 'userProperties'],
    [{ userProperties: pairs(33) }, 'userProperties'],
    [{ contentType: 'a\0b' }, 'contentType'],
    [{ correlationData: '?' }, 'correlationData'],
    [{ messageExpiry: -1 }, 'messageExpiry'],
  ] as const) {
    const { status, body } = await publish(topic, bad);
    t.equal(status, 400, path);
    t.match(JSON.stringify(body), path);
  }
  t.equal((await publish(topic, { userProperties: pairs(32) })).status, 200);
  const large = await publish(topic, { userProperties: [['a', 'x'.repeat(8200)]] });
  t.equal(large.status, 413);
  t.match(large.text, 'SLIPWAY_MQTT_MAX_PROPERTY_BYTES');
});

t.test('a Response Topic that the caller may not subscribe to is 403', async (t) => {
  const other = await f.service.account();
  const there = `slipway/v1/${other.accountId}/d/${f.device.id}/chat`;
  t.equal((await publish(f.topic('chat'), { responseTopic: there })).status, 403);
});

t.test('Content Type says how points are read where the channel does not', async (t) => {
  const latest = async () => {
    const path = `/api/v4/data/${f.topic('temperature')}/latest?pageSize=1`;
    return (await f.service.ok('GET', path)).result[0];
  };
  // Four bytes: a float unless somebody says that they are text.
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(21.5);
  const url = `${f.service.server.url}/api/v1/messaging/publish/${f.topic('temperature')}?contentType=application%2Foctet-stream`;
  const headers = { authorization: `Bearer ${f.service.admin}`, 'content-type': 'application/octet-stream' };
  t.equal((await fetch(url, { method: 'POST', body: bytes, headers })).status, 200);
  t.match(await latest(), { numericValue: 21.5 });
  const { body } = await publish(f.topic('temperature'), { contentType: 'Application/JSON; a=b' }, ',x,1,');
  t.match(body.rejection.details[0].message, /JSON/);
  t.equal((await publish(f.topic('temperature'), { contentType: 'text/csv' }, ',x,7,')).body.rejection, undefined);
  t.match(await latest(), { numericValue: 7 });
});

t.test('what expires leaves queues and retained messages, and is counted', async (t) => {
  const kept = { clientId: 'kept', clean: false };
  const client = await rawConnected(t, f, kept);
  client.send(subscribePacket(1, [f.topic('chat'), 1]));
  t.match(await client.next(), { cmd: 'suback' });
  client.send({ cmd: 'disconnect' } as never);
  await client.closed;
  const expired = async () => {
    const { text } = await f.service.http('GET', '/metrics', { token: null });
    return Number(/^slipway_mqtt_expired_messages_total (\d+)$/m.exec(text)?.[1]);
  };
  const before = await expired();
  t.equal((await publish(f.topic('chat'), { messageExpiry: 10 }, 'short', { retain: true })).status, 200);
  t.equal((await publish(f.topic('chat'), { messageExpiry: 1000 }, 'long')).status, 200);
  now += 11_000;
  await until(async () => (await expired()) === before + 2);
  const back = await rawConnected(t, f, kept);
  t.match(await back.next(), { cmd: 'publish', payload: Buffer.from('long') });
  back.send(subscribePacket(2, [f.topic('chat'), 1]), { cmd: 'pingreq' } as never);
  t.match(await back.next(), { cmd: 'suback' });
  t.match(await back.next(), { cmd: 'pingresp' }, 'nothing is retained');
});

t.end();
