/** What whoever operates the service asks it: metrics and health. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import t from 'tap';
import { limitNames } from '../../broker/counters.js';
import { type Fixture, fixture } from '../broker/fixture.js';
import { hits, metric } from '../broker/metrics.js';
import { connectPacket, rawClient } from '../broker/raw.js';
import { type Answer, startService } from '../support/service.js';

let f: Fixture;
t.before(async () => {
  f = await fixture(t);
});
const asked = (path: string, service = f.service) => service.http('GET', path, { token: null });

t.test('every limit and counter is there from the start, and counts what happens', async (t) => {
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

/** What /health/ready says once it says this. */
async function until(status: number): Promise<Answer> {
  for (;;) {
    const answer = await asked('/health/ready');
    if (answer.status === status) return answer;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

t.test('a service that works is live and ready, and both answers are short-lived', async (t) => {
  const ready = await asked('/health/ready');
  t.match(ready, { status: 200, body: { ready: true, problems: [] } });
  t.match(await asked('/health/live'), { status: 200, body: { live: true } });
  t.equal(ready.headers.get('cache-control'), 'no-store');
});

t.test('without room for messages it is not ready, and says why', async (t) => {
  const { messages } = f.service.server.ctx.config;
  const reserve = messages.diskReserveBytes;
  messages.diskReserveBytes = 999_999_999_999_999;
  const reason = 'The disk has no more free than SLIPWAY_DISK_RESERVE_BYTES.';
  t.same((await until(503)).body, { ready: false, problems: [{ part: 'messages', reason }] });
  t.equal((await asked('/health/live')).status, 200, 'a restart would not help');
  messages.diskReserveBytes = reserve;
  t.same((await until(200)).body.problems, []);
});

t.test('while another program holds the registry it is not ready, and nobody waits for that', async (t) => {
  const { writer } = f.service.server.ctx.registry;
  const other = new Sqlite(join(f.service.directory, 'registry.db'));
  other.exec('BEGIN IMMEDIATE');
  writer.committedAt = Number.NEGATIVE_INFINITY;
  const begun = performance.now();
  const { body } = await until(503);
  t.same(body.problems, [{ part: 'registry', reason: 'Another program holds the file.' }]);
  t.ok(performance.now() - begun < 4000, 'less than the five seconds that a write waits');
  other.exec('ROLLBACK');
  other.close();
  await until(200);
  t.ok(performance.now() - writer.committedAt < 10_000, 'it has proven that it can be written');
});

t.test('with a token, only whoever sends it reads them', async (t) => {
  const env = { SLIPWAY_METRICS_TOKEN: 'scrape-me-gently', SLIPWAY_SHUTDOWN_DELAY_SECONDS: '600' };
  const service = await startService(t, { env });
  for (const path of ['/health/live', '/health/ready']) {
    t.equal((await asked(path, service)).status, 401);
    t.equal((await service.http('GET', path, { token: 'scrape-me-gently' })).status, 200);
  }
  const get = (token: string | null) => service.http('GET', '/metrics', { token });
  t.match(await get(null), { status: 401, body: { error: { code: 30 } } });
  t.match(await get('scrape-me'), { status: 401, body: { error: { code: 31 } } });
  t.match(await get(service.admin), { status: 401 }, 'a session is no such token');
  t.match(await get('scrape-me-gently'), { status: 200, text: /slipway_mqtt_connections 0/ });
  t.notOk(Object.keys((service.server.app.swagger() as { paths: object }).paths).includes('/metrics'));

  const hurry = new AbortController();
  const announced = service.server.announceEnd(hurry.signal);
  const { status, body } = await service.http('GET', '/health/ready', { token: 'scrape-me-gently' });
  t.match(
    { status, body },
    { status: 503, body: { problems: [{ part: 'process', reason: 'The service is stopping.' }] } },
  );
  t.equal((await service.http('GET', '/health/live', { token: 'scrape-me-gently' })).status, 200);
  await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`);
  hurry.abort();
  await announced;
});
