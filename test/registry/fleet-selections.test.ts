/** What is done to the devices of a fleet: jobs, bulk commands and rollouts. */
import { publish, rollOut, rolloutUntil } from '../firmware/fleet.ts';
import { follow } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const hour = 60 * 60_000;
let now = Date.parse('2026-05-10T12:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const etag = (version: string) => ({ headers: { etag: version } });
const fleetOf = (filter: string, more: object = {}) =>
  service.create('/fleets', 'fleet', { name: service.unique('Fleet'), filter, ...more });
const post = (path: string, body: object) =>
  service.http('POST', `/api/v1${path}`, { body: { accountId: service.accountId, ...body } });
const refused = (code: number, path: string) => ({ status: 400, body: { error: { code, details: [{ path }] } } });

/** Devices `<name>-0` and so on of a template with the field `bay`, which is their number. */
async function devicesWithBay(name: string, count: number) {
  const template = await service.template();
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId: template.id, name: `${name} bay`, fieldType: 'int' },
  });
  for (let n = 0; n < count; n += 1) {
    const serialNumber = `${name}-${n}`;
    await service.create('/devices', 'device', { serialNumber, deviceTemplateId: template.id, [`${name} bay`]: n });
  }
  return { template, field };
}

t.test('jobs and bulk commands are for the devices that a fleet holds now, and for no others', async (t) => {
  const { template, field } = await devicesWithBay('job', 4);
  const organization = await service.organization();
  const fleet = await fleetOf('fields."job bay" ge 2');
  const elsewhere = await fleetOf('fields."job bay" ge 2', { organizationId: organization.id });
  const move = { action: 'move', organizationId: organization.id };
  t.match(await post('/devices/jobs', { ...move, fleetId: elsewhere.id }), {
    status: 202,
    body: { job: { total: 0 } },
  });
  const { body } = await post('/devices/jobs', { ...move, fleetId: fleet.id });
  t.equal(body.job.total, 2);
  t.match((await follow(service, body.job.id)).at(-1), { state: 'succeeded', done: 2 });
  const command = { name: 'blink' };
  t.match(await post('/commands/bulk', { command, fleetId: elsewhere.id }), {
    status: 202,
    body: { job: { total: 2 } },
  });
  for (const path of ['/devices/jobs', '/commands/bulk'] as const) {
    const what = path === '/devices/jobs' ? move : { command };
    t.match(await post(path, { ...what, fleetId: template.id }), refused(102, 'fleetId'));
    t.match(await post(path, { ...what, fleetId: fleet.id, filter: 'silent eq true' }), refused(106, 'filter'));
    t.match(await post(path, what), refused(106, 'filter'));
  }
  // Of what counts as without a value, ne would be true of every device.
  const others = await fleetOf('fields."job bay" ne 0');
  await service.ok('DELETE', `/api/v1/devices/custom-fields/${field.id}`, etag(field.version));
  t.match(await post('/commands/bulk', { command, fleetId: others.id }), {
    ...refused(106, 'fleetId'),
    body: { error: { details: [{ message: /has a problem. At character 1: fields.job bay is unknown/ }] } },
  });
});

t.test('a rollout goes to the devices that a fleet holds when a stage takes them', async (t) => {
  const { template, field } = await devicesWithBay('stage', 4);
  const firmware = await publish(service, template.id, '7.0');
  const fleet = await fleetOf('fields."stage bay" ge 3');
  const target = { fleetId: fleet.id };
  const ask = { firmwarePackageId: firmware.id, target };
  t.match(await post('/firmware/rollouts/preview', ask), { status: 200, body: { preview: { devices: 1 } } });
  for (const path of ['/firmware/rollouts', '/firmware/rollouts/preview']) {
    const asked = (target: object) => post(path, { ...ask, target });
    t.match(await asked({ fleetId: template.id }), refused(102, 'target.fleetId'));
    t.match(await asked({ ...target, filter: 'silent eq true' }), refused(106, 'target'));
  }
  const made = await rollOut(service, firmware, { target, startAt: new Date(now + 1000 * hour).toISOString() });
  t.match(made, { target, matched: { devices: 1 } });
  const url = `/api/v1/fleets/${fleet.id}` as '/api/v1/fleets/{id}';
  t.match(await service.http('DELETE', url, etag(fleet.version)), { status: 400, body: { error: { code: 104 } } });
  const body = { filter: 'fields."stage bay" ge 1' };
  const { fleet: changed } = await service.ok('PUT', url, { ...etag(fleet.version), body });
  const act = (id: string, verb: string) =>
    service.ok('POST', `/api/v1/firmware/rollouts/${id}/${verb}` as '/api/v1/firmware/rollouts/{id}/pause');
  await act(made.id, 'pause');
  now += 1001 * hour;
  service.admin = (await service.loginAs(adminEmail, adminPassword)).jwt;
  await act(made.id, 'resume');
  const begun = await rolloutUntil(service, made.id, ({ counts }) => counts.pending === 3);
  t.equal(begun.counts.pending, 3);

  const later = await rollOut(service, firmware, { target, startAt: new Date(now + 1000 * hour).toISOString() });
  await act(later.id, 'pause');
  await service.ok('DELETE', `/api/v1/devices/custom-fields/${field.id}`, etag(field.version));
  now += 1001 * hour;
  service.admin = (await service.loginAs(adminEmail, adminPassword)).jwt;
  await act(later.id, 'resume');
  const paused = await rolloutUntil(service, later.id, ({ state }) => state === 'paused');
  t.match(paused.reason, /^The filter of the target no longer works. .*fields.stage bay is unknown/);
  for (const { id } of [made, later]) await act(id, 'cancel');
  await service.ok('DELETE', url, etag(changed.version));
});

t.end();
