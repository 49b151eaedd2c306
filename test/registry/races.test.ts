import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeTransaction } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { closed, type Made, type Person, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const etag = (version: string) => ({ headers: { etag: version } });

t.test('what a caller may do is looked at again when its write has its turn', async (t) => {
  const cases: Array<
    [string, (who: Person, home: Made<'organization'>, away: Made<'organization'>) => Promise<unknown>, object]
  > = [
    [
      'deleted',
      (who) => service.ok('DELETE', `/api/v1/end-users/${who.endUser.id}`, etag(who.endUser.version)),
      { status: 403 },
    ],
    [
      'moved away',
      (who, _, away) =>
        service.ok('PUT', `/api/v1/end-users/${who.endUser.id}`, {
          ...etag(who.endUser.version),
          body: { organizationId: away.id },
        }),
      { status: 400, body: { error: { code: 102 } } },
    ],
    [
      'logged out',
      (who) => service.ok('POST', '/api/v1/sessions/logout', { token: who.token }),
      { status: 401, body: { error: { code: 31 } } },
    ],
  ];
  for (const [name, revoke, refused] of cases) {
    const [home, away] = [await service.organization(), await service.organization()];
    const who = await service.endUser(home.id);
    beforeTransaction(t, service, 'POST /api/v1/end-users', () => revoke(who, home, away));
    const body = {
      accountId: service.accountId,
      organizationId: home.id,
      createIdmUser: true,
      idmUserEmail: `${name.replace(' ', '')}@example.com`,
      idmUserPassword: 'a fine password',
    };
    t.match(await service.http('POST', '/api/v1/end-users', { body, token: who.token }), refused, name);
  }
});

t.test('a device that is moved away in between is not written to, nor pulled back', async (t) => {
  const [home, away] = [await service.organization(), await service.organization()];
  const { token } = await service.endUser(home.id);
  const device = await service.create('/devices', 'device', { serialNumber: 'r', organizationId: home.id });
  const path = `/api/v1/devices/${device.id}`;
  beforeTransaction(t, service, `PUT ${path}`, () =>
    service.ok('PUT', path, { ...etag('1'), body: { organizationId: away.id } }),
  );
  const pulled = await service.http('PUT', path, {
    token,
    ...etag('2'),
    body: { organizationId: home.id, name: 'mine' },
  });
  t.match(pulled, { status: 404, body: { error: { code: 100 } } });
  t.match((await service.ok('GET', path)).device, { organizationId: away.id, name: null });
});

t.test('a code that is replaced in between moves nothing', async (t) => {
  const { id: organizationId } = await service.organization();
  const { device } = await service.device();
  const make = () =>
    service.ok('POST', '/api/v1/association/create-association-code', { body: { deviceId: device.id } });
  const { associationCode } = await make();
  beforeTransaction(t, service, 'POST /api/v1/association/start-association-with-code', make);
  const answer = await service.http('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode, organizationId },
  });
  t.match(answer, { status: 404, body: { error: { code: 100 } } });
  t.match((await service.ok('GET', `/api/v1/devices/${device.id}`)).device, { organizationId: null });
});

t.test('a move of an organization is not undone by a change of its name', async (t) => {
  const [parent, child] = [await service.organization(), await service.organization()];
  const path = `/api/v1/organizations/${child.id}`;
  beforeTransaction(t, service, `PUT ${path}`, () =>
    service.ok('PUT', path, { ...etag('1'), body: { parentId: parent.id } }),
  );
  await service.ok('PUT', path, { ...etag('2'), body: { name: 'renamed' } });
  t.match((await service.ok('GET', path)).organization, { name: 'renamed', parentId: parent.id });
});

t.test('an ended admin writes nothing more', async (t) => {
  const second = await service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail: 'second@example.com',
    idmUserPassword: 'a fine password',
  });
  const { jwt } = await service.loginAs('second@example.com', 'a fine password');
  beforeTransaction(t, service, 'POST /api/v1/devices', () =>
    service.ok('DELETE', `/api/v1/account-users/${second.id}`, etag(second.version)),
  );
  const body = { accountId: service.accountId, serialNumber: 'late' };
  t.match(await service.http('POST', '/api/v1/devices', { body, token: jwt }), {
    status: 403,
    body: { error: { code: 21 } },
  });
});

t.test('of a delete and a recover with one version only what is possible happens', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'race' });
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, n) =>
      n % 2
        ? service.http('DELETE', `/api/v1/devices/${device.id}`, etag('1'))
        : service.http('POST', `/api/v1/trash/devices/${device.id}/recover`, etag('1')),
    ),
  );
  const [deleted, recovered] = [1, 0].map(
    (odd) => answers.filter(({ status }, n) => n % 2 === odd && status === 200).length,
  );
  t.equal(deleted, 1, 'deleted once: a recovery gives a new version');
  t.ok((recovered ?? 0) <= 1);
  for (const { status, body } of answers.filter(({ status }) => status !== 200))
    t.ok([404, 410, 412].includes(status), `${status} ${JSON.stringify(body)}`);
});

t.test('of parallel regenerations exactly one secret works afterwards, before and after a restart', async (t) => {
  // Without the limits on wrong secrets: what comes after those that are refused here is tried, however many they are.
  const env = { SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '0', SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0' };
  const first = await startService(t, { env });
  const { device, secret } = await first.device();
  const answered: string[] = [];
  let over = false;
  const entered = [{ client: await first.connect({ deviceId: device.id, secret }), tried: secret }];
  // Anyone who gets in has the secret of an answer, and what comes after that answer throws it out again.
  const reconnecting = Promise.all(
    [0, 1].map(async (n) => {
      while (!over) {
        const tried = answered.at(-1 - n) ?? secret;
        const client = await first
          .connect({ deviceId: device.id, secret: tried }, { clientId: `${n}` })
          .catch(() => {});
        if (client) entered.push({ client, tried });
        if (client && !over) await Promise.race([closed(client), nextTurn()]);
      }
    }),
  );
  const answers = Array.from({ length: 20 }, () => first.credential(device.id).then((made) => answered.push(made)));
  await Promise.all(answers);
  over = true;
  await reconnecting;

  const accepted = async (service: Service) => {
    const results = await Promise.all(
      [secret, ...answered].map((tried, n) =>
        service.connect({ deviceId: device.id, secret: tried }, { clientId: `last ${n}` }).then(
          () => true,
          () => false,
        ),
      ),
    );
    return [secret, ...answered].filter((_, n) => results[n]);
  };
  const works = await accepted(first);
  t.equal(works.length, 1);
  t.not(works[0], secret);
  const staying = entered.filter(({ client }) => client.connected).map(({ tried }) => tried);
  t.same(
    staying.filter((tried) => tried !== works[0]),
    [],
    'nobody has stayed with another secret',
  );
  const { directory } = first;
  await first.close();
  const second = await startService(t, { env, directory });
  t.same(await accepted(second), works);
});

t.end();
