/** Attached fleets: who begins and ceases to match, by a change or by time, and who is told. */
import type { Test } from 'tap';
import { notePresence } from '../../db/registry/presence.ts';
import type { Attached } from '../../src/registry/devices/attached-fleets.ts';
import { openStream } from '../support/events.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const hour = 3_600_000;
let now = Date.parse('2026-05-10T12:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const fleetOf = (filter: string, more: object = {}) =>
  service.create('/fleets', 'fleet', { name: service.unique('Fleet'), filter, ...more });
const etag = (version: string) => ({ headers: { etag: version } });

/** What a user of a fleet hears, as the ends of the device ids, with a sign: in the order in which it comes. */
function attach(t: Test, { id, accountId }: { id: string; accountId: string }, known: string[] = []) {
  const heard: string[] = [];
  const attached: Attached = service.server.ctx.attachedFleets.attach(
    { id, accountId },
    {
      entered: (ids) => heard.push(...ids.map((one) => `+${one}`)),
      left: (ids) => heard.push(...ids.map((one) => `-${one}`)),
      async *known() {
        yield known;
      },
    },
  );
  t.teardown(() => attached.detach());
  return { attached, heard };
}

async function change(id: string, body: object) {
  const { device } = await service.ok('GET', `/api/v1/devices/${id}` as '/api/v1/devices/{id}');
  await service.ok('PUT', `/api/v1/devices/${id}` as '/api/v1/devices/{id}', { ...etag(device.version), body });
}
const make = async (body: object = {}) => (await service.device(body)).device;

t.test('a user hears first whom it does not know, then each that enters and leaves, until it ends', async (t) => {
  const deviceTemplateId = (await service.template({})).id;
  const of = (rest: string) => `deviceTemplateId eq "${deviceTemplateId}" and ${rest}`;
  const [old, other] = [
    await make({ deviceTemplateId, firmwareVersion: '1.0' }),
    await make({ deviceTemplateId, firmwareVersion: '1.0' }),
  ];
  const gone = await make({ deviceTemplateId, firmwareVersion: '3.0' });
  const fleet = await fleetOf(of('firmwareVersion lt "2.0"'));
  const { attached, heard } = attach(t, fleet, [old.id, gone.id]);
  await until(() => heard.length === 2);
  t.same(heard.splice(0), [`+${other.id}`, `-${gone.id}`]);
  t.ok(attached.has(old.id));

  await change(old.id, { firmwareVersion: '2.0' });
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`-${old.id}`]);
  t.notOk(attached.has(old.id));
  await change(old.id, { name: 'Another name' });
  const fresh = await make({ deviceTemplateId, firmwareVersion: '1.9' });
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`+${fresh.id}`], 'a new device');

  const { device } = await service.ok('GET', `/api/v1/devices/${fresh.id}` as '/api/v1/devices/{id}');
  const url = `/api/v1/devices/${fresh.id}` as '/api/v1/devices/{id}';
  const { device: trashed } = await service.ok('DELETE', url, etag(device.version));
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`-${fresh.id}`], 'a deleted device leaves');
  await service.ok('POST', `/api/v1/trash/devices/${fresh.id}/recover`, etag(trashed.version));
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`+${fresh.id}`]);

  attached.detach();
  await change(other.id, { firmwareVersion: '2.0' });
  const second = attach(t, fleet);
  await until(() => second.heard.length === 1);
  t.same([second.heard, heard], [[`+${fresh.id}`], []]);
});

t.test('a changed filter, a moved organization and a changed field of a parent act on all devices', async (t) => {
  const [upper, side] = [await service.organization({}), await service.organization({ city: 'Bonn' })];
  const lower = await service.organization({ parentId: upper.id });
  const [a, b] = [await make({ organizationId: lower.id }), await make({ organizationId: side.id })];
  const fleet = await fleetOf(`within eq "${upper.id}"`);
  const { heard } = attach(t, fleet);
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`+${a.id}`]);
  const put = async (organization: { id: string }, body: object) => {
    const path = `/api/v1/organizations/${organization.id}` as '/api/v1/organizations/{id}';
    const { version } = (await service.ok('GET', path)).organization;
    await service.ok('PUT', path, { ...etag(version), body });
  };
  await put(lower, { parentId: null });
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`-${a.id}`]);
  const since = Date.now();
  await service.ok('PUT', `/api/v1/fleets/${fleet.id}` as '/api/v1/fleets/{id}', {
    ...etag(fleet.version),
    body: { filter: 'organization.city eq "bonn"' },
  });
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`+${b.id}`], `after ${Date.now() - since} ms`);
  await put(side, { city: 'Ulm' });
  await until(() => heard.length === 1);
  t.same(heard.splice(0), [`-${b.id}`]);
});

t.test('a fleet names custom fields that come, go and come back', async (t) => {
  const deviceTemplateId = (await service.template({})).id;
  const field = { deviceTemplateId, name: 'room', fieldType: 'string' };
  const { id, version } = await service.create('/devices/custom-fields', 'deviceField', field);
  const one = await make({ deviceTemplateId, room: 'cold' });
  const fleet = await fleetOf('fields.room eq "Cold"');
  const { attached, heard } = attach(t, fleet);
  await until(() => heard.length === 1);
  const path = `/api/v1/devices/custom-fields/${id}` as '/api/v1/devices/custom-fields/{id}';
  const { deviceField } = await service.ok('DELETE', path, etag(version));
  await until(() => heard.length === 2);
  t.match(attached.problem, /unknown/);
  await service.ok(
    'POST',
    `/api/v1/trash/devices/custom-fields/${id}/recover` as '/api/v1/trash/devices/{id}/recover',
    {
      ...etag(deviceField.version),
    },
  );
  await until(() => heard.length === 3);
  t.same(heard, [`+${one.id}`, `-${one.id}`, `+${one.id}`]);
  t.equal(attached.problem, null);
});

t.test('time alone makes devices enter and leave, also after the fleet is attached anew', async (t) => {
  const deviceTemplateId = (await service.template({})).id;
  const devices = [
    await make({ deviceTemplateId }),
    await make({ deviceTemplateId }),
    await make({ deviceTemplateId }),
  ];
  const connect = (id: string, before: number) =>
    service.server.ctx.registry.transaction((tx) =>
      notePresence(tx, [{ id, presence: { lastConnected: new Date(now - before).toISOString() } }]),
    );
  const [a = '', b = '', c = ''] = devices.map(({ id }) => id);
  await connect(a, 0);
  await connect(b, hour - 1000);
  await connect(c, 2 * hour);
  const fleet = await fleetOf(`deviceTemplateId eq "${deviceTemplateId}" and lastConnected lt "-PT1H"`);
  const first = attach(t, fleet);
  await until(() => first.heard.length === 1);
  now += 1000;
  t.same(first.heard.splice(0), [`+${c}`]);
  now += 1;
  await until(() => first.heard.length === 1);
  t.same(first.heard.splice(0), [`+${b}`]);
  first.attached.detach();
  const again = attach(t, fleet, [b, c]);
  await connect(c, 0);
  await until(() => again.heard.length === 1);
  t.same(again.heard.splice(0), [`-${c}`]);
  now += hour + 1;
  await until(() => again.heard.length === 2);
  t.same(new Set(again.heard), new Set([`+${a}`, `+${c}`]));
  await service.login();
});

t.test('membership is told on the streams of those who may read the fleet and the device', async (t) => {
  const [upper, other] = [await service.organization({}), await service.organization({})];
  const [manager, stranger] = [await service.endUser(upper.id), await service.endUser(other.id)];
  const ofAccount = await fleetOf('fields.location eq "here"');
  const ofOrganization = await fleetOf('fields.location eq "here"', { organizationId: upper.id });
  const listen = async (token: string) => {
    const events = await openStream(t, service, service.topic('+', '+'), { token });
    await events.line(/^retry/);
    return events;
  };
  const admin = await listen(service.admin);
  const others = [await listen(manager.token), await listen(stranger.token)] as const;
  const users = [attach(t, ofAccount), attach(t, ofOrganization)];
  const [inside, outside] = [await make({ organizationId: upper.id }), await make({ organizationId: other.id })];
  await change(outside.id, { location: 'here' });
  await change(inside.id, { location: 'here' });
  await until(() => users.map(({ heard }) => heard.length).join() === '2,1');
  const [ofOutside, ...ofInside] = [await admin.next(), await admin.next(), await admin.next()].map(({ data }) => data);
  t.equal(admin.lines.filter((line) => line === 'event: fleet').length, 3);
  const time = new Date(now).toISOString();
  t.same(ofOutside, { fleetId: ofAccount.id, deviceId: outside.id, entered: true, time });
  t.same(
    new Set(ofInside.map((one) => JSON.stringify(one))),
    new Set(
      [ofAccount, ofOrganization].map(({ id }) =>
        JSON.stringify({ fleetId: id, deviceId: inside.id, entered: true, time }),
      ),
    ),
  );
  const [{ data }] = [await others[0].next()];
  t.same(data, { fleetId: ofOrganization.id, deviceId: inside.id, entered: true, time });
  t.notOk(
    others[1].lines.some((line) => line === 'event: fleet'),
    'who reads no fleet of the organization',
  );
});

t.end();
