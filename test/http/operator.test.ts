/** What the operator asks it: metrics and health. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import Sqlite from 'better-sqlite3';
import { filterRefusals, limitNames, publishRefusals } from '../../broker/connections/counters.ts';
import { isStoreBusy } from '../../db/sqlite/commits.ts';
import { type Fixture, fixture } from '../broker/fixture.ts';
import { hits, metric } from '../broker/metrics.ts';
import { connectPacket, rawClient } from '../broker/raw.ts';
import { changeStored, forgetLastCommit, whileRecordFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Answer, closed, nextMessage, type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

/** Bytes. */
const enough = 1e12;
let freeOnDisk = enough;
let f: Fixture;
const logLines: string[] = [];
t.before(async () => {
  const mail = { send: () => Promise.reject(new Error('no mail today')) };
  f = await fixture(t, {}, { logLines, mail, freeOnDisk: async () => freeOnDisk });
});
const asked = (path: string, service = f.service) => service.http('GET', path, { token: null });

t.test('every limit and counter is there from the start, and counts what happens', async (t) => {
  const { headers, text, status } = await f.service.http('GET', '/metrics', { token: null });
  t.equal(status, 200);
  t.match(headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
  for (const limit of limitNames) t.equal(await hits(f, limit), 0, limit);
  for (const reason of publishRefusals)
    t.equal(await metric(f, `slipway_mqtt_refused_publishes_total{reason="${reason}"}`), 0);
  for (const reason of filterRefusals)
    t.equal(await metric(f, `slipway_mqtt_refused_subscriptions_total{reason="${reason}"}`), 0);
  for (const name of ['shed', 'expired']) t.equal(await metric(f, `slipway_mqtt_${name}_messages_total`), 0);
  for (const reason of ['queue', 'size'])
    t.equal(await metric(f, `slipway_mqtt_dropped_messages_total{reason="${reason}"}`), 0);
  const names = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  t.ok(names.every((line) => line.startsWith('slipway_')));

  const client = await f.service.connect(f.who, { clean: false, clientId: 'kept' });
  t.equal(await metric(f, 'slipway_mqtt_connections'), 1);
  t.equal(await metric(f, 'slipway_mqtt_sockets'), 1);
  t.equal(await metric(f, 'slipway_mqtt_stored_sessions'), 1);
  await client.publishAsync(f.topic('nothing'), 'x', { qos: 1 });
  t.equal(await metric(f, 'slipway_mqtt_refused_publishes_total{reason="no_such_channel"}'), 1);
  await t.rejects(client.subscribeAsync('other/root', { qos: 1 }));
  t.equal(await metric(f, 'slipway_mqtt_refused_subscriptions_total{reason="out_of_reach"}'), 1);
  const raw = await rawClient(t, f.service.server.mqttPort);
  raw.send(connectPacket({ username: f.device.id, password: Buffer.from('wrong') }));
  await raw.closed;
  t.equal(await metric(f, 'slipway_mqtt_refused_connects_total{reason="bad_credentials"}'), 1);
  const before = Number(await metric(f, 'slipway_messages_points'));
  await client.publishAsync(f.topic('temperature'), ',c,1,', { qos: 1 });
  t.equal(await metric(f, 'slipway_messages_points'), before + 1);
  t.equal(await metric(f, 'slipway_messages_refused'), 0);
  // That the client has connected is logged a moment later.
  await until(async () => Number(await metric(f, 'slipway_messages_logs')) > 0);
  for (const name of ['messages_bytes', 'messages_logs', 'messages_oldest_timestamp_seconds', 'disk_free_bytes'])
    t.ok(Number(await metric(f, `slipway_${name}`)) > 0, name);
  const told = (await f.service.http('GET', '/metrics', { token: null })).text;
  for (const secret of [f.secret, f.device.id, f.service.accountId]) t.notMatch(told, secret);
});

/** By how much lines of /metrics have grown while `work` was done. */
async function grown(lines: readonly string[], work: () => Promise<unknown>): Promise<number[]> {
  const read = () => Promise.all(lines.map(async (line) => (await metric(f, line)) ?? 0));
  const before = await read();
  await work();
  return (await read()).map((value, at) => value - (before[at] as number));
}

t.test('a message is counted once, where it went and what became of it', async (t) => {
  const client = await f.service.connect(f.who);
  const published = (channel: string, outcome: string) =>
    `slipway_published_messages_total{channel="${channel}",outcome="${outcome}"}`;
  const acknowledged = 'slipway_mqtt_acknowledgement_seconds_count';
  const commits = 'slipway_store_commit_seconds_count{store="messages"}';
  const lines = [
    published('timeSeries', 'stored'),
    published('timeSeries', 'rejected'),
    published('simple', 'delivered'),
    published('_log', 'stored'),
    published('_set/fields', 'stored'),
    published('none', 'refused'),
    acknowledged,
  ];
  const one = (at: number, ...more: number[]) =>
    lines.map((_, place) => (place === at || more.includes(place) ? 1 : 0));
  const publish = (channel: string, payload: string, qos: 0 | 1 | 2) => () =>
    client.publishAsync(f.topic(channel), payload, { qos });
  t.same(await grown(lines, publish('temperature', ',c,1,', 1)), one(0, 6));
  t.same(await grown(lines, publish('temperature', ',c,2,', 2)), one(0), 'QoS 2 has no PUBACK');
  t.same(await grown(lines, publish('temperature', 'no reading at all', 1)), one(1, 6));
  t.same(await grown(lines, publish('chat', 'hello', 1)), one(2, 6));
  t.same(await grown(lines, publish('_log', 'hello', 1)), one(3, 6));
  t.same(await grown(lines, publish('_set/fields', '{"state":{"name":"n"}}', 1)), one(4, 6));
  t.same(await grown(lines, publish('nowhere', 'x', 1)), one(5), 'a refused one is no figure of the store');
  const overHttp = () =>
    f.service.http('POST', `/messaging/publish/${f.topic('temperature')}`, {
      body: ',c,3,',
      headers: { 'content-type': 'text/plain' },
    });
  t.same(await grown(lines, overHttp), one(0));
  const [more = 0] = await grown([commits], publish('temperature', ',c,4,', 1));
  t.ok(more >= 1, 'and so is the commit');
  const sent = 'slipway_mqtt_sent_messages_total';
  const heard = await f.service.connect({ jwt: f.service.admin });
  await heard.subscribeAsync(f.topic('chat'));
  const arrived = nextMessage(heard);
  t.same(
    await grown([sent], async () => {
      await publish('chat', 'hello', 0)();
      await arrived;
    }),
    [1],
  );
});

t.test('requests are counted by the pattern of their route, errors by their kind', async (t) => {
  const requests = (route: string, status: number) =>
    `slipway_http_requests_total{method="GET",route="${route}",status="${status}"}`;
  const lines = [
    requests('/api/v1/devices/:id', 200),
    requests('/api/v1/devices/:id', 404),
    'slipway_http_requests_total{method="any",route="none",status="404"}',
    'slipway_http_refusals_total{kind="notFound"}',
    'slipway_http_request_seconds_count{method="GET",route="/api/v1/devices/:id"}',
  ];
  t.same(await grown(lines, () => f.service.ok('GET', `/api/v1/devices/${f.device.id}`)), [1, 0, 0, 0, 1]);
  const absent = '/api/v1/devices/01890000-0000-7000-8000-000000000000';
  t.same(await grown(lines, () => f.service.http('GET', absent)), [0, 1, 0, 1, 1]);
  t.same(await grown(lines, () => f.service.http('GET', '/made/up/by/a/caller')), [0, 0, 1, 1, 0]);
  const commits = 'slipway_store_commit_seconds_count{store="registry"}';
  const [committed = 0] = await grown([commits], () => f.service.organization());
  t.ok(committed >= 1, 'others may have committed meanwhile');
  const { text } = await asked('/metrics');
  t.notMatch(text, 'made/up');
  t.ok(Number(await metric(f, 'slipway_event_loop_lag_seconds_count')) > 0);
  t.ok(Number(await metric(f, 'slipway_process_open_descriptors')) > 10);
  t.ok(Number(await metric(f, 'slipway_store_file_bytes{store="messages",file="wal"}')) > 0);
});

t.test('every metric is explained, and alarms and dashboard name what there is', async (t) => {
  const { text } = await asked('/metrics');
  const names = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name as string));
  for (const name of names) t.match(text, new RegExp(`^# HELP ${name} \\w.{5,}\\.$`, 'm'), `${name} is explained`);
  const labels = (name: string) => new Set([...text.matchAll(new RegExp(`^${name}\\{.*$`, 'gm'))].flatMap(labelsOf));
  const operations = page('operations.md');
  const alerts = page('prometheus/alerts.yml');
  const expressions = [...alerts.matchAll(/expr: (.*)/g)].map(([, expression]) => expression as string);
  // Prometheus adds the job and the cell.
  for (const board of ['slipway', 'slipway-cells'])
    for (const { targets = [] } of JSON.parse(page(`grafana/${board}.json`)).panels)
      for (const { expr } of targets) expressions.push(expr.replaceAll(/job="\$job",?|cell=~"\$cell",?/g, ''));
  for (const words of [operations, ...expressions]) {
    for (const [, name = '', selector = ''] of words.matchAll(/\b(slipway_\w+)(\{[^}]*\})?/g)) {
      const base = name.replace(/_(bucket|sum|count)$/, '');
      t.ok(names.has(name) || names.has(base), `${name} exists`);
      for (const label of labelsOf([selector])) t.ok(labels(name).has(label), `${name} has ${label}`);
    }
  }
  const fired = [...alerts.matchAll(/alert: (\w+)/g)].map(([, alert]) => alert);
  const advised = [...operations.matchAll(/^### (Slipway\w+)$/gm)].map(([, alert]) => alert);
  t.same([...advised].sort(), [...fired].sort(), 'for each alarm there is what to do');
  t.ok(fired.length > 15);
});

/** The names of the labels of a line, or of a selector. */
function labelsOf([line = '']: readonly string[]): string[] {
  return [...line.matchAll(/(\w+)[!=]=?~?"/g)].map(([, label]) => label as string);
}

function page(name: string): string {
  return readFileSync(fileURLToPath(new URL(`../../docs/${name}`, import.meta.url)), 'utf8');
}

/** The answer of /health/ready once it has this status. The service looks at its disk and queues at intervals, so a time is waited for. */
async function readyWith(status: number, of?: Service): Promise<Answer> {
  let answer = await asked('/health/ready', of);
  await until(async () => {
    answer = await asked('/health/ready', of);
    return answer.status === status;
  });
  return answer;
}

t.test('a service that works is live and ready, and both answers are short-lived', async (t) => {
  const ready = await asked('/health/ready');
  t.match(ready, { status: 200, body: { ready: true, problems: { length: 0 } } });
  t.match(await asked('/health/live'), { status: 200, body: { live: true } });
  t.equal(ready.headers.get('cache-control'), 'no-store');
});

t.test('without room for messages it is not ready, and says why', async (t) => {
  freeOnDisk = 1;
  const reason = 'The disk has no more free than SLIPWAY_DISK_RESERVE_BYTES.';
  t.same((await readyWith(503)).body, { ready: false, problems: [{ part: 'messages', reason }] });
  t.equal((await asked('/health/live')).status, 200, 'a restart would not help');
  freeOnDisk = enough;
  t.match((await readyWith(200)).body, { problems: { length: 0 } });
});

/** The lines that the log has got since it had so many. */
const linesSince = (from: number): Array<Record<string, unknown>> =>
  logLines.slice(from).map((line) => JSON.parse(line));

/** Posts with a body that comes after the head has been read; the id of the request. */
async function postedSlowly(path: string, body: object): Promise<unknown> {
  const headers = { authorization: `Bearer ${f.service.admin}`, 'content-type': 'application/json' };
  const request = httpRequest(f.service.server.url + path, { method: 'POST', headers });
  const arrived = once(f.service.server.app.server, 'request');
  request.flushHeaders();
  await arrived;
  request.end(JSON.stringify(body));
  const [response] = await once(request, 'response');
  response.resume();
  await once(response, 'end');
  return response.headers['x-request-id'];
}

t.test('every line of the log says which request, connection or job it belongs to', async (t) => {
  const { service } = f;
  /** Lines of what came before may still come. */
  const holds = async (from: number, name: string, id: unknown, ...messages: string[]) => {
    t.ok(id, `there is a ${name}`);
    await until(
      () => linesSince(from).flatMap((line) => (line[name] === id ? [line.msg] : [])),
      (own) => messages.every((message) => own.includes(message)),
    );
    for (const line of linesSince(from)) {
      const ids = Object.keys(line).filter((key) => /^(request|connection|job)Id$/.test(key));
      t.equal(ids.length, 1, `one id of: ${line.msg}`);
    }
  };
  const organization = await service.organization();
  const person = {
    accountId: service.accountId,
    organizationId: organization.id,
    createIdmUser: true,
    idmUserEmail: 'nobody@example.com',
  };
  let from = logLines.length;
  const inviting = await postedSlowly('/api/v1/end-users', person);
  await holds(from, 'requestId', inviting, 'an email could not be sent', 'request');

  freeOnDisk = 1;
  await readyWith(503);
  from = logLines.length;
  const posted = await service.http('POST', `/messaging/publish/${f.topic('temperature')}`, {
    body: ',c,1,',
    headers: { 'content-type': 'text/plain', 'x-request-id': 'of-the-caller' },
  });
  const requestId = posted.headers.get('x-request-id');
  t.not(requestId, 'of-the-caller');
  await holds(from, 'requestId', requestId, 'a message could not be stored', 'request failed', 'request');

  from = logLines.length;
  const client = await service.connect(f.who);
  await client.publishAsync(f.topic('nowhere'), 'x', { qos: 1 });
  const end = closed(client);
  client.publish(f.topic('temperature'), ',c,1,', { qos: 1 });
  await end;
  const { connectionId, address } = linesSince(from).find(({ msg }) => msg === 'connected') ?? {};
  t.equal(address, '127.0.0.1');
  const ended = ['a message could not be stored', 'connection failed', 'disconnected'];
  await holds(from, 'connectionId', connectionId, 'PUBLISH refused', ...ended);
  freeOnDisk = enough;
  await readyWith(200);

  from = logLines.length;
  const working = async () => {
    const body = { accountId: service.accountId, action: 'delete', ids: [f.device.id], dryRun: true };
    const { job } = (await service.http('POST', '/api/v1/devices/jobs', { body })).body;
    await holds(from, 'jobId', job.id, 'a job could not go on');
  };
  await whileRecordFails(service, working, 'jobFinished');
});

async function tryToHold(file: Sqlite.Database): Promise<void> {
  try {
    file.exec('BEGIN IMMEDIATE');
  } catch (error) {
    if (!isStoreBusy(error)) throw error;
    await new Promise(setImmediate);
  }
}

t.test('while another program holds the registry it is not ready, and nobody waits for that', async (t) => {
  // Of its own: in a service that has just worked, what is still to be written would wait for the lock first.
  const service = await startService(t);
  const other = new Sqlite(join(service.directory, 'registry.db'), { timeout: 0 });
  // A transaction of the service ends only when this thread goes on.
  while (!other.inTransaction) await tryToHold(other);
  const hasCommitted = forgetLastCommit(service);
  const turns = monitorEventLoopDelay();
  turns.enable();
  const { body } = await readyWith(503, service);
  turns.disable();
  t.match(body, { problems: [{ part: 'registry', reason: 'Another program holds the file.' }] });
  t.ok(turns.max < 4.9e9, 'no turn of the event loop took the five seconds that a write waits');
  const create = () =>
    service.http('POST', '/api/v1/organizations', { body: { accountId: service.accountId, name: 'x' } });
  const creating = create();
  const reading = service.ok('GET', `/api/v1/organizations?accountId=${service.accountId}`).then(() => 'a read');
  t.equal(await Promise.race([reading, creating.then(() => 'a write')]), 'a read', 'others go on meanwhile');
  const refused = await creating;
  t.match(await create(), { status: 503 }, 'who comes later is told at once');
  t.match(refused, { status: 503, body: { error: { message: /^Another program holds the database/ } } });
  other.exec('ROLLBACK');
  other.close();
  await readyWith(200, service);
  t.ok(hasCommitted(), 'it has proven that it can be written');
});

t.test('with a token, only anyone who sends it reads them', async (t) => {
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

  // As when the disk under a table is damaged: then the metrics are needed, not an error in their place.
  await changeStored(service, 'ALTER TABLE "jobs" RENAME TO "gone"');
  const without = await get('scrape-me-gently');
  t.match(without, { status: 200, text: /^# TYPE slipway_queue_depth gauge$/m });
  t.notMatch(without.text, /^slipway_queue_depth\{queue="jobs"\}/m, 'what is not known has no sample');
  t.notMatch(without.text, / nan$/im);
  t.match(without.text, /^slipway_queue_depth\{queue="ingest"\} 0$/m);
});

t.end();
