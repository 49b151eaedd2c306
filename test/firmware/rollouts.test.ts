/** Rollouts as their makers and devices see them: stages, deadlines, failure limits, replacing, revocation, signed URLs. */
import { exec } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { writeProgress } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { backEnd, role } from '../support/roles.ts';
import { nextMessage, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import {
  asDevice,
  type Device,
  devices,
  offerTo,
  publish,
  rollOut,
  rollout,
  rolloutUntil,
  sha256,
  update,
} from './fleet.ts';

const t = await part(import.meta);

let service: Service;
/** On its clock tests go on. */
let withClock: Service;
let now = Date.parse('2026-03-01T00:00:00Z');
t.before(async () => {
  service = await sharedService(t);
  withClock = await startService(t, { clock: { now: () => now } });
});

t.test('a device polls, downloads, says that it has succeeded, and its firmwareVersion is set', async (t) => {
  const template = await service.template();
  const [device, other] = (await devices(service, template.id, 2)) as [Device, Device];
  t.same(await offerTo(service, device), { files: [] }, 'nothing yet');
  const bytes = randomBytes(200_000);
  const firmware = await publish(service, template.id, '2.0.0', { 'app.bin': bytes, 'data.bin': randomBytes(10) });
  const made = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  t.match(made, { state: 'scheduled', stage: null, stages: [{ percent: 100 }], target: { deviceIds: [device.id] } });
  await rolloutUntil(service, made.id, ({ counts }) => counts.pending === 1);

  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(service.topic('+', '_updates/fields'));
  const told = nextMessage(listener, (_, payload) => payload.includes('2.0.0'));

  const offer = await offerTo(service, device);
  t.match(offer, {
    packageId: firmware.id,
    firmwareVersion: '2.0.0',
    files: [{ name: 'app.bin', sha256: sha256(bytes) }, {}],
  });
  t.same(await offerTo(service, other), { files: [] }, 'no other device');
  t.equal((await rollout(service, made.id)).counts.offered, 1);
  const [{ url }] = offer.files;
  const whole = await fetch(url);
  t.equal(whole.headers.get('etag'), `"${sha256(bytes)}"`);
  t.equal(sha256(new Uint8Array(await whole.arrayBuffer())), sha256(bytes));
  const part = await fetch(url, { headers: { range: 'bytes=100-199', 'if-range': `"${sha256(bytes)}"` } });
  t.equal(part.status, 206);
  t.equal(part.headers.get('content-range'), 'bytes 100-199/200000');
  t.same(Buffer.from(await part.arrayBuffer()), bytes.subarray(100, 200));
  t.equal((await (await fetch(url, { headers: { range: 'bytes=-5' } })).arrayBuffer()).byteLength, 5);
  t.equal((await fetch(url, { headers: { range: 'bytes=200000-' } })).status, 416);
  const head = await fetch(url, { method: 'HEAD' });
  t.same([head.status, head.headers.get('content-length')], [200, '200000']);
  t.equal((await fetch(url, { headers: { 'if-none-match': `"${sha256(bytes)}"` } })).status, 304);
  const own = await asDevice(service, device, 'GET', `/firmware/files/${sha256(bytes)}`);
  t.equal(own.status, 200, 'with its secret instead of the signature');
  t.equal((await asDevice(service, other, 'GET', `/firmware/files/${sha256(bytes)}`)).status, 404);
  t.equal((await fetch(url.split('?')[0] ?? '')).status, 401);

  for (const state of ['downloading', 'downloaded', 'installing'])
    t.match(await asDevice(service, device, 'POST', '/firmware/status', { state, bytes: 200_000 }), { status: 200 });
  t.match((await service.ok('GET', `/api/v1/devices/${device.id}/firmware`)).firmware, {
    state: 'installing',
    bytes: 200_000,
  });
  t.match(await asDevice(service, device, 'POST', '/firmware/status', { state: 'succeeded' }), { status: 400 });
  const wrong = { state: 'installing', firmwareVersion: '9' };
  t.match(await asDevice(service, device, 'POST', '/firmware/status', wrong), { status: 400 });
  const done = { state: 'succeeded', firmwareVersion: '2.0.0' };
  t.match(await asDevice(service, device, 'POST', '/firmware/status', done), { status: 200 });
  t.match(JSON.parse((await told).text), { state: { firmwareVersion: '2.0.0' } });
  t.match(await asDevice(service, device, 'POST', '/firmware/status', done), { status: 200 }, 'said again');
  t.match(await asDevice(service, other, 'POST', '/firmware/status', done), { status: 404 });
  const ended = await rollout(service, made.id);
  t.match(ended, { state: 'finished', counts: { succeeded: 1, pending: 0, offered: 0 } });
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.firmwareVersion, '2.0.0');
  const log = () => service.ok('GET', `/api/v1/devices/${device.id}/logs?text=2.0.0`);
  await until(async () => (await log()).logs.results.length > 0);
  t.match((await log()).logs.results, [{ message: 'Firmware 2.0.0 is installed.', severity: 'info' }]);
  t.equal((await fetch(url)).status, 410, 'the offer has ended');
  const listed = await service.ok('GET', `/api/v1/firmware/rollouts?accountId=${service.accountId}&state=finished`);
  t.match(listed.firmwareRollouts.results, [{ id: made.id, target: { deviceCount: 1 }, counts: { succeeded: 1 } }]);
  const rows = await service.ok('GET', `/api/v1/firmware/rollouts/${made.id}/devices?state=succeeded`);
  t.match(rows.devices, { results: [{ deviceId: device.id, stage: 1, state: 'succeeded' }], meta: { count: 1 } });
});

t.test(
  'stages take devices up by a hash of their ids, and the rollout pauses itself at the failure limit',
  async (t) => {
    const service = await withClock.inNewAccount();
    const template = await service.template();
    const fleet = await devices(service, template.id, 20);
    const firmware = await publish(service, template.id, '2.0.0');
    const stages = [{ percent: 1, pauseSeconds: 60 }, { percent: 50, pauseSeconds: 60 }, { percent: 100 }];
    const { id } = await rollOut(service, firmware, {
      target: { filter: { deviceTemplateId: template.id } },
      stages,
      startAt: new Date(now + 1000).toISOString(),
    });
    t.equal((await rollout(service, id)).state, 'scheduled');
    now += 1000;
    const first = await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
    t.match(first, { state: 'running', stage: 1 });
    now += 60_000;
    await rolloutUntil(service, id, ({ counts, stage }) => stage === 2 && counts.pending === 10);
    const taken = (await service.ok('GET', `/api/v1/firmware/rollouts/${id}/devices?pageSize=100`)).devices.results;
    t.equal(taken.filter(({ stage }) => stage === 1).length, 1);
    const members = fleet.filter((device) =>
      taken.some(({ deviceId, stage }) => deviceId === device.id && stage === 2),
    );
    t.equal(members.length, 9);
    const [a, b, c, d, e, f] = members as [Device, Device, Device, Device, Device, Device];
    for (const device of [a, b, c]) await update(service, device);
    await update(service, d, 'failed');
    t.equal((await rollout(service, id)).state, 'running', 'four have ended');
    await update(service, e, 'failed');
    const paused = await rollout(service, id);
    t.match(paused, { state: 'paused', reason: /2 of 5 devices/, counts: { failed: 2, succeeded: 3 } });
    t.same(await offerTo(service, f), { files: [] }, 'nothing new is offered');
    now += 120_000;
    t.equal((await service.ok('POST', `/api/v1/firmware/rollouts/${id}/pause`)).firmwareRollout.state, 'paused');
    t.equal((await service.ok('POST', `/api/v1/firmware/rollouts/${id}/resume`)).firmwareRollout.state, 'running');
    await rolloutUntil(service, id, ({ stage, counts }) => stage === 3 && counts.pending === 15);
    for (const device of fleet.filter(({ id: one }) => ![a, b, c, d, e].some(({ id: other }) => one === other)))
      await update(service, device);
    const ended = await rollout(service, id);
    t.match(ended, { state: 'finished', counts: { succeeded: 18, failed: 2 } });
    const again = await service.ok('POST', `/api/v1/firmware/rollouts/${id}/retry`);
    t.match(again.firmwareRollout, { state: 'running', counts: { pending: 2, failed: 0 } });
    for (const device of [d, e]) t.match(await update(service, device), { status: 200 });
    t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 20 } });
  },
);

t.test('a further failure after a resume pauses again', async (t) => {
  const template = await service.template();
  const fleet = await devices(service, template.id, 8);
  const firmware = await publish(service, template.id, '2');
  const { id } = await rollOut(service, firmware, { target: { deviceIds: fleet.map((one) => one.id) } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 8);
  for (const device of fleet.slice(0, 5)) await update(service, device, 'failed');
  t.equal((await rollout(service, id)).state, 'paused');
  await service.ok('POST', `/api/v1/firmware/rollouts/${id}/resume`);
  await update(service, fleet[5] as Device);
  t.equal((await rollout(service, id)).state, 'running', 'a success does not pause it');
  await update(service, fleet[6] as Device, 'failed');
  t.equal((await rollout(service, id)).state, 'paused');
  await service.ok('POST', `/api/v1/firmware/rollouts/${id}/cancel`);
  t.match(await rollout(service, id), { state: 'cancelled', counts: { failed: 6, succeeded: 1, cancelled: 1 } });
});

t.test(
  'a stage whose only device fails pauses the rollout; who comes later belongs to no stage that has begun',
  async (t) => {
    const template = await service.template();
    await devices(service, template.id, 5);
    const firmware = await publish(service, template.id, '2');
    const target = { filter: { deviceTemplateId: template.id } };
    const { id } = await rollOut(service, firmware, { target });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 5);
    const [late] = (await devices(service, template.id, 1)) as [Device];
    t.same(await offerTo(service, late), { files: [] });
    await service.ok('POST', `/api/v1/firmware/rollouts/${id}/cancel`);
    const staged = await rollOut(service, firmware, {
      target,
      stages: [{ percent: 10, pauseSeconds: 60 }, { percent: 100 }],
    });
    await rolloutUntil(service, staged.id, ({ counts }) => counts.pending === 1);
    const { devices: begun } = await service.ok('GET', `/api/v1/firmware/rollouts/${staged.id}/devices`);
    const device = { id: begun.results[0].deviceId, secret: await service.credential(begun.results[0].deviceId) };
    await update(service, device, 'failed');
    t.match(await rollout(service, staged.id), { state: 'paused', stage: 1, reason: /1 of 1 devices/ });
  },
);

t.test('a deadline ends what has not ended, also while paused; URLs end with it', async (t) => {
  const service = await withClock.inNewAccount();
  const template = await service.template();
  const fleet = (await devices(service, template.id, 3)) as [Device, Device, Device];
  const firmware = await publish(service, template.id, '2');
  const { id } = await rollOut(service, firmware, {
    target: { deviceIds: fleet.map((one) => one.id) },
    deviceDeadlineSeconds: 100,
  });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 3);
  const { files } = await offerTo(service, fleet[0]);
  t.equal((await fetch(files[0].url)).status, 200);
  await service.ok('POST', `/api/v1/firmware/rollouts/${id}/pause`);
  now += 100_001;
  t.equal((await fetch(files[0].url)).status, 403, 'expired');
  const ended = await rolloutUntil(service, id, ({ state }) => state === 'finished');
  t.match(ended.counts, { timedOut: 3 });
  const late = await asDevice(service, fleet[0], 'POST', '/firmware/status', {
    state: 'succeeded',
    firmwareVersion: '2',
  });
  t.match(late, { status: 200, body: { firmware: { state: 'timedOut', firmwareVersion: '2' } } });
  t.match((await service.ok('GET', `/api/v1/devices/${fleet[0].id}`)).device, { firmwareVersion: '2' });
  t.match((await rollout(service, id)).counts, { timedOut: 3 }, 'the row stays as it ended');
});

/** What a device says that it runs, and what the answer is. */
const says = (device: Device, firmwareVersion: string) =>
  asDevice(service, device, 'POST', '/firmware/status', { state: 'succeeded', firmwareVersion });
const shown = async ({ id }: Device) => (await service.ok('GET', `/api/v1/devices/${id}`)).device;
const rowOf = async ({ id }: Device) => (await service.ok('GET', `/api/v1/devices/${id}/firmware`)).firmware;

t.test(
  'the registry has the version that a device says it runs; of an update that it had the row says so',
  async (t) => {
    const template = await service.template();
    const fleet = (await devices(service, template.id, 3, { firmwareVersion: '1' })) as [Device, Device, Device];
    const [other, fallsBack, waits] = fleet;
    t.match(await shown(other), { firmwareVersion: '1', firmwareVersionSource: 'api', firmwareVersionTime: String });
    const target = { deviceIds: fleet.map(({ id }) => id) };
    const { id } = await rollOut(service, await publish(service, template.id, '2'), { target, maxFailurePercent: 100 });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 3);

    t.match(
      await says(waits, '1'),
      { status: 200, body: { firmware: { state: 'pending' } } },
      'nothing was offered yet',
    );
    t.match(await shown(waits), { firmwareVersion: '1', firmwareVersionSource: 'device' });
    await offerTo(service, other);
    t.match(await says(other, '1.5'), { status: 200, body: { firmware: { state: 'failed', firmwareVersion: '2' } } });
    const { firmwareVersionTime, ...device } = await shown(other);
    t.match(device, { firmwareVersion: '1.5', firmwareVersionSource: 'device', lastModifiedById: other.id });
    t.match(await rowOf(other), { state: 'failed', code: null, message: 'running 1.5' });
    const { version } = device;
    await says(other, '1.5');
    t.match(await shown(other), { version, firmwareVersionTime }, 'said again it is the same');
    t.match(await says(other, '2'), { status: 200, body: { firmware: { state: 'failed' } } });
    t.match(await shown(other), { firmwareVersion: '2' }, 'and what it runs later is noted too');

    await update(service, fallsBack);
    t.match(await rowOf(fallsBack), { state: 'succeeded' });
    t.match(await says(fallsBack, '1'), { status: 200, body: { firmware: { state: 'failed' } } });
    t.match(await rowOf(fallsBack), { state: 'failed', message: 'running 1' });
    t.match(await shown(fallsBack), { firmwareVersion: '1', firmwareVersionSource: 'device' });
    t.match((await rollout(service, id)).counts, { failed: 2, succeeded: 0, pending: 1 });
    const log = async () => (await service.ok('GET', `/api/v1/devices/${fallsBack.id}/logs?text=running`)).logs.results;
    await until(async () => (await log()).length > 0);
    t.match(await log(), [{ message: 'Firmware 2 failed: running 1', severity: 'error' }]);
    const again = await service.ok('POST', `/api/v1/firmware/rollouts/${id}/retry`);
    t.match(again.firmwareRollout, { state: 'running' });
    t.equal((await offerTo(service, fallsBack)).firmwareVersion, '2');
  },
);

t.test('an update that a newer one has replaced may still end: the newer one is still to come', async (t) => {
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const target = { deviceIds: [device.id] };
  const older = await rollOut(service, await publish(service, template.id, '1'), { target });
  await rolloutUntil(service, older.id, ({ counts }) => counts.pending === 1);
  await offerTo(service, device);
  const newer = await rollOut(service, await publish(service, template.id, '2'), { target });
  await rolloutUntil(service, newer.id, ({ counts }) => counts.pending === 1);
  t.equal((await offerTo(service, device)).firmwareVersion, '2');
  t.match(await says(device, '1'), { status: 200, body: { firmware: { state: 'offered', firmwareVersion: '2' } } });
  t.match(await shown(device), { firmwareVersion: '1', firmwareVersionSource: 'device' });
  t.match(await says(device, '0.9'), { status: 200, body: { firmware: { state: 'failed' } } });
});

t.test('a device that runs the version already needs no update, unless its template says so', async (t) => {
  const template = await service.template();
  t.equal(template.skipSameVersion, true);
  const [runs, later, needs] = (await devices(service, template.id, 3, { firmwareVersion: '1' })) as [
    Device,
    Device,
    Device,
  ];
  const target = { deviceIds: [runs.id, later.id, needs.id] };
  const older = await rollOut(service, await publish(service, template.id, '1.5'), { target });
  await rolloutUntil(service, older.id, ({ counts }) => counts.pending === 3);
  await says(runs, '2');
  const firmware = await publish(service, template.id, '2');
  const { id } = await rollOut(service, firmware, { target });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 2);
  t.match(await rowOf(runs), { rolloutId: id, state: 'succeeded', message: 'It ran this version already.' });
  t.same(await offerTo(service, runs), { files: [] });
  t.match(await rollout(service, older.id), { state: 'finished', counts: { superseded: 3 } });
  await service.ok('PUT', `/api/v1/devices/${later.id}`, {
    headers: { etag: (await shown(later)).version },
    body: { firmwareVersion: '2' },
  });
  t.same(await offerTo(service, later), { files: [] }, 'known before the offer');
  await update(service, needs);
  t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 3 } });

  const path = `/api/v1/devices/templates/${template.id}` as const;
  const current = (await service.ok('GET', path)).deviceTemplate;
  const changed = { headers: { etag: current.version }, body: { skipSameVersion: false } };
  t.equal((await service.ok('PUT', path, changed)).deviceTemplate.skipSameVersion, false);
  const again = await rollOut(service, firmware, { target });
  await rolloutUntil(service, again.id, ({ counts }) => counts.pending === 3);
  t.equal((await offerTo(service, runs)).firmwareVersion, '2');
});

t.test('a newer rollout takes the place of an older one, never the other way round', async (t) => {
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const target = { deviceIds: [device.id] };
  const one = await publish(service, template.id, '1');
  const two = await publish(service, template.id, '2');
  const soon = new Date(Date.now() + 2000).toISOString();
  const older = await rollOut(service, one, { target });
  const oldest = await rolloutUntil(service, older.id, ({ counts }) => counts.pending === 1);
  t.equal(oldest.state, 'running');
  const { files } = await offerTo(service, device);
  const late = await rollOut(service, one, { target, startAt: soon });
  const newer = await rollOut(service, two, { target });
  await rolloutUntil(service, newer.id, ({ counts }) => counts.pending === 1);
  t.match(await rollout(service, older.id), { state: 'finished', counts: { superseded: 1 } });
  t.equal((await fetch(files[0].url)).status, 410);
  t.equal((await offerTo(service, device)).firmwareVersion, '2');
  await rolloutUntil(service, late.id, ({ state }) => state === 'finished');
  t.match(await rollout(service, late.id), { counts: { superseded: 1 } });
  t.equal((await offerTo(service, device)).firmwareVersion, '2', 'the newer one stays');
});

t.test('a retry takes the device back from an older rollout that has taken it up meanwhile', async (t) => {
  const service = await withClock.inNewAccount();
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const target = { deviceIds: [device.id] };
  const startAt = new Date(now + 60_000).toISOString();
  const older = await rollOut(service, await publish(service, template.id, '1'), { target, startAt });
  const newer = await rollOut(service, await publish(service, template.id, '2'), { target });
  await rolloutUntil(service, newer.id, ({ counts }) => counts.pending === 1);
  await update(service, device, 'failed');
  now += 60_000;
  await rolloutUntil(service, older.id, ({ counts }) => counts.pending === 1);
  const { url } = (await offerTo(service, device)).files[0];
  const again = await service.ok('POST', `/api/v1/firmware/rollouts/${newer.id}/retry`);
  t.match(again.firmwareRollout, { state: 'running', counts: { pending: 1, failed: 0 } });
  t.match(await rollout(service, older.id), { state: 'finished', counts: { superseded: 1 } });
  // How far the download of the former offer had come may be written now.
  await writeProgress(service, newer.id, { [device.id]: 500 });
  t.equal((await rollout(service, newer.id)).counts.pending, 1);
  t.equal((await fetch(url)).status, 410);
  t.equal((await offerTo(service, device)).firmwareVersion, '2');
});

t.test(
  'how far downloads have come is written for all devices at once, and for those that have ended not at all',
  async (t) => {
    const template = await service.template();
    const made = (await devices(service, template.id, 3)) as [Device, Device, Device];
    const firmware = await publish(service, template.id, '2');
    const { id: rolloutId } = await rollOut(service, firmware, { target: { deviceIds: made.map(({ id }) => id) } });
    await rolloutUntil(service, rolloutId, ({ counts }) => counts.pending === 3);
    await asDevice(service, made[2], 'POST', '/firmware/status', { state: 'failed' });
    const received = Object.fromEntries(made.map(({ id }, n) => [id, 500 + n]));
    t.same(await writeProgress(service, rolloutId, received), [rolloutId]);
    const path = `/api/v1/firmware/rollouts/${rolloutId}/devices`;
    const { results } = (await service.ok('GET', path)).devices;
    t.same(
      made.map(({ id }) => results.find(({ deviceId }) => deviceId === id)).map((one) => [one?.state, one?.bytes]),
      [
        ['downloading', 500],
        ['downloading', 501],
        ['failed', null],
      ],
    );
  },
);

t.test('forged, altered and foreign URLs are refused', async (t) => {
  const template = await service.template();
  const [device, other] = (await devices(service, template.id, 2)) as [Device, Device];
  const firmware = await publish(service, template.id, '2', { 'app.bin': randomBytes(100) });
  const secret = await publish(service, template.id, '3', { 'app.bin': randomBytes(100) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  const [{ url }] = (await offerTo(service, device)).files;
  const offer = new URL(url).searchParams.get('offer') ?? '';
  const end = offer.lastIndexOf('.');
  const [claim, signature] = [offer.slice(0, end), offer.slice(end + 1)];
  const altered = (change: (url: URL) => void) => {
    const changed = new URL(url);
    change(changed);
    return fetch(changed).then(({ status }) => status);
  };
  t.equal(await altered(() => {}), 200);
  for (const other of [`${claim}.${'x'.repeat(43)}`, claim, `${claim}.`, signature, `.${signature}`, '.', ''])
    t.equal(await altered((one) => one.searchParams.set('offer', other)), 403, other);
  t.equal(await altered((one) => (one.pathname = one.pathname.replace(/[^/]*$/, secret.files[0]?.sha256 ?? ''))), 403);
  t.equal(await altered((one) => (one.pathname = one.pathname.replace(/[^/]*$/, '..%2f..%2fregistry.db'))), 403);
  t.equal(await altered((one) => one.searchParams.set('offer', offer.replace(device.id, other.id))), 403);
  t.equal(await altered((one) => one.searchParams.set('offer', `${claim}0.${signature}`)), 403, 'a later deadline');
});

t.test(
  'the URL of an offer goes through a shell unquoted; one of an earlier release works until its deadline',
  async (t) => {
    const template = await service.template();
    const [device] = (await devices(service, template.id, 1)) as [Device];
    const bytes = randomBytes(1000);
    const firmware = await publish(service, template.id, '2', { 'app.bin': bytes });
    const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
    const [{ url }] = (await offerTo(service, device)).files;
    const { stdout } = await promisify(exec)(`curl -s ${url}`, { encoding: 'buffer' });
    t.equal(sha256(stdout), sha256(bytes));
    const earlier = new URL(url);
    const [claim = '', signature = ''] = (earlier.searchParams.get('offer') ?? '').split(/\.(?=[^.]*$)/);
    earlier.search = `${new URLSearchParams({ offer: claim, signature })}`;
    t.equal((await fetch(earlier)).status, 200);
    earlier.searchParams.set('signature', 'x'.repeat(43));
    t.equal((await fetch(earlier)).status, 403);
  },
);

t.test('the answer to a new rollout says what its target matches now, and what its filter leaves out', async (t) => {
  const [template, other] = [await service.template(), await service.template()];
  const fleet = await devices(service, template.id, 3, { firmwareVersion: '1.4' });
  await devices(service, template.id, 2);
  await devices(service, other.id, 1);
  const firmware = await publish(service, template.id, '2');
  const inAnHour = { startAt: new Date(Date.now() + 3_600_000).toISOString() };
  const matched = async (target: object) => (await rollOut(service, firmware, { target, ...inAnHour })).matched;
  const none = 'No device matches the target.';
  const two = '2 devices have no firmwareVersion: the filter does not match them.';
  const cases: Array<[target: object, answer: object]> = [
    [{ filter: { firmwareVersion: '1.*' } }, { devices: 3, withoutFirmwareVersion: 2, message: two }],
    [{ filter: { firmwareVersion: '9' } }, { devices: 0, withoutFirmwareVersion: 2, message: `${none} ${two}` }],
    [
      { filter: { firmwareVersion: '1.*', serialNumber: 'nowhere' } },
      { devices: 0, withoutFirmwareVersion: 0, message: none },
    ],
    [
      { filter: { firmwareVersion: '1.*', serialNumber: 'S*' } },
      { devices: 3, withoutFirmwareVersion: 2, message: two },
    ],
    [{ filter: { serialNumber: 'nowhere' } }, { devices: 0, message: none }],
    [{ filter: { deviceTemplateId: template.id } }, { devices: 5 }],
    [{ organizationId: (await service.organization()).id }, { devices: 0, message: none }],
    [{ deviceIds: [fleet[0]?.id, fleet[1]?.id, fleet[0]?.id] }, { devices: 2 }],
  ];
  for (const [target, answer] of cases) t.strictSame(await matched(target), answer, JSON.stringify(target));
  const { id } = await rollOut(service, firmware, { target: { filter: { serialNumber: 'nowhere' } } });
  const ended = await rolloutUntil(service, id, ({ state }) => state === 'finished');
  t.match(ended, { reason: 'No device has matched the target.', matched: undefined });
});

t.test('what a rollout may not be is refused', async (t) => {
  const [template, another] = [await service.template(), await service.template()];
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const [foreign] = (await devices(service, another.id, 1)) as [Device];
  const firmware = await publish(service, template.id, '2');
  const draft = await service.create('/firmware/packages', 'firmwarePackage', {
    deviceTemplateId: template.id,
    name: 'draft',
    firmwareVersion: '1',
  });
  const target = { deviceIds: [device.id] };
  const refused = async (body: object, code: number, firmwarePackageId = firmware.id) => {
    const all = { accountId: service.accountId, firmwarePackageId, target, ...body };
    for (const path of ['', '/preview']) {
      const answer = await service.http('POST', `/api/v1/firmware/rollouts${path}`, { body: all });
      t.match(answer, { status: 400, body: { error: { code } } }, `${path} ${JSON.stringify(body)}`);
    }
  };
  await refused({}, 106, draft.id);
  await refused({}, 102, device.id);
  await refused({ target: { deviceIds: [foreign.id] } }, 102);
  await refused({ target: { filter: { deviceTemplateId: another.id } } }, 102);
  await refused({ target: { organizationId: device.id } }, 102);
  await refused({ target: {} }, 106);
  await refused({ target: { filter: { colour: 'red' } } }, 106);
  await refused({ target: { filter: { firmwareVersion: '*' } } }, 106);
  await refused({ target: { filter: { serialNumber: 'x'.repeat(1001) } } }, 106);
  await refused({ target: { ...target, organizationId: device.id } }, 106);
  await refused({ stages: [{ percent: 50 }] }, 106);
  await refused({ stages: [{ percent: 50 }, { percent: 10 }, { percent: 100 }] }, 106);
  await refused({ deviceDeadlineSeconds: 0 }, 106);
  await refused({ startAt: 'soon' }, 106);
});

t.test('a filter with a pattern, and an organization with what is below it, choose the devices', async (t) => {
  const template = await service.template();
  const above = await service.organization();
  const below = await service.organization({ parentId: above.id });
  const [one] = await devices(service, template.id, 1, { firmwareVersion: '1.4', organizationId: below.id });
  await devices(service, template.id, 1, { firmwareVersion: '2.1.4' });
  const firmware = await publish(service, template.id, '3');
  for (const target of [{ filter: { firmwareVersion: '1.*' } }, { organizationId: above.id }]) {
    const { id } = await rollOut(service, firmware, { target });
    await rolloutUntil(service, id, ({ counts }) => counts.pending > 0);
    const { devices: listed } = await service.ok('GET', `/api/v1/firmware/rollouts/${id}/devices`);
    t.same(
      listed.results.map(({ deviceId }) => deviceId),
      [one?.id],
    );
  }
});

t.test('an end-user starts the update of its device where the rollout asks for consent', async (t) => {
  const template = await service.template();
  const home = await service.organization();
  const { token } = await service.endUser(home.id);
  const stranger = await service.endUser((await service.organization()).id);
  const [device] = (await devices(service, template.id, 1, { organizationId: home.id })) as [Device];
  const firmware = await publish(service, template.id, '2');
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] }, consent: 'user' });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  t.same(await offerTo(service, device), { files: [] });
  const path = `/api/v1/devices/${device.id}/firmware`;
  t.match(await service.http('POST', `${path}/install`, { token: stranger.token }), { status: 404 });
  t.match(await service.http('GET', path, { token: stranger.token }), { status: 404 });
  t.match((await service.ok('GET', path, { token })).firmware, {
    state: 'pending',
    consentNeeded: true,
    firmwareVersion: '2',
  });
  await service.ok('POST', `${path}/install`, { token });
  t.equal((await offerTo(service, device)).firmwareVersion, '2');
  t.match(
    await service.http('POST', '/api/v1/firmware/rollouts', {
      token,
      body: { accountId: service.accountId, firmwarePackageId: firmware.id, target: {} },
    }),
    { status: 403 },
  );
});

t.test('a rollout pauses when its maker may not roll out any more; another one resumes it', async (t) => {
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const firmware = await publish(service, template.id, '7.0.0', { 'app.bin': randomBytes(10) });
  const making = await role(service, 'account', { firmwareRollout: ['create', 'read', 'update'] });
  const program = await backEnd(service, { roleId: making.id });
  const body = {
    firmwarePackageId: firmware.id,
    target: { deviceIds: [device.id] },
    startAt: new Date(Date.now() + 3_600_000).toISOString(),
  };
  const made = (
    await service.ok('POST', '/api/v1/firmware/rollouts', {
      body: { ...body, accountId: service.accountId },
      token: program.token,
    })
  ).firmwareRollout;
  const less = { name: making.name, rights: { firmwareRollout: ['read'] } };
  const headers = { etag: making.version };
  await service.ok('PUT', `/api/v1/roles/${making.id}`, { body: less, headers });
  t.match(await rollout(service, made.id), { state: 'paused', reason: /may no longer roll out/ }, 'before the answer');
  const resume = (token?: string) =>
    service.http('POST', `/api/v1/firmware/rollouts/${made.id}/resume`, { ...(token && { token }) });
  t.match(await resume(program.token), { status: 403 });
  t.match(await resume(), { status: 200, body: { firmwareRollout: { state: 'scheduled', reason: null } } });
});

t.test('a package of another account is out of reach: to read, to roll out, to be offered, to download', async (t) => {
  const template = await service.template();
  const [own] = (await devices(service, template.id, 1)) as [Device];
  const firmware = await publish(service, template.id, '2');
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [own.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  const { accountId, admin: token } = await service.account();
  const named = <const P extends string, const W extends string>(path: P, wrapper: W, body: object) =>
    service.create(path, wrapper, { accountId, ...body }, token);
  const theirTemplate = await named('/devices/templates', 'deviceTemplate', { name: 'Theirs' });
  const device = await named('/devices', 'device', { serialNumber: 'theirs', deviceTemplateId: theirTemplate.id });
  const { secret } = await named('/access/mqtt-credentials', 'mqttCredential', {
    ...{ entityId: device.id, entityType: 'device' },
  });
  const theirs = { id: device.id, secret };
  const path = `/api/v1/firmware/packages/${firmware.id}`;
  for (const [method, one] of [
    ['GET', path],
    ['GET', `${path}/files/app.bin`],
    ['DELETE', `${path}/files/app.bin`],
    ['POST', `/api/v1/firmware/rollouts/${id}/cancel`],
    ['GET', `/api/v1/firmware/rollouts/${id}/devices`],
    ['GET', `/api/v1/devices/${own.id}/firmware`],
    ['POST', `/api/v1/devices/${own.id}/firmware/install`],
    ['GET', `/api/v1/devices/${own.id}/firmware/history`],
    ['POST', `/api/v1/firmware/rollouts/${id}/revert`],
  ] as const)
    t.match(await service.http(method, one, { token }), { status: 404 }, `${method} ${one}`);
  const refused = async (firmwarePackageId: string, target: object) => {
    const body = { accountId, firmwarePackageId, target };
    const answer = await service.http('POST', '/api/v1/firmware/rollouts', { token, body });
    t.match(answer, { status: 400, body: { error: { code: 102 } } }, JSON.stringify(target));
  };
  await refused(firmware.id, { deviceIds: [device.id] });
  const bytes = { 'app.bin': randomBytes(100) };
  const their = await publish(service, theirTemplate.id, '1', bytes, token, accountId);
  await refused(their.id, { deviceIds: [own.id] });
  t.same(await offerTo(service, theirs), { files: [] });
  const content = `/firmware/files/${firmware.files[0]?.sha256}`;
  t.match(await asDevice(service, theirs, 'GET', content), { status: 404 });
  t.match(await asDevice(service, own, 'GET', `/firmware/files/${their.files[0]?.sha256}`), { status: 404 });
  t.match(await asDevice(service, theirs, 'POST', '/firmware/status', { state: 'downloading' }), { status: 404 });
});

t.end();
