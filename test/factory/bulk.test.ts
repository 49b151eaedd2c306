/** Bulk changes as jobs: what the single call does, for many devices, and the way back. */

import { changeStored, progressOf } from '../support/faults.ts';
import { follow, provision, rowsOf, unitsOf } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { closed, nextMessage, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let now = Date.parse('2026-06-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const post = (path: string, body?: object, token?: string) =>
  service.http('POST', `/api/v1${path}`, { ...(body && { body }), ...(token && { token }) });
const bulk = async (body: object) => {
  const answer = await post('/devices/jobs', body);
  if (answer.status !== 202) throw new Error(`a job answered ${answer.status}: ${answer.text}`);
  return (await follow(service, answer.body.job.id)).at(-1);
};
const undo = async (id: string) => {
  const answer = await post(`/devices/jobs/${id}/undo`);
  if (answer.status !== 202) throw new Error(`an undo answered ${answer.status}: ${answer.text}`);
  return (await follow(service, answer.body.job.id)).at(-1);
};
const read = (id: string) => service.http('GET', `/api/v1/devices/${id}`);
const make = async (prefix: string, count: number, organization = '') => {
  const rows = Array.from({ length: count }, (_, at) => ({ serialNumber: `${prefix}${at}` }));
  const job = await provision(service, rows, organization && `?organization=${organization}`);
  return unitsOf(service, job.id);
};

t.test('devices are deleted at once, with their connections, and come back with undo', async (t) => {
  const units = await make('DEL-', 30);
  const [kept] = await make('KEPT-', 1);
  const client = await service.connect(units[0]);
  const ended = closed(client);
  const job = await bulk({ action: 'delete', filter: { serialNumber: 'del-' } });
  t.match(job, { action: 'delete', state: 'succeeded', total: 30, done: 30, expires: null });
  await ended;
  for (const { deviceId } of units.slice(0, 3)) t.equal((await read(deviceId)).status, 410);
  t.equal((await read(kept.deviceId)).status, 200);
  await t.rejects(service.connect(units[0]), { code: 5 });
  const undone = await undo(job.id);
  t.match(undone, { action: 'undoDelete', done: 30, failed: 0 });
  t.equal((await read(units[29].deviceId)).status, 200);
  t.ok((await service.connect(units[0])).connected, 'it works without being flashed again');
  t.match((await service.ok('GET', `/api/v1/provisioning/jobs/${job.id}`)).job, { undone: /.+/ });
  t.match(await post(`/devices/jobs/${job.id}/undo`), { status: 400, body: { error: { code: 104 } } });
});

t.test('an undo leaves alone what has changed since', async (t) => {
  const [one, two, three] = await make('LATER-', 3);
  const job = await bulk({ action: 'delete', ids: [one.deviceId, two.deviceId, three.deviceId] });
  const trashed = await service.ok('GET', `/api/v1/trash/devices/${one.deviceId}`);
  const etag = (version: string) => ({ headers: { etag: version } });
  const back = await service.ok('POST', `/api/v1/trash/devices/${one.deviceId}/recover`, etag(trashed.device.version));
  now += 1000;
  await service.ok('DELETE', `/api/v1/devices/${one.deviceId}`, etag(back.device.version));
  const second = await service.ok('GET', `/api/v1/trash/devices/${two.deviceId}`);
  await service.ok('POST', `/api/v1/trash/devices/${two.deviceId}/recover`, etag(second.device.version));
  const undone = await undo(job.id);
  t.match(undone, { done: 1, failed: 2 });
  t.match(await rowsOf(service, undone.id), [
    { state: 'failed', deviceId: one.deviceId, errors: [{ message: /trash/ }] },
    { state: 'failed', deviceId: two.deviceId },
    { state: 'done', deviceId: three.deviceId, serialNumber: 'LATER-2' },
  ]);
  t.equal((await read(one.deviceId)).status, 410);
});

t.test('a move silences the old organization, and undo brings each back where it was', async (t) => {
  const [from, elsewhere, to] = [
    await service.organization(),
    await service.organization(),
    await service.organization(),
  ];
  const listener = await service.endUser(from.id);
  const units = [...(await make('MOVE-A', 2, from.id)), ...(await make('MOVE-B', 2, elsewhere.id))];
  const [first, second, third] = units;
  const client = await service.connect({ jwt: listener.token });
  const filter = service.topic(first.deviceId, '_updates/fields');
  await client.subscribeAsync(filter);
  const watch = await service.connect({ jwt: service.admin });
  await watch.subscribeAsync(service.topic('+', '_updates/fields'));
  const job = await bulk({ action: 'move', filter: { serialNumber: 'MOVE-' }, organizationId: to.id });
  t.match(job, { done: 4, action: 'move' });
  for (const { deviceId } of units) t.equal((await read(deviceId)).body.device.organizationId, to.id);
  t.match(await service.http('GET', `/api/v1/devices/${first.deviceId}`, { token: listener.token }), { status: 404 });
  const heard = nextMessage(watch, (topic) => topic === filter);
  client.on('message', () => t.fail('the former organization hears it'));
  const { device } = (await read(first.deviceId)).body;
  const changed = { headers: { etag: device.version }, body: { firmwareVersion: '2' } };
  await service.ok('PUT', `/api/v1/devices/${first.deviceId}`, changed);
  await heard;
  const { device: moved } = (await read(second.deviceId)).body;
  const away = { headers: { etag: moved.version }, body: { organizationId: null } };
  await service.ok('PUT', `/api/v1/devices/${second.deviceId}`, away);
  const undone = await undo(job.id);
  t.match(undone, { action: 'undoMove', done: 3, failed: 1 });
  t.equal((await read(first.deviceId)).body.device.organizationId, from.id);
  t.equal((await read(third.deviceId)).body.device.organizationId, elsewhere.id);
  t.equal((await read(second.deviceId)).body.device.organizationId, null);
  t.match(await rowsOf(service, undone.id, 'failed'), [{ deviceId: second.deviceId, errors: [{ message: /since/ }] }]);
});

t.test(
  'devices that stood side by side with one serial number come back together, unless another has come since',
  async (t) => {
    const side = async () =>
      (await service.ok('POST', '/api/v1/devices', { body: { accountId: service.accountId, serialNumber: 'SIDE' } }))
        .device;
    for (let count = 0; count < 3; count += 1) await side();
    const filter = { serialNumber: 'SIDE' };
    const first = await bulk({ action: 'delete', filter });
    t.match(await undo(first.id), { done: 3, failed: 0 });
    const second = await bulk({ action: 'delete', filter });
    now += 1000;
    const other = await side();
    t.match(await undo(second.id), { done: 0, failed: 3 });
    const left = (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=SIDE`)).devices;
    t.match(left, { meta: { count: 1 }, results: [{ id: other.id }] });
  },
);

t.test('new secrets end the old ones, and are results like those of a new unit', async (t) => {
  const units = await make('REGEN-', 3);
  const client = await service.connect(units[0]);
  const ended = closed(client);
  const ids = [...units.map(({ deviceId }) => deviceId), units[0].deviceId, '00000000-0000-7000-8000-000000000000'];
  const job = await bulk({ action: 'regenerate', ids });
  t.match(job, { done: 3, failed: 1, total: 4, expires: /.+/ });
  await ended;
  await t.rejects(service.connect(units[0]), { code: 4 });
  const fresh = await unitsOf(service, job.id);
  t.strictSame(
    fresh.map(({ deviceId, serialNumber, associationCode }) => [deviceId, serialNumber, associationCode]),
    units.map(({ deviceId, serialNumber }) => [deviceId, serialNumber, '']),
  );
  t.ok((await service.connect(fresh[0])).connected);
  t.match(await service.http('GET', `/api/v1/provisioning/jobs/${job.id}/labels`), { status: 400 });
  const refused = { status: 400, body: { error: { code: 104 } } };
  t.match(await post(`/provisioning/jobs/${job.id}/undo`), refused, 'a secret that is gone does not come back');
});

t.test('the selection is fixed when the job is made', async (t) => {
  await make('FIX-', 3);
  const answer = await post('/devices/jobs', { action: 'delete', filter: { serialNumber: 'FIX-' } });
  const [late] = await make('FIX-LATE-', 1);
  t.match((await follow(service, answer.body.job.id)).at(-1), { total: 3, done: 3 });
  t.equal((await read(late.deviceId)).status, 200);
  const none = await bulk({ action: 'delete', filter: { serialNumber: 'nobody has this' } });
  t.match(none, { state: 'succeeded', total: 0 });
});

t.test('a device whose serial number has been made again stays in the trash', async (t) => {
  const [unit] = await make('TWICE-', 1);
  const same = { serialNumber: 'BOTH-0' };
  const both = [await service.create('/devices', 'device', same), await service.create('/devices', 'device', same)];
  now += 1000;
  const job = await bulk({ action: 'delete', ids: [unit.deviceId, ...both.map(({ id }) => id)] });
  now += 1000;
  await make('TWICE-', 1, (await service.organization()).id);
  const undone = await undo(job.id);
  t.match(undone, { done: 2, failed: 1 }, 'those that stood side by side come back');
  const [row] = await rowsOf(service, undone.id, 'failed');
  t.match(row, { deviceId: unit.deviceId, errors: [{ message: /serial number/ }] });
  t.equal((await read(unit.deviceId)).status, 410);
});

t.test('a device whose serial number another has taken, or come back to, stays in the trash', async (t) => {
  const [renamed, recovered, beside] = await make('TAKEN-', 3);
  const change = async (method: string, path: string, version: string, body?: object) =>
    service.ok(method, `/api/v1${path}`, { headers: { etag: version }, ...(body && { body }) });
  const twin = async (serialNumber: string) => service.create('/devices', 'device', { serialNumber });
  const other = await twin('TAKEN-other');
  const former = await twin('TAKEN-1');
  await twin('TAKEN-2');
  await change('DELETE', `/devices/${former.id}`, former.version);
  now += 1000;
  const job = await bulk({ action: 'delete', ids: [renamed, recovered, beside].map(({ deviceId }) => deviceId) });
  now += 1000;
  await change('PUT', `/devices/${other.id}`, other.version, { serialNumber: 'TAKEN-0' });
  const { device } = await service.ok('GET', `/api/v1/trash/devices/${former.id}`);
  await change('POST', `/trash/devices/${former.id}/recover`, device.version);
  const undone = await undo(job.id);
  t.match(undone, { done: 1, failed: 2 }, 'entities that were next to it all the time do not matter');
  t.match(await rowsOf(service, undone.id), [
    { state: 'failed', deviceId: renamed.deviceId, errors: [{ message: /serial number/ }] },
    { state: 'failed', deviceId: recovered.deviceId, errors: [{ message: /serial number/ }] },
    { state: 'done', deviceId: beside.deviceId },
  ]);
});

t.test('what has been undone is not tried again', async (t) => {
  const [one, two] = await make('AGAIN-', 2);
  const remove = async (id: string) => {
    const { version } = (await read(id)).body.device;
    await service.ok('DELETE', `/api/v1/devices/${id}`, { headers: { etag: version } });
  };
  await remove(two.deviceId);
  const job = await bulk({ action: 'delete', ids: [one.deviceId, two.deviceId] });
  t.match(job, { done: 1, failed: 1 });
  await undo(job.id);
  const { device } = await service.ok('GET', `/api/v1/trash/devices/${two.deviceId}`);
  await service.ok('POST', `/api/v1/trash/devices/${two.deviceId}/recover`, { headers: { etag: device.version } });
  t.match(await post(`/provisioning/jobs/${job.id}/retry`), { status: 400, body: { error: { code: 106 } } });
  t.equal((await read(two.deviceId)).status, 200);
});

t.test('an undo that was cancelled goes on when it is tried again', async (t) => {
  const units = await make('HALF-', 1200);
  const job = await bulk({ action: 'delete', filter: { serialNumber: 'HALF-' } });
  const { body } = await post(`/devices/jobs/${job.id}/undo`);
  const cancelled = (await post(`/provisioning/jobs/${body.job.id}/cancel`)).body.job;
  t.match(cancelled, { state: 'cancelled' });
  t.ok(cancelled.skipped > 0, 'it was in the middle');
  t.equal((await post(`/provisioning/jobs/${body.job.id}/retry`)).status, 200);
  t.match((await follow(service, body.job.id)).at(-1), { state: 'succeeded', done: 1200, failed: 0, skipped: 0 });
  for (const unit of [units[0], units[1199]]) t.equal((await read(unit.deviceId)).status, 200);
});

t.test('a lost answer of a job, and of its undo, is found again after a crash', async (t) => {
  const [unit] = await make('LOST-', 1);
  const again = async (path: string, body: object) => {
    const send = () => service.http('POST', `/api/v1${path}`, { body, headers: { 'idempotency-key': path } });
    const first = await send();
    await follow(service, first.body.job.id);
    // As a process leaves it that ends before its answer.
    const left = 'UPDATE "idempotentAnswers" SET "status" = NULL, "answer" = NULL WHERE "entityId" = ?';
    await changeStored(service, left, [first.body.job.id]);
    t.match(await send(), { status: 202, body: { job: { id: first.body.job.id, done: 1 } } });
    return first.body.job.id;
  };
  const id = await again('/devices/jobs', { action: 'delete', ids: [unit.deviceId] });
  await again(`/devices/jobs/${id}/undo`, {});
});

t.test('a dry run says what would become of each device, and changes nothing', async (t) => {
  const [from, to] = [await service.organization(), await service.organization()];
  const [live, gone] = await make('DRY-', 2, from.id);
  const { device } = (await read(gone.deviceId)).body;
  await service.ok('DELETE', `/api/v1/devices/${gone.deviceId}`, { headers: { etag: device.version } });
  const before = (await read(live.deviceId)).body.device;
  const client = await service.connect(live);
  const ids = [live.deviceId, gone.deviceId];
  for (const [action, more] of [
    ['delete', {}],
    ['move', { organizationId: to.id }],
    ['regenerate', {}],
  ] as const) {
    const job = await bulk({ action, ids, dryRun: true, ...more });
    t.match(job, { action, dryRun: true, state: 'succeeded', total: 2, done: 1, failed: 1, expires: null });
    const rows = await rowsOf(service, job.id);
    t.match(rows, [
      { state: 'done', deviceId: live.deviceId },
      { state: 'failed', errors: [{ message: /.+/ }] },
    ]);
    const real = { status: 400, body: { error: { code: 104, message: /dry run/ } } };
    if (action !== 'regenerate') t.match(await post(`/devices/jobs/${job.id}/undo`), real);
    t.match(await service.http('GET', `/api/v1/provisioning/jobs/${job.id}/results`), { status: 400 });
  }
  const { version, organizationId } = (await read(live.deviceId)).body.device;
  t.strictSame([version, organizationId], [before.version, from.id]);
  t.ok(client.connected, 'nor does a connection end');
  t.ok((await service.connect(live)).connected, 'its secret is still its own');
});

t.test('what could hit more than was meant is refused', async (t) => {
  const { deviceId } = (await make('SAFE-', 1))[0];
  const refused: object[] = [
    {},
    { action: 'delete' },
    { action: 'delete', filter: {} },
    { action: 'delete', filter: { serialNumber: '' } },
    { action: 'delete', filter: { serialNumber: ' ', connected: false } },
    { action: 'delete', filter: { serialnumber: 'SAFE-' } },
    { action: 'delete', filter: { serialNumber: 'x'.repeat(1001) } },
    { action: 'delete', filter: { serialNumber: 'SAFE-' }, ids: [deviceId] },
    { action: 'delete', ids: [] },
    { action: 'delete', ids: [deviceId], dryRun: 'perhaps' },
    { action: 'delete', ids: [deviceId], organizationId: null },
    { action: 'move', ids: [deviceId] },
    { action: 'burn', ids: [deviceId] },
    { action: 'delete', ids: Array.from({ length: 50_001 }, (_, at) => String(at)) },
  ];
  for (const body of refused) {
    const answer = await post('/devices/jobs', body);
    t.match(answer, { status: 400, body: { error: { code: 106 } } }, JSON.stringify(body).slice(0, 100));
  }
  t.equal((await read(deviceId)).status, 200);
  const organization = await service.organization();
  const { token } = await service.endUser(organization.id);
  t.match(await post('/devices/jobs', { action: 'delete', ids: [deviceId] }, token), { status: 403 });
  const other = await provision(service, [{ serialNumber: 'SAFE-2' }]);
  t.match(await post(`/devices/jobs/${other.id}/undo`), { status: 400, body: { error: { code: 104 } } });
});

t.test('a device of another account is as one that does not exist', async (t) => {
  const { accountId, admin: token } = await service.account();
  const theirs = await service.create('/devices', 'device', { accountId, serialNumber: 'THEIRS' }, token);
  const job = await bulk({ action: 'delete', ids: [theirs.id, 'nothing'] });
  t.match(job, { done: 0, failed: 2 });
  const [foreign, none] = await rowsOf(service, job.id, 'failed');
  t.strictSame({ ...foreign, row: 0, deviceId: '' }, { ...none, row: 0, deviceId: '' });
  t.equal((await service.http('GET', `/api/v1/devices/${theirs.id}`, { token })).status, 200);
});

t.test('after 30 days nothing is undone', async (t) => {
  const [unit] = await make('OLD-', 1);
  const job = await bulk({ action: 'delete', ids: [unit.deviceId] });
  now += 30 * 86_400_000 + 1000;
  service.admin = (await service.loginAs('admin@example.com', 'correct horse battery')).jwt;
  t.match(await post(`/devices/jobs/${job.id}/undo`), { status: 400, body: { error: { code: 104 } } });
});

t.test('a job that is written on the event loop is written a few devices at a time', async (t) => {
  await make('SHARE-', 120);
  const told = await progressOf(service, () => bulk({ action: 'regenerate', filter: { serialNumber: 'SHARE-' } }));
  t.equal(told.at(-1), 120);
  const first = told.find((done) => done > 0);
  t.ok(first !== undefined && first <= 20, `its first share had ${first} devices`);
});

t.end();
