/** What ends or changes a session, a program or a device counts at the next request, also when its row has just been read. */
import { changeStored, notePresence } from '../support/faults.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** Asks twice before `work`, so that what may be kept is kept, and once after it. */
async function around<A>(ask: () => Promise<A>, work: () => Promise<unknown>): Promise<[A, A]> {
  await ask();
  const before = await ask();
  await work();
  return [before, await ask()];
}

const etag = (version: string) => ({ headers: { etag: version } });

async function person() {
  const { id: organizationId } = await service.organization();
  const who = await service.endUser(organizationId);
  const ask = async (token: string) =>
    (await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token })).status;
  return { ...who, userId: who.endUser.userId as string, organizationId, ask };
}

type Ending = (who: Awaited<ReturnType<typeof person>>) => Promise<unknown>;
const endings: Record<string, Ending> = {
  'a logout': ({ token }) => service.ok('POST', '/api/v1/sessions/logout', { token }),
  'the end of all others': async ({ email, password, userId }) =>
    service.ok('POST', `/api/v1/users/${userId}/end-sessions`, {
      token: (await service.loginAs(email, password)).jwt,
    }),
  'a new password': async ({ email, password: oldPassword, userId }) =>
    service.ok('POST', '/api/v1/profile/change-password', {
      token: (await service.loginAs(email, oldPassword)).jwt,
      body: { userId, oldPassword, newPassword: 'another long secret' },
    }),
  'the end of the person': ({ endUser: { id, version } }) =>
    service.ok('DELETE', `/api/v1/end-users/${id}`, etag(version)),
  'another program': ({ userId }) =>
    changeStored(service, 'UPDATE "sessions" SET "ended" = "created" WHERE "userId" = ?', [userId]),
  'another program that leaves nothing of it': ({ userId }) =>
    changeStored(service, 'DELETE FROM "sessions" WHERE "userId" = ?', [userId]),
};

for (const [what, end] of Object.entries(endings))
  t.test(`${what} ends a session at once`, async (t) => {
    const who = await person();
    const [before, after] = await around(
      () => who.ask(who.token),
      () => end(who),
    );
    t.equal(before, 200);
    t.equal(after, what === 'the end of the person' ? 403 : 401);
  });

t.test('the end of a program, and its other role, count at once', async (t) => {
  const { accountId } = service;
  for (const [work, status] of [
    [(id: string, version: string) => service.ok('DELETE', `/api/v1/applications/${id}`, etag(version)), 401],
    [
      (id: string) => changeStored(service, 'UPDATE "applications" SET "deleted" = "created" WHERE "id" = ?', [id]),
      401,
    ],
    [
      async (id: string, version: string) => {
        const rights = { device: ['create'] };
        const role = await service.create('/roles', 'role', { name: service.unique('R'), scope: 'account', rights });
        return service.ok('PUT', `/api/v1/applications/${id}`, { ...etag(version), body: { roleId: role.id } });
      },
      403,
    ],
  ] as const) {
    const name = service.unique('Program');
    const application = await service.create('/applications', 'application', { name, kind: 'backEnd' });
    const body = { accountId, appId: application.id, appToken: application.appToken };
    const token = (await service.ok('POST', '/api/v1/auth/login-application', { token: null, body })).jwt;
    const ask = async () => (await service.http('GET', `/api/v1/devices?accountId=${accountId}`, { token })).status;
    t.same(await around(ask, () => work(application.id, application.version)), [200, status]);
  }
});

t.test('whatever changes a device, the next request sees it', async (t) => {
  const { organizationId, token } = await person();
  const away = await service.organization();
  const device = await service.create('/devices', 'device', { serialNumber: service.unique('SN'), organizationId });
  const path = `/api/v1/devices/${device.id}` as const;
  const read = (as = service.admin) => service.http('GET', path, { token: as });
  const version = async () => (await read()).body.device.version;
  const put = async (body: object) => service.http('PUT', path, { ...etag(await version()), body });

  const [first, renamed] = await around(read, () => put({ serialNumber: 'renamed' }));
  t.match(renamed, { status: 200, body: { device: { serialNumber: 'renamed' } } });
  t.not(renamed.body.device.version, first.body.device.version);
  t.equal(renamed.headers.get('etag'), `"${renamed.body.device.version}"`);
  const late = { ...etag(first.body.device.version), body: { serialNumber: 'late' } };
  const [before, refused] = await around(read, () => service.http('PUT', path, late));
  t.same(refused.body, before.body, 'what was refused has changed nothing');

  const [, connected] = await around(read, () => notePresence(service, device.id, { connected: 1 }));
  t.equal(connected.body.device.connected, true);
  const beside = `UPDATE "devices" SET "serialNumber" = 'beside' WHERE "id" = ?`;
  const [, changed] = await around(read, () => changeStored(service, beside, [device.id]));
  t.equal(changed.body.device.serialNumber, 'beside');

  const [own, gone] = await around(
    () => read(token),
    () => put({ organizationId: away.id }),
  );
  t.same([own.status, gone.status], [200, 404], 'who has lost it');
  const [, trashed] = await around(read, async () => service.ok('DELETE', path, etag(await version())));
  t.equal(trashed.status, 410);
  const versionInTrash =
    gone === own ? '' : (await service.ok('GET', `/api/v1/trash/devices/${device.id}`)).device.version;
  const recover = `/api/v1/trash/devices/${device.id}/recover` as const;
  const [, back] = await around(read, () => service.ok('POST', recover, etag(versionInTrash)));
  t.equal(back.status, 200);
});

t.test('a device that has come, and gone, is seen as soon as that is stored', async (t) => {
  const { device, secret } = await service.device();
  const read = async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.connected;
  const stored = (connected: number) =>
    until(() => countStored(service, '"wholeDevices"', '"id" = ? AND "connected" = ?', [device.id, connected]) === 1);
  t.same(await around(read, async () => {}), [false, false]);
  const client = await service.connect({ deviceId: device.id, secret });
  await stored(1);
  t.equal(await read(), true);
  const gone = async () => {
    await client.endAsync();
    await stored(0);
  };
  t.same(await around(read, gone), [true, false]);
});

t.test('what a device says of itself is seen as soon as it is acknowledged', async (t) => {
  const { device, secret } = await service.device();
  const read = async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.firmwareVersion;
  const client = await service.connect({ deviceId: device.id, secret });
  const state = JSON.stringify({ state: { firmwareVersion: '2.0' } });
  const say = () => client.publishAsync(service.topic(device.id, '_set/fields'), state, { qos: 1 });
  t.same(await around(read, say), [null, '2.0']);
});

t.end();
