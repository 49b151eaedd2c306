/** Continuous rollouts: who comes later, who is withdrawn, which rollout decides, and when one pauses itself. */
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { patience, until } from '../support/until.ts';
import { asDevice, type Device, offerTo, type Published, publish, rollOut, rollout, update } from './fleet.ts';

const t = await part(import.meta);

const day = 24 * 3_600_000;
let ahead = 0;
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => Date.now() + ahead } });
});

const etag = (version: string) => ({ headers: { etag: version } });

/** A product with a package, and the fleet of its devices that run something older. */
async function product(version = '2.0') {
  const deviceTemplateId = (await service.template({})).id;
  const firmware = await publish(service, deviceTemplateId, version);
  const fleet = await service.create('/fleets', 'fleet', {
    name: service.unique('Fleet'),
    filter: `deviceTemplateId eq "${deviceTemplateId}" and firmwareVersion lt "${version}" and not (location eq "away")`,
  });
  return { deviceTemplateId, firmware, fleet };
}

async function make(deviceTemplateId: string, firmwareVersion = '1.0'): Promise<Device> {
  const { device, secret } = await service.device({ deviceTemplateId, firmwareVersion });
  return { id: device.id, secret };
}

async function change({ id }: Device, body: object) {
  const path = `/api/v1/devices/${id}` as '/api/v1/devices/{id}';
  const { device } = await service.ok('GET', path);
  await service.ok('PUT', path, { ...etag(device.version), body });
}

const continuous = (firmware: Published, fleet: { id: string }, more: object = {}) =>
  rollOut(service, firmware, { target: { fleetId: fleet.id }, continuous: true, ...more });

async function stateOf(rolloutId: string, { id }: Device): Promise<string | undefined> {
  const path =
    `/api/v1/firmware/rollouts/${rolloutId}/devices?pageSize=1000` as '/api/v1/firmware/rollouts/{id}/devices';
  const { devices } = await service.ok('GET', path);
  return devices.results.find(({ deviceId }) => deviceId === id)?.state;
}
const reach = (rolloutId: string, device: Device, state: string) =>
  until(
    () => stateOf(rolloutId, device),
    (seen) => seen === state,
  );
const cancel = (id: string) =>
  service.ok('POST', `/api/v1/firmware/rollouts/${id}/cancel` as '/api/v1/firmware/rollouts/{id}/cancel');

t.test('it is for fleets alone, and does not end by itself', async (t) => {
  const { firmware, fleet } = await product();
  const { accountId } = service;
  const body = { accountId, firmwarePackageId: firmware.id, continuous: true, target: { filter: 'connected eq true' } };
  t.match(await service.http('POST', '/api/v1/firmware/rollouts', { body }), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'continuous' }] } },
  });
  const made = await continuous(firmware, fleet);
  t.equal(made.continuous, true);
  const once = await rollOut(service, firmware, { target: { fleetId: fleet.id } });
  t.equal(once.continuous, false);
  await until(async () => (await rollout(service, once.id)).state === 'finished');
  t.match(await rollout(service, made.id), { state: 'running', stage: 1 });
  t.match(await service.http('DELETE', `/api/v1/fleets/${fleet.id}`, etag(fleet.version)), {
    status: 400,
    body: { error: { code: 104 } },
  });
  await cancel(made.id);
  t.match(await rollout(service, made.id), { state: 'cancelled' });
  await service.ok('DELETE', `/api/v1/fleets/${fleet.id}` as '/api/v1/fleets/{id}', etag(fleet.version));
});

t.test(
  'a new device, and one that begins to match, are offered the package; one of another product is not',
  async (t) => {
    const { deviceTemplateId, firmware, fleet } = await product();
    const old = await make(deviceTemplateId);
    const newer = await make(deviceTemplateId, '3.0');
    const { id } = await continuous(firmware, fleet);
    await reach(id, old, 'pending');
    t.equal(await stateOf(id, newer), undefined);
    const fresh = await make(deviceTemplateId);
    await reach(id, fresh, 'pending');
    t.equal((await offerTo(service, fresh)).firmwareVersion, '2.0');
    await change(newer, { firmwareVersion: '1.5' });
    await reach(id, newer, 'pending');
    t.match(await rollout(service, id), { stage: 1, counts: { pending: 2, offered: 1 } });

    const stranger = await make((await service.template({})).id);
    const any = await service.create('/fleets', 'fleet', {
      name: service.unique('Fleet'),
      filter: 'firmwareVersion lt "9"',
    });
    const ofAny = await continuous(firmware, any);
    const another = await make(deviceTemplateId);
    await reach(ofAny.id, another, 'pending');
    t.equal(await stateOf(ofAny.id, stranger), undefined, 'a device of another template is not counted');
    for (const one of [id, ofAny.id]) await cancel(one);
  },
);

t.test('a device that connects is told of the package within a second', async (t) => {
  const { deviceTemplateId, firmware } = await product();
  const fleet = await service.create('/fleets', 'fleet', {
    name: service.unique('Fleet'),
    filter: `deviceTemplateId eq "${deviceTemplateId}" and connected eq true`,
  });
  const { id } = await continuous(firmware, fleet);
  await until(async () => (await rollout(service, id)).stage === 1);
  const device = await make(deviceTemplateId);
  t.equal(await stateOf(id, device), undefined);
  const began = performance.now();
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const told = new Set<string | undefined>();
  client.on('message', (_, payload) => told.add(JSON.parse(String(payload)).firmwareVersion));
  await client.subscribeAsync(service.topic(device.id, '_firmware'), { qos: 1 });
  await until(() => told.has('2.0'));
  const took = performance.now() - began;
  // On a machine that is said to be slow, everything may take as much longer.
  t.ok(took < (1000 * patience) / 20, `${took} ms after CONNECT`);
  await cancel(id);
});

t.test('who ceases to match before it has begun is withdrawn and begins anew; who has begun goes on', async (t) => {
  const { deviceTemplateId, firmware, fleet } = await product();
  const [waiting, begun] = [await make(deviceTemplateId), await make(deviceTemplateId)];
  const { id } = await continuous(firmware, fleet);
  await reach(id, waiting, 'pending');
  await offerTo(service, begun);
  await asDevice(service, begun, 'POST', '/firmware/status', { state: 'downloading', firmwareVersion: '2.0' });
  for (const one of [waiting, begun]) await change(one, { location: 'away' });
  await reach(id, waiting, 'cancelled');
  t.same(await offerTo(service, waiting), { files: [] });
  t.equal(await stateOf(id, begun), 'downloading');
  t.equal((await update(service, begun)).status, 200);
  for (const one of [waiting, begun]) await change(one, { location: null });
  await reach(id, waiting, 'pending');
  t.equal(await stateOf(id, begun), 'succeeded', 'it runs the package, so it does not match');
  t.equal((await update(service, waiting)).status, 200);
  await reach(id, waiting, 'succeeded');
  // A device that goes back to an older version matches again.
  await change(begun, { firmwareVersion: '1.0' });
  await reach(id, begun, 'pending');
  t.match(await rollout(service, id), { state: 'running', counts: { pending: 1, succeeded: 1, cancelled: 0 } });
  await cancel(id);
});

t.test('while the stages run, who comes later waits for the last', async (t) => {
  const { deviceTemplateId, firmware, fleet } = await product();
  const first = await make(deviceTemplateId);
  const stages = [{ percent: 50, pauseSeconds: 3600 }, { percent: 100 }];
  const { id } = await continuous(firmware, fleet, { stages });
  await reach(id, first, 'pending');
  const [later, lost] = [await make(deviceTemplateId), await make(deviceTemplateId)];
  await change(first, { location: 'away' });
  await reach(id, first, 'cancelled');
  await change(first, { location: null });
  await change(lost, { location: 'away' });
  t.match(await rollout(service, id), { stage: 1, counts: { pending: 0, cancelled: 1 } });
  ahead += 3_600_000;
  await service.login();
  await reach(id, later, 'pending');
  await reach(id, first, 'pending');
  t.equal(await stateOf(id, lost), undefined);
  t.match(await rollout(service, id), { stage: 2, state: 'running' });
  await cancel(id);
});

t.test('the newest continuous rollout decides, and the one before it once that has ended', async (t) => {
  const { deviceTemplateId, firmware, fleet } = await product();
  const better = await publish(service, deviceTemplateId, '2.1');
  const older = await continuous(firmware, fleet);
  const one = await make(deviceTemplateId);
  await reach(older.id, one, 'pending');
  const stages = [{ percent: 1, pauseSeconds: 3600 }, { percent: 100 }];
  const newer = await continuous(better, fleet, { stages });
  await reach(older.id, one, 'superseded');
  await reach(newer.id, one, 'pending');
  const two = await make(deviceTemplateId);
  const three = await make(deviceTemplateId);
  await change(three, { location: 'away' });
  await cancel(newer.id);
  t.same([await stateOf(older.id, two), await stateOf(newer.id, two)], [undefined, undefined]);
  await change(three, { location: null });
  await reach(older.id, three, 'pending');
  t.equal(await stateOf(older.id, two), undefined, 'who came while the newer one decided is no newcomer');
  await cancel(older.id);
});

t.test('it pauses itself when too many of those that came later have failed within a day', async (t) => {
  const { deviceTemplateId, firmware, fleet } = await product();
  const { id } = await continuous(firmware, fleet, { maxFailurePercent: 50 });
  await until(async () => (await rollout(service, id)).stage === 1);
  const end = async (outcome: 'succeeded' | 'failed') => {
    const device = await make(deviceTemplateId);
    await reach(id, device, 'pending');
    t.equal((await update(service, device, outcome)).status, 200);
  };
  for (let n = 0; n < 4; n += 1) await end('failed');
  t.match(await rollout(service, id), { state: 'running' }, 'four say nothing yet');
  ahead += day + 1000;
  await service.login();
  for (const outcome of ['succeeded', 'succeeded', 'failed', 'failed'] as const) await end(outcome);
  t.match(
    await rollout(service, id),
    { state: 'running', counts: { failed: 6 } },
    'those of the day before do not count',
  );
  await end('failed');
  const { state, reason } = await rollout(service, id);
  t.equal(state, 'paused');
  t.match(reason, /^3 of 5 devices that came later/);
  const held = await make(deviceTemplateId);
  await reach(id, held, 'pending');
  t.same(await offerTo(service, held), { files: [] }, 'nothing new is offered');
  await service.ok('POST', `/api/v1/firmware/rollouts/${id}/resume` as '/api/v1/firmware/rollouts/{id}/resume');
  t.equal((await offerTo(service, held)).firmwareVersion, '2.0');
  t.equal((await update(service, held, 'failed')).status, 200);
  t.match(await rollout(service, id), { state: 'running' }, 'what has failed before it was resumed does not count');
  await cancel(id);
});

t.test('a changed filter takes and withdraws devices', async (t) => {
  const { deviceTemplateId, firmware, fleet } = await product();
  const [here, away] = [await make(deviceTemplateId), await make(deviceTemplateId)];
  await change(away, { location: 'away' });
  const { id } = await continuous(firmware, fleet);
  await reach(id, here, 'pending');
  await service.ok('PUT', `/api/v1/fleets/${fleet.id}` as '/api/v1/fleets/{id}', {
    ...etag(fleet.version),
    body: { filter: 'location eq "away"' },
  });
  await reach(id, away, 'pending');
  await reach(id, here, 'cancelled');
  t.equal((await rollout(service, id)).state, 'running');
  await cancel(id);
});

t.end();
