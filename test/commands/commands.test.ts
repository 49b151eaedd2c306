/** Commands: waiting, order, attempts, timeouts, expiry, cancelling, late answers, and who may send them. */
import type { MqttClient } from 'mqtt';
import { type Device, devices } from '../firmware/fleet.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { follow } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { closed, nextMessage, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';
import { until as untilTrue } from '../support/until.ts';

const t = await part(import.meta);

async function listen(
  service: Service,
  device: Device,
  options = {},
): Promise<MqttClient & { got: Array<Record<string, unknown>> }> {
  const client = await service.connect({ deviceId: device.id, secret: device.secret }, options);
  const got: Array<Record<string, unknown>> = [];
  client.on('message', (topic, payload) => topic.endsWith('/_commands') && got.push(JSON.parse(payload.toString())));
  return Object.assign(client, { got });
}

const subscribe = (service: Service, client: MqttClient, device: Device) =>
  client.subscribeAsync(service.topic(device.id, '_commands'), { qos: 1 });

function answer(service: Service, client: MqttClient, device: Device, reply: object) {
  return client.publishAsync(service.topic(device.id, '_commands/replies'), JSON.stringify(reply), { qos: 1 });
}

const send = async (service: Service, { id }: Device, body: object, token = service.admin) =>
  (await service.ok('POST', `/api/v1/devices/${id}/commands`, { body, token })).command;
const read = async (service: Service, { id }: Device, commandId: string) =>
  (await service.ok('GET', `/api/v1/devices/${id}/commands/${commandId}`)).command;

/** Waits until a command is as wanted. */
async function until(service: Service, device: Device, id: string, state: string) {
  let command = await read(service, device, id);
  await untilTrue(async () => {
    command = await read(service, device, id);
    return command.state === state;
  });
  return command;
}

const low = { SLIPWAY_COMMAND_BYTES_PER_ACCOUNT: '200000' };
let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('a command waits for its device, and its answer for the caller that asked', async (t) => {
  const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
  const queued = await send(service, device, { name: 'reboot', payload: { delay: 3 } });
  t.match(queued, { state: 'queued', attempt: 0, name: 'reboot', payload: { delay: 3 }, parallel: false });
  const client = await listen(service, device);
  const first = nextMessage(client, (topic) => topic.endsWith('/_commands'));
  await subscribe(service, client, device);
  const got = JSON.parse((await first).text);
  t.same(got, { id: queued.id, name: 'reboot', payload: { delay: 3 }, expiresAt: queued.expiresAt, attempt: 1 });
  t.match(await until(service, device, queued.id, 'sent'), { attempt: 1 });
  await answer(service, client, device, { id: queued.id, status: 'accepted' });
  t.equal((await read(service, device, queued.id)).state, 'accepted');
  await answer(service, client, device, { id: queued.id, status: 'succeeded', result: { uptime: 0 } });
  t.match(await read(service, device, queued.id), { state: 'succeeded', result: { uptime: 0 } });

  client.on('message', (topic, payload) => {
    if (!topic.endsWith('/_commands')) return;
    const reply = { id: JSON.parse(payload.toString()).id, status: 'failed', result: 'no' };
    // No promise: the test may end before the PUBACK is here.
    client.publish(service.topic(device.id, '_commands/replies'), JSON.stringify(reply), { qos: 1 });
  });
  const waited = await service.ok('POST', `/api/v1/devices/${device.id}/commands?wait=1`, {
    body: { name: 'measure' },
  });
  t.match(waited.command, { state: 'failed', result: 'no', attempt: 1 });
  const { commands } = await service.ok('GET', `/api/v1/devices/${device.id}/commands?state=failed`);
  t.match(commands, { results: [{ id: waited.command.id }], meta: { count: 1 } });
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&event=commandCreated`);
  t.equal(audit.auditRecords.meta.count, 2);
  const ofDevice = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${device.id}`);
  const sent = ofDevice.auditRecords.results.filter(({ event }) => event === 'commandCreated');
  t.match(sent, [{ details: { commandId: waited.command.id } }, { details: { commandId: queued.id } }]);
});

t.test('commands go in order, one at a time, except parallel ones', async (t) => {
  const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
  const ids: string[] = [];
  for (const name of ['one', 'two', 'three']) ids.push((await send(service, device, { name })).id);
  const parallel = await send(service, device, { name: 'parallel', parallel: true });
  const client = await listen(service, device);
  await subscribe(service, client, device);
  // A command is marked as sent before it is sent.
  await untilTrue(() => client.got.length >= 2);
  await until(service, device, parallel.id, 'sent');
  t.same(client.got.map(({ name }) => name).sort(), ['one', 'parallel']);
  for (const id of ids) {
    await until(service, device, id, 'sent');
    await answer(service, client, device, { id, status: 'succeeded' });
  }
  t.same(
    client.got.map(({ name }) => name).filter((name) => name !== 'parallel'),
    ['one', 'two', 'three'],
  );
});

t.test(
  'without an answer it goes again at the next connection, with the next attempt, also to a stored session',
  async (t) => {
    const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
    const stored = { clean: false, clientId: 'board' };
    const first = await listen(service, device, stored);
    await subscribe(service, first, device);
    const { id } = await send(service, device, { name: 'blink' });
    await until(service, device, id, 'sent');
    const isClosed = closed(first);
    first.stream.destroy();
    await isClosed;
    t.match(await until(service, device, id, 'queued'), { attempt: 1 });
    const second = await listen(service, device, stored);
    t.match(await until(service, device, id, 'sent'), { attempt: 2 });
    await untilTrue(() => second.got.length > 0);
    await answer(service, second, device, { id, status: 'succeeded' });
    await until(service, device, id, 'succeeded');
    t.same(
      second.got.map(({ attempt }) => attempt),
      [2],
      'no copy of the first attempt',
    );
  },
);

t.test('timeouts and expiry go by the clock, and a late answer is noted', async (t) => {
  let now = Date.parse('2026-03-01T00:00:00Z');
  const service = await startService(t, { clock: { now: () => now } });
  const [device, away] = (await devices(service, (await service.template()).id, 2)) as [Device, Device];
  const client = await listen(service, device);
  await subscribe(service, client, device);
  const slow = await send(service, device, { name: 'slow', timeoutSeconds: 10 });
  await until(service, device, slow.id, 'sent');
  now += 9000;
  await answer(service, client, device, { id: slow.id, status: 'accepted' });
  now += 9000;
  t.equal((await read(service, device, slow.id)).state, 'accepted', 'it runs again from accepted');
  now += 1001;
  await until(service, device, slow.id, 'timedOut');
  await answer(service, client, device, { id: slow.id, status: 'succeeded', result: 1 });
  t.match(await read(service, device, slow.id), { state: 'timedOut', lateReply: { status: 'succeeded', result: 1 } });
  const waiting = await send(service, away, {
    name: 'x',
    expiresAt: new Date(now + 5000).toISOString(),
    timeoutSeconds: 1,
  });
  now += 4999;
  t.equal((await read(service, away, waiting.id)).state, 'queued', 'a timeout does not run while it waits');
  now += 2;
  await until(service, away, waiting.id, 'expired');
});

t.test('cancelled at once: by DELETE, with its device, and when its maker loses the device', async (t) => {
  const [home, elsewhere] = [await service.organization(), await service.organization()];
  const { token } = await service.endUser(home.id);
  const template = await service.template();
  const [device, other] = (await devices(service, template.id, 2, { organizationId: home.id })) as [Device, Device];
  const { id } = await send(service, device, { name: 'a' }, token);
  const kept = await send(service, device, { name: 'b' });
  t.equal(
    (await service.ok('DELETE', `/api/v1/devices/${device.id}/commands/${id}`, { token })).command.state,
    'cancelled',
  );
  const lost = await send(service, device, { name: 'c' }, token);
  const version = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.version;
  await service.ok('PUT', `/api/v1/devices/${device.id}`, {
    body: { organizationId: elsewhere.id },
    headers: { etag: version },
  });
  t.equal((await read(service, device, lost.id)).state, 'cancelled');
  t.equal((await read(service, device, kept.id)).state, 'queued', "an admin's stays");
  t.match(await service.http('POST', `/api/v1/devices/${device.id}/commands`, { body: { name: 'd' }, token }), {
    status: 404,
  });
  const gone = await send(service, other, { name: 'e' });
  const current = (await service.ok('GET', `/api/v1/devices/${other.id}`)).device.version;
  await service.ok('DELETE', `/api/v1/devices/${other.id}`, { headers: { etag: current } });
  t.same(storedRows(service, 'SELECT "state" FROM "commands" WHERE "id" = ?', [gone.id]), [{ state: 'cancelled' }]);
});

t.test('an end-user that is moved or deleted loses its commands, and no one else does', async (t) => {
  const [home, elsewhere] = [await service.organization(), await service.organization()];
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1, { organizationId: home.id })) as [Device];
  const people = [await service.endUser(home.id), await service.endUser(home.id), await service.endUser(home.id)];
  const made: string[] = [];
  for (const { token } of people) made.push((await send(service, device, { name: 'x' }, token)).id);
  const versions = people.map(({ endUser }) => ({ headers: { etag: endUser.version } }));
  const pathOf = (n: number) => `/api/v1/end-users/${people[n]?.endUser.id}`;
  await service.ok('PUT', pathOf(0), { body: { organizationId: elsewhere.id }, ...versions[0] });
  t.equal((await read(service, device, made[0] ?? '')).state, 'cancelled');
  await service.ok('DELETE', pathOf(1), versions[1]);
  t.equal((await read(service, device, made[1] ?? '')).state, 'cancelled');
  t.equal((await read(service, device, made[2] ?? '')).state, 'queued');
});

t.test('it comes at QoS 1, waits a day when nothing else is said, and 30 days at most', async (t) => {
  const now = Date.parse('2026-03-01T00:00:00Z');
  const service = await startService(t, { clock: { now: () => now } });
  const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
  const day = 24 * 60 * 60_000;
  const first = await send(service, device, { name: 'a' });
  t.equal(Date.parse(first.expiresAt), now + day);
  t.equal(first.timeoutSeconds, 30);
  const path = `/api/v1/devices/${device.id}/commands`;
  const until = (time: number) => ({ body: { name: 'b', expiresAt: new Date(time).toISOString() } });
  t.equal((await service.http('POST', path, until(now + 30 * day))).status, 200);
  t.equal((await service.http('POST', path, until(now + 30 * day + 1))).status, 400);
  t.equal((await service.http('POST', path, until(now))).status, 400);
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const packet = new Promise<number>((resolve) => client.on('message', (_, __, { qos }) => resolve(qos)));
  await subscribe(service, client as MqttClient, device);
  t.equal(await packet, 1);
});

t.test('a back-end that is deleted leaves no command behind', async (t) => {
  const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
  const application = await service.create('/applications', 'application', { name: 'Backend', kind: 'backEnd' });
  const login = { accountId: service.accountId, appId: application.id, appToken: application.appToken };
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', { token: null, body: login });
  const { id } = await send(service, device, { name: 'x' }, jwt);
  const kept = await send(service, device, { name: 'y' });
  await service.ok('DELETE', `/api/v1/applications/${application.id}`);
  t.equal((await read(service, device, id)).state, 'cancelled');
  t.equal((await read(service, device, kept.id)).state, 'queued');
});

t.test('a device has so many open commands and no more, and bad ones are refused', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_COMMANDS_PER_DEVICE: '2' } });
  const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
  for (const name of ['a', 'b']) await send(service, device, { name });
  const path = `/api/v1/devices/${device.id}/commands`;
  const third = await service.http('POST', path, { body: { name: 'c' } });
  t.match(third, { status: 429, body: { error: { message: /SLIPWAY_COMMANDS_PER_DEVICE/ } } });
  for (const body of [{}, { name: '' }, { name: 'x', expiresAt: '2999-01-01' }, { name: 'x', timeoutSeconds: 0 }])
    t.match(await service.http('POST', path, { body }), { status: 400 }, JSON.stringify(body));
  t.match(await service.http('GET', `${path}/none`), { status: 404 });
});

t.test(
  'bytes of commands: the oldest that have ended go first, and those that have not ended keep their place',
  async (t) => {
    const service = await sharedService(t, low);
    const other = await service.account();
    const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
    const path = `/api/v1/devices/${device.id}/commands`;
    const used = async (token = service.admin) => {
      const { usage } = await service.ok('GET', '/api/v1/usage', { token });
      return usage.limits.find(({ name }) => name === 'commandBytes')?.used ?? -1;
    };
    const payload = 'x'.repeat(50_000);
    const ended: string[] = [];
    for (let n = 0; n < 6; n += 1) {
      const { id } = await send(service, device, { name: `${n}`, payload });
      await service.ok('DELETE', `${path}/${id}`);
      ended.push(id);
      t.ok((await used()) <= 200_000);
    }
    const left = async () => (await service.ok('GET', `${path}?pageSize=20`)).commands.results.map(({ id }) => id);
    t.same(await left(), ended.slice(3).reverse(), 'the three that ended last are left');
    t.match(await service.http('GET', `${path}/${ended[0]}`), { status: 404 });

    const open: string[] = [];
    for (let n = 0; n < 3; n += 1) open.push((await send(service, device, { name: 'open', payload })).id);
    t.same(await left(), [...open].reverse());
    const refused = { status: 429, body: { error: { code: -199, message: /SLIPWAY_COMMAND_BYTES_PER_ACCOUNT/ } } };
    t.match(await service.http('POST', path, { body: { name: 'more', payload } }), refused);
    t.equal(await used(), 3 * (500 + 4 + 50_002));
    t.equal(await used(other.admin), 0, 'others have their own');

    const client = await listen(service, device);
    const got = nextMessage(client, (topic) => topic.endsWith('/_commands'));
    await subscribe(service, client, device);
    t.equal(JSON.parse((await got).text).id, open[0]);
    await client.subscribeAsync(service.topic(device.id, '_rejected'), { qos: 1 });
    const why = nextMessage(client, (topic) => topic.endsWith('/_rejected'));
    await answer(service, client, device, { id: open[0], status: 'accepted', result: payload });
    t.match(JSON.parse((await why).text), { error: { message: /SLIPWAY_COMMAND_BYTES_PER_ACCOUNT/ } });
    t.equal((await read(service, device, open[0] ?? '')).state, 'sent', 'a result that does not end it has no room');
    await answer(service, client, device, { id: open[0], status: 'succeeded', result: 'short' });
    t.match(await read(service, device, open[0] ?? ''), { state: 'succeeded', result: 'short' });
    t.equal((await send(service, device, { name: 'more', payload })).state, 'queued', 'what has ended gives way');
  },
);

t.test('a result that has been acknowledged is there, even if it exceeds the limit of bytes', async (t) => {
  const service = await sharedService(t, low);
  const [device] = (await devices(service, (await service.template()).id, 1)) as [Device];
  const path = `/api/v1/devices/${device.id}/commands`;
  const body = { name: 'open', payload: 'x'.repeat(50_000) };
  const client = await listen(service, device);
  const sent = nextMessage(client, (topic) => topic.endsWith('/_commands'));
  await subscribe(service, client, device);
  const waited = service.ok('POST', `${path}?wait=1`, { body });
  const { id } = JSON.parse((await sent).text);
  const second = await send(service, device, body);
  await send(service, device, body);
  const result = 'y'.repeat(60_000);
  await answer(service, client, device, { id, status: 'succeeded', result });
  t.match((await waited).command, { id, state: 'succeeded', result });
  t.match(await read(service, device, id), { state: 'succeeded', result });

  await until(service, device, second.id, 'sent');
  await answer(service, client, device, { id: second.id, status: 'failed', result });
  t.match(await read(service, device, second.id), { state: 'failed', result });
  t.match(await service.http('GET', `${path}/${id}`), { status: 404 }, 'the oldest that has ended gives way');
  await answer(service, client, device, { id: second.id, status: 'succeeded', result: [result] });
  t.match(await read(service, device, second.id), { lateReply: { status: 'succeeded', result: [result] } });
});

t.test('who may not speak there is refused: replies of others, commands by anybody', async (t) => {
  const [device, other] = (await devices(service, (await service.template()).id, 2)) as [Device, Device];
  const { id } = await send(service, device, { name: 'x' });
  const client = await listen(service, other);
  await answer(service, client, other, { id, status: 'succeeded' });
  for (const bad of ['{', '[]', '{"id":1}', '{"id":"x","status":"done"}'])
    await client.publishAsync(service.topic(other.id, '_commands/replies'), bad, { qos: 1 });
  await client.publishAsync(service.topic(other.id, '_commands'), '{}', { qos: 1 });
  await client.publishAsync(service.topic(device.id, '_commands/replies'), '{}', { qos: 1 });
  t.ok(client.connected);
  t.equal((await read(service, device, id)).state, 'queued');
  await service.ok('GET', `/api/v1/devices/${other.id}/refusals`);
  const { refusals } = await service.ok('GET', `/api/v1/devices/${other.id}/refusals?pageSize=20`);
  t.equal(refusals.meta.count, 7);
  const { device: shown } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  t.same(
    shown.channels.map((one) => one.channelTemplateName),
    ['_log', '_rejected', '_set/fields', '_updates/fields'],
    'clients that expect four service channels find four',
  );
});

t.test('a job sends a command to many devices, in bulk', async (t) => {
  const template = await service.template();
  const made = await devices(service, template.id, 3);
  const filter = { deviceTemplateId: template.id };
  const body = { action: 'command', filter, command: { name: 'blink', payload: 3 } };
  const { job } = (await service.http('POST', '/api/v1/devices/jobs', { body })).body;
  t.match((await follow(service, job.id)).at(-1), { state: 'succeeded', done: 3 });
  for (const { id } of made) {
    const { commands } = await service.ok('GET', `/api/v1/devices/${id}/commands`);
    t.match(commands.results, [{ name: 'blink', payload: 3, state: 'queued' }]);
  }
  const without = await service.http('POST', '/api/v1/devices/jobs', { body: { action: 'command', filter } });
  t.match(without, { status: 400 });
});

t.test('a restart loses none: what was sent goes again with its attempt', async (t) => {
  const directory = temporaryDirectory(t);
  const before = await startService(t, { directory });
  const [device] = (await devices(before, (await before.template()).id, 1)) as [Device];
  const client = await listen(before, device);
  await subscribe(before, client, device);
  const { id } = await send(before, device, { name: 'a' });
  await until(before, device, id, 'sent');
  await before.close();
  const after = await startService(t, { directory });
  t.match(await read(after, device, id), { state: 'queued', attempt: 1 });
  const again = await listen(after, device);
  await subscribe(after, again, device);
  t.match(await until(after, device, id, 'sent'), { attempt: 2 });
});

t.end();
