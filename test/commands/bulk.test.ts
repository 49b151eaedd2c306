/** One command to many devices as a job: answers, failures, the limit, cancelling, restarts, and who may. */
import type { MqttClient } from 'mqtt';
import { devices } from '../firmware/fleet.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { follow, provision, rowsOf } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { present, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

interface Unit {
  id: string;
  secret: string;
}
interface Got {
  id: string;
  name: string;
  attempt: number;
}
/** What a device says to a command; nothing where it does not answer. */
type Answering = (got: Got) => object | undefined;

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const succeeds: Answering = () => ({ status: 'succeeded' });
const fails: Answering = () => ({ status: 'failed', result: { code: 7 } });
const stays: Answering = () => undefined;

/** Devices of a template of their own. */
async function fleet(of: Service, count: number, more: object = {}) {
  const template = await of.create('/devices/templates', 'deviceTemplate', { name: of.unique('Pump'), ...more });
  return { filter: { deviceTemplateId: template.id }, template, units: await devices(of, template.id, count) };
}

/** A device that hears commands, and answers as is said. */
async function play(of: Service, { id, secret }: Unit, answering: Answering) {
  const client = await of.connect({ deviceId: id, secret });
  const got: Got[] = [];
  const replies = of.topic(id, '_commands/replies');
  const reply = (to: string, said: object) =>
    client.publishAsync(replies, JSON.stringify({ id: to, ...said }), { qos: 1 });
  client.on('message', (topic, payload) => {
    if (!topic.endsWith('/_commands')) return;
    const command = JSON.parse(payload.toString()) as Got;
    got.push(command);
    const said = answering(command);
    // No promise: the job may end, and the test with it, before the PUBACK is here.
    if (said) client.publish(replies, JSON.stringify({ id: command.id, ...said }), { qos: 1 });
  });
  await client.subscribeAsync(of.topic(id, '_commands'), { qos: 1 });
  return Object.assign(client, { got, reply }) as MqttClient & { got: Got[]; reply: typeof reply };
}

const post = (of: Service, body: object, token = of.admin) =>
  of.http('POST', '/api/v1/commands/bulk', { body: { accountId: of.accountId, ...body }, token });
async function bulk(of: Service, body: object, token = of.admin) {
  const answer = await post(of, { command: { name: 'blink' }, ...body }, token);
  if (answer.status !== 202) throw new Error(`a bulk command answered ${answer.status}: ${answer.text}`);
  return answer.body.job as { id: string };
}
const read = async (of: Service, id: string) => (await of.ok('GET', `/api/v1/provisioning/jobs/${id}`)).job;
const ended = async (of: Service, id: string, token = of.admin) => (await follow(of, id, token)).at(-1);
const commandOf = async (of: Service, deviceId: string, commandId: string | null) =>
  (await of.ok('GET', `/api/v1/devices/${deviceId}/commands/${commandId}`)).command;
const open = `"state" IN ('queued', 'sent', 'accepted')`;
const openOf = (of: Service, jobId: string) =>
  storedRows(of, `SELECT count(*) AS "count" FROM "commands" WHERE "jobId" = ? AND ${open}`, [jobId])[0]?.count;
const madeBy = (of: Service, jobId: string) =>
  storedRows<{ deviceId: string; state: string }>(of, 'SELECT * FROM "commands" WHERE "jobId" = ?', [jobId]);

t.test('each row has its command, ends with it and says how; the job ends when all have', async (t) => {
  let now = Date.parse('2026-03-01T00:00:00Z');
  const own = await startService(t, { clock: { now: () => now } });
  const { filter, units } = await fleet(own, 8);
  const [failing, silent, working, away, ...good] = units as [Unit, Unit, Unit, Unit, ...Unit[]];
  for (const unit of good) await play(own, unit, succeeds);
  await play(own, failing, fails);
  const quiet = await play(own, silent, stays);
  const begun = await play(own, working, () => ({ status: 'accepted' }));
  const expiresAt = new Date(now + 60_000).toISOString();
  const command = { name: 'blink', payload: { times: 3 }, timeoutSeconds: 10, expiresAt };
  const job = await bulk(own, { filter, command, maxFailurePercent: 50 });
  t.match(job, {
    action: 'command',
    total: 8,
    state: 'pending',
    command: { name: 'blink', maxFailurePercent: 50, atOnce: 100 },
  });
  const events = follow(own, job.id);
  const isPlayed = ({ done, failed }: { done: number; failed: number }) => done === 4 && failed === 1;
  await until(() => read(own, job.id), isPlayed);
  await until(() => quiet.got.length === 1 && begun.got.length === 1);
  const states = () => madeBy(own, job.id).map(({ state }) => state);
  await until(states, (seen) => seen.includes('sent') && seen.includes('accepted'));
  t.match(await read(own, job.id), { state: 'running', done: 4, failed: 1, skipped: 0 });
  t.equal((await rowsOf(own, job.id, 'open')).length, 3);
  now += 10_001;
  await until(async () => (await read(own, job.id)).failed === 3);
  t.match(await read(own, job.id), { state: 'running' }, 'one device may still come');
  now += 60_000;
  const seen = await events;
  t.match(seen.at(-1), { state: 'succeeded', done: 4, failed: 4, skipped: 0, reason: null });
  t.ok(seen.length > 1, 'its progress is told');
  const rows = await rowsOf(own, job.id);
  t.equal(rows.length, 8);
  const stateOf = { done: 'succeeded', failed: /failed|timedOut|expired/ } as Record<string, string | RegExp>;
  for (const { deviceId, commandId, state } of rows)
    t.match(await commandOf(own, deviceId ?? '', commandId), {
      ...{ name: 'blink', payload: { times: 3 }, jobId: job.id },
      state: stateOf[state],
    });
  const said = (id: string) => rows.find(({ deviceId }) => deviceId === id)?.errors;
  t.match(said(failing.id), [{ message: /answered that it failed: \{"code":7\}/ }]);
  t.match(said(silent.id), [{ message: /not answered in time/ }]);
  t.match(said(working.id), [{ message: /not answered in time/ }]);
  t.match(said(away.id), [{ message: /not there in time/ }]);
  t.same(said(present(good[0]).id), []);
  t.equal(rows.at(-1)?.deviceId, away.id, 'those that are connected come first');
  const audit = await own.ok('GET', `/api/v1/audit?accountId=${own.accountId}&targetId=${job.id}`);
  t.match(
    audit.auditRecords.results.map(({ event }) => event),
    ['jobFinished', 'jobStarted'],
  );
});

t.test('no more commands are open than it says, and every device gets one', async (t) => {
  const { filter, units } = await fleet(service, 20);
  let jobId = '';
  const most: number[] = [];
  const players = await Promise.all(
    units.map((unit) =>
      play(service, unit, () => {
        most.push(Number(openOf(service, jobId)));
        return { status: 'succeeded' };
      }),
    ),
  );
  const job = await bulk(service, { filter, atOnce: 3 });
  jobId = job.id;
  t.match(await ended(service, job.id), { state: 'succeeded', done: 20 });
  t.same(
    players.map(({ got }) => got.length),
    players.map(() => 1),
  );
  t.ok(Math.max(...most) <= 3, `${most}`);
});

t.test('past the limit it fails, what is left is not sent, and a retry goes on with it', async (t) => {
  const { filter, units } = await fleet(service, 20);
  let answering = fails;
  const players = await Promise.all(units.map((unit) => play(service, unit, (got) => answering(got))));
  const job = await bulk(service, { filter, atOnce: 2 });
  const failed = await ended(service, job.id);
  t.match(failed, { state: 'failed', done: 0, skipped: 0, reason: /of . commands that have ended have failed/ });
  // Another may have been on its way when the fifth ended.
  const sent = madeBy(service, job.id);
  t.ok(sent.length >= 5 && sent.length <= 6, `${sent.length}`);
  await until(() => openOf(service, job.id) === 0);
  const over = await until(
    () => read(service, job.id),
    ({ failed }) => failed === sent.length,
  );
  t.match(over, { state: 'failed' });
  const left = await rowsOf(service, job.id, 'pending');
  t.equal(left.length, 20 - sent.length);
  t.ok(left.every(({ commandId }) => commandId === null));

  answering = succeeds;
  await service.ok('POST', `/api/v1/provisioning/jobs/${job.id}/retry`);
  t.match(await ended(service, job.id), {
    state: 'succeeded',
    total: 20,
    done: 20,
    failed: 0,
    skipped: 0,
    reason: null,
  });
  const heard = players.reduce((sum, { got }) => sum + got.length, 0);
  t.equal(heard, 20 + sent.length, 'those that had failed got another one');
});

t.test('the limit is looked at from five on, and a share that is just at it goes on', async (t) => {
  const four = await fleet(service, 4);
  for (const unit of four.units) await play(service, unit, fails);
  const few = await bulk(service, { filter: four.filter, maxFailurePercent: 0 });
  t.match(await ended(service, few.id), { state: 'succeeded', failed: 4 });

  const five = await fleet(service, 5);
  for (const [at, unit] of five.units.entries()) await play(service, unit, at === 0 ? fails : succeeds);
  const at = await bulk(service, { filter: five.filter, maxFailurePercent: 20 });
  t.match(await ended(service, at.id), { state: 'succeeded', done: 4, failed: 1 });
  const past = await bulk(service, { filter: five.filter, maxFailurePercent: 19 });
  t.match(await ended(service, past.id), { state: 'failed', done: 4, failed: 1 });
});

t.test('past the limit, a command that waits for its device never goes', async (t) => {
  const { filter, units } = await fleet(service, 7);
  const [away, ...there] = units as [Unit, ...Unit[]];
  const players = await Promise.all(there.map((unit) => play(service, unit, stays)));
  const job = await bulk(service, { filter });
  await until(() => players.every(({ got }) => got.length === 1));
  await Promise.all(players.map(({ got, reply }) => reply(present(got[0]).id, { status: 'failed' })));
  t.match(await ended(service, job.id), { state: 'failed' });
  await until(() => openOf(service, job.id) === 0);
  const over = await until(
    () => read(service, job.id),
    ({ failed }) => failed === 6,
  );
  t.match(over, { skipped: 0 }, 'several fail it at once');
  t.match(await rowsOf(service, job.id, 'pending'), [{ deviceId: away.id, commandId: null, errors: { length: 0 } }]);
  const back = await play(service, away, succeeds);
  const { command } = await service.ok('POST', `/api/v1/devices/${away.id}/commands?wait=1`, {
    body: { name: 'after' },
  });
  t.equal(command.state, 'succeeded');
  t.same(
    back.got.map(({ name }) => name),
    ['after'],
  );
  await service.ok('POST', `/api/v1/provisioning/jobs/${job.id}/retry`);
  await until(() => back.got.length === 2);
});

t.test('cancelled in the middle: what has not gone is cancelled, what has gone may end', async (t) => {
  const { filter, units } = await fleet(service, 10);
  const [one, two, ...away] = units as [Unit, Unit, ...Unit[]];
  const players = await Promise.all([one, two].map((unit) => play(service, unit, stays)));
  const job = await bulk(service, { filter, atOnce: 6 });
  await until(() => players.every(({ got }) => got.length === 1) && madeBy(service, job.id).length === 6);
  await until(
    () => storedRows(service, `SELECT 1 FROM "commands" WHERE "jobId" = ? AND "state" = 'sent'`, [job.id]).length === 2,
  );
  const { job: cancelled } = await service.ok('POST', `/api/v1/provisioning/jobs/${job.id}/cancel`);
  t.match(cancelled, { state: 'cancelled', done: 0, failed: 0, skipped: 8 });
  const states = madeBy(service, job.id).map(({ state }) => state);
  t.same(states.sort(), ['cancelled', 'cancelled', 'cancelled', 'cancelled', 'sent', 'sent']);
  t.equal((await rowsOf(service, job.id, 'skipped')).length, 8);
  for (const { got, reply } of players) await reply(present(got[0]).id, { status: 'succeeded' });
  await until(async () => (await read(service, job.id)).done === 2);
  t.match(await read(service, job.id), { state: 'cancelled', done: 2, failed: 0, skipped: 8 });
  const back = await play(service, present(away[0]), succeeds);
  const after = `/api/v1/devices/${present(away[0]).id}/commands?wait=1`;
  await service.ok('POST', after, { body: { name: 'after' } });
  t.same(
    back.got.map(({ name }) => name),
    ['after'],
  );
  t.match(await service.http('POST', `/api/v1/provisioning/jobs/${job.id}/retry`), { status: 400 });
});

t.test('a restart in the middle sends nothing twice and loses nothing', async (t) => {
  const directory = temporaryDirectory(t);
  const before = await startService(t, { directory });
  const { filter, units } = await fleet(before, 12);
  const heard: string[] = [];
  const hears: Answering = ({ id }) => {
    heard.push(id);
    return { status: 'succeeded' };
  };
  for (const unit of units.slice(0, 4)) await play(before, unit, hears);
  const job = await bulk(before, { filter, atOnce: 6 });
  await until(async () => (await read(before, job.id)).done === 4);
  await until(() => openOf(before, job.id) === 6);
  await before.close();
  const after = await startService(t, { directory });
  t.match(await read(after, job.id), { state: 'running', done: 4, failed: 0 });
  for (const unit of units) await play(after, unit, hears);
  t.match(await ended(after, job.id), { state: 'succeeded', done: 12, failed: 0, skipped: 0 });
  t.equal(heard.length, 12);
  t.equal(new Set(heard).size, 12);
  t.equal(madeBy(after, job.id).length, 12);
});

t.test('two callers at once: each job has its own commands, and a device gets one after the other', async (t) => {
  const { filter, units } = await fleet(service, 6);
  const login = { name: service.unique('Backend'), kind: 'backEnd', roleId: 'account:operator' };
  const application = await service.create('/applications', 'application', login);
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', {
    token: null,
    body: { accountId: service.accountId, appId: application.id, appToken: application.appToken },
  });
  const players = await Promise.all(units.map((unit) => play(service, unit, succeeds)));
  const jobs = await Promise.all([
    bulk(service, { filter, command: { name: 'one' }, atOnce: 2 }),
    bulk(service, { filter, command: { name: 'two' }, atOnce: 2 }, jwt),
  ]);
  t.match(await ended(service, jobs[0].id), { state: 'succeeded', done: 6, createdById: /.+/ });
  t.match(await ended(service, jobs[1].id, jwt), { state: 'succeeded', done: 6, createdById: application.id });
  for (const { got } of players) t.same(got.map(({ name }) => name).sort(), ['one', 'two']);

  const away = await fleet(service, 3);
  const lost = await bulk(service, { filter: away.filter, atOnce: 1 }, jwt);
  await until(() => openOf(service, lost.id) === 1);
  await service.ok('DELETE', `/api/v1/applications/${application.id}`);
  t.match(await ended(service, lost.id), { state: 'failed', done: 0, skipped: 1, reason: /no longer exists/ });
  t.equal(madeBy(service, lost.id).length, 1, 'it sends nothing for a caller that is gone');
});

t.test('who may not, gets nothing done', async (t) => {
  const organization = await service.organization();
  const { filter, units } = await fleet(service, 1);
  const command = { name: 'blink' };
  const refused = { status: 403, body: { error: { code: 21 } } };
  for (const roleId of ['organization:manager', 'organization:viewer']) {
    const { token } = await service.endUser(organization.id, { roleId });
    t.match(await post(service, { filter, command }, token), refused, roleId);
  }
  for (const roleId of ['account:support', 'account:auditor']) {
    const body = { name: service.unique('Backend'), kind: 'backEnd', roleId };
    const { id: appId, appToken } = await service.create('/applications', 'application', body);
    const login = { accountId: service.accountId, appId, appToken };
    const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', { token: null, body: login });
    t.match(await post(service, { filter, command }, jwt), refused, roleId);
  }
  const other = await service.account();
  t.match(await post(service, { filter, command }, other.admin), { status: 404, body: { error: { code: 100 } } });
  const own = { accountId: other.accountId, filter, command };
  const foreign = await service.http('POST', '/api/v1/commands/bulk', { body: own, token: other.admin });
  t.match(foreign, { status: 202, body: { job: { total: 0 } } }, 'devices of others match nothing');
  t.equal(storedRows(service, 'SELECT 1 FROM "commands" WHERE "deviceId" = ?', [present(units[0]).id]).length, 0);
});

t.test('what a product does not declare so is refused alone, and is no failure', async (t) => {
  const declared = {
    ...{ name: 'report', title: 'Report' },
    parameters: { type: 'object', properties: { interval: { type: 'integer', minimum: 1 } }, required: ['interval'] },
  };
  const strict = await fleet(service, 3, { commands: [declared] });
  const closed = await fleet(service, 3, { commandsOnly: true });
  const free = await fleet(service, 6);
  const organization = await service.organization();
  const units = [...strict.units, ...closed.units, ...free.units];
  for (const { id } of units) {
    const { device } = await service.ok('GET', `/api/v1/devices/${id}`);
    const headers = { etag: device.version };
    await service.ok('PUT', `/api/v1/devices/${id}`, { headers, body: { organizationId: organization.id } });
  }
  const players = await Promise.all(units.map((unit) => play(service, unit, succeeds)));
  const filter = { organizationId: organization.id };
  const command = { name: 'report', payload: { interval: 0 } };
  const job = await bulk(service, { filter, command, maxFailurePercent: 0 });
  t.match(await ended(service, job.id), { state: 'succeeded', done: 6, failed: 6 });
  const rows = await rowsOf(service, job.id, 'failed');
  const column = (id: string | null) => (strict.units.some((one) => one.id === id) ? 'payload/interval' : 'name');
  for (const { deviceId, commandId, errors } of rows) {
    t.equal(commandId, null);
    t.match(errors, [{ code: 106, column: column(deviceId) }]);
  }
  t.same(
    players.map(({ got }) => got.length),
    units.map((_, at) => (at < 6 ? 0 : 1)),
  );
});

t.test('what is wrong with a body is said at once', async (t) => {
  const { filter } = await fleet(service, 1);
  const command = { name: 'blink' };
  const refused = async (body: object, path: string, code = 106) =>
    t.match(
      await post(service, body),
      { status: 400, body: { error: { code, details: [{ path }] } } },
      JSON.stringify(body).slice(0, 100),
    );
  await refused({ command }, 'filter');
  await refused({ command, filter, fleetId: service.accountId }, 'filter');
  await refused({ command, fleetId: service.accountId }, 'fleetId', 102);
  await refused({ command, filter: { serialNumber: ' ' } }, 'filter.serialNumber');
  await refused({ command, filter: { below: true } }, 'filter.below');
  await refused({ command, filter, dryRun: true }, 'dryRun');
  await refused({ filter, command: { name: 'x', payload: 'x'.repeat(65_536) } }, 'command/payload');
  await refused({ filter, command: { name: 'x', expiresAt: '2020-01-01' } }, 'command/expiresAt');
  for (const body of [
    { command, filter: {} },
    { command, filter: { colour: 'red' } },
    { command, filter, atOnce: 0 },
    { command, filter, atOnce: 1001 },
    { command, filter, maxFailurePercent: 101 },
    { filter },
    { filter, command: { name: '' } },
  ])
    t.match(await post(service, body), { status: 400 }, JSON.stringify(body));
  const none = { accountId: service.accountId, filter, command };
  t.match(await service.http('POST', '/api/v1/commands/bulk', { body: none, token: null }), { status: 401 });
});

t.test('a device that is deleted, or whose command is cancelled, does not keep the job open', async (t) => {
  const { filter, units } = await fleet(service, 3);
  const [gone, called, good] = units as [Unit, Unit, Unit];
  const job = await bulk(service, { filter, maxFailurePercent: 0 });
  await until(() => openOf(service, job.id) === 3);
  const { device } = await service.ok('GET', `/api/v1/devices/${gone.id}`);
  await service.ok('DELETE', `/api/v1/devices/${gone.id}`, { headers: { etag: device.version } });
  const row = (await rowsOf(service, job.id)).find(({ deviceId }) => deviceId === called.id);
  await service.ok('DELETE', `/api/v1/devices/${called.id}/commands/${row?.commandId}`);
  const going = await until(
    () => read(service, job.id),
    ({ skipped }) => skipped === 2,
  );
  t.match(going, { state: 'running' });
  await play(service, good, succeeds);
  t.match(await ended(service, job.id), { state: 'succeeded', done: 1, failed: 0, skipped: 2 });
});

t.test('a thousand devices: rows leave in pages, and all of what waits is cancelled together', async (t) => {
  const template = await service.template();
  const rows = Array.from({ length: 1000 }, (_, at) => ({ serialNumber: `MANY-${at}` }));
  await provision(service, rows, `?template=${template.id}`);
  const filter = { deviceTemplateId: template.id };
  const job = await bulk(service, { filter, atOnce: 900 });
  t.match(job, { total: 1000 });
  await until(() => openOf(service, job.id) === 900);
  const page = async (query: string) =>
    (await service.ok('GET', `/api/v1/provisioning/jobs/${job.id}/rows?${query}`)).rows;
  t.match(await page('state=open&pageSize=1'), { meta: { count: 900 } });
  t.match(await page('state=pending&pageSize=1'), { meta: { count: 100 } });
  t.equal((await page('pageSize=1000')).results.length, 1000);
  const more = await bulk(service, { filter, atOnce: 50 });
  await until(() => openOf(service, more.id) === 50);
  t.match(
    await ended(service, (await bulk(service, { filter: { serialNumber: 'no such' } })).id),
    { total: 0 },
    'jobs that wait keep no other from its turn',
  );
  for (const { id } of [job, more])
    t.match((await service.ok('POST', `/api/v1/provisioning/jobs/${id}/cancel`)).job, {
      state: 'cancelled',
      skipped: 1000,
    });
  t.same([openOf(service, job.id), openOf(service, more.id)], [0, 0]);
});

t.end();
