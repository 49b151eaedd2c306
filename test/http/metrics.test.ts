import t from 'tap';
import { limitNames } from '../../broker/counters.js';
import { fixture } from '../broker/fixture.js';
import { hits, metric } from '../broker/metrics.js';
import { connectPacket, rawClient } from '../broker/raw.js';
import { startService } from '../support/service.js';

t.test('every limit and counter is there from the start, and counts what happens', async (t) => {
  const f = await fixture(t);
  const { headers, text, status } = await f.service.http('GET', '/metrics', { token: null });
  t.equal(status, 200);
  t.match(headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
  for (const limit of limitNames) t.equal(await hits(f, limit), 0, limit);
  for (const name of ['publishes', 'subscriptions']) t.equal(await metric(f, `slipway_mqtt_refused_${name}_total`), 0);
  for (const name of ['shed', 'dropped']) t.equal(await metric(f, `slipway_mqtt_${name}_messages_total`), 0);
  const names = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  t.ok(names.every((line) => line.startsWith('slipway_')));

  const client = await f.service.connect(f.who, { clean: false, clientId: 'kept' });
  t.equal(await metric(f, 'slipway_mqtt_connections'), 1);
  t.equal(await metric(f, 'slipway_mqtt_sockets'), 1);
  t.equal(await metric(f, 'slipway_mqtt_stored_sessions'), 1);
  await client.publishAsync(f.topic('nothing'), 'x', { qos: 1 });
  t.equal(await metric(f, 'slipway_mqtt_refused_publishes_total'), 1);
  await t.rejects(client.subscribeAsync('other/root', { qos: 1 }));
  t.equal(await metric(f, 'slipway_mqtt_refused_subscriptions_total'), 1);
  const raw = await rawClient(t, f.service.server.mqttPort);
  raw.send(connectPacket({ username: f.device.id, password: Buffer.from('wrong') }));
  await raw.closed;
  t.equal(await metric(f, 'slipway_mqtt_refused_connects_total{reason="bad_credentials"}'), 1);
  const before = Number(await metric(f, 'slipway_messages_points'));
  await client.publishAsync(f.topic('temperature'), ',c,1,', { qos: 1 });
  t.equal(await metric(f, 'slipway_messages_points'), before + 1);
  t.equal(await metric(f, 'slipway_messages_refused'), 0);
  for (const name of ['messages_bytes', 'messages_logs', 'messages_oldest_timestamp_seconds', 'disk_free_bytes'])
    t.ok(Number(await metric(f, `slipway_${name}`)) > 0, name);
  const told = (await f.service.http('GET', '/metrics', { token: null })).text;
  for (const secret of [f.secret, f.device.id, f.service.accountId]) t.notMatch(told, secret);
});

t.test('with a token, only whoever sends it reads them', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_METRICS_TOKEN: 'scrape-me-gently' } });
  const get = (token: string | null) => service.http('GET', '/metrics', { token });
  t.match(await get(null), { status: 401, body: { error: { code: 30 } } });
  t.match(await get('scrape-me'), { status: 401, body: { error: { code: 31 } } });
  t.match(await get(service.admin), { status: 401 }, 'a session is no such token');
  t.match(await get('scrape-me-gently'), { status: 200, text: /slipway_mqtt_connections 0/ });
  t.notOk(Object.keys((service.server.app.swagger() as { paths: object }).paths).includes('/metrics'));
});
