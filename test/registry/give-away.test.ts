/** A customer gives a device away with a code, or takes it out of its organization; the next one claims it. */
import type { Test } from 'tap';
import { codeKinds } from '../../db/registry/records/devices.ts';
import { Passwords } from '../../src/identity/secrets/passwords.ts';
import { subscribed, taken } from '../broker/conversation.ts';
import { connectPacket, rawClient } from '../broker/raw.ts';
import { purgeNow } from '../support/clockwork.ts';
import { follow } from '../support/jobs.ts';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Person, type Service, startService } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
const mailbox = new Mailbox();
let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { mail: mailbox, clock: { now: () => now } });
});
// Whatever was counted is forgotten.
t.beforeEach(() => {
  now += day;
});

const path = '/api/v1/association/give-away';
const password = 'a long secret of hers';
const give = (deviceId: string, token: string | null = service.admin, more: object = {}) =>
  service.http('POST', path, { body: { deviceId, ...more }, token });
const withdraw = (deviceId: string, token = service.admin) => service.http('DELETE', `${path}/${deviceId}`, { token });
const isOpen = async (deviceId: string) => (await service.http('GET', `${path}/${deviceId}`)).status === 200;
const lookUp = (associationCode: string) =>
  service.http('POST', '/api/v1/association/look-up-code', {
    body: { accountId: service.accountId, associationCode },
    token: null,
  });
const claim = (associationCode: string, organizationId: string, token: string) =>
  service.http('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode, organizationId },
    token,
  });
const signUp = (associationCode: string, emailAddress: string) =>
  service.http('POST', '/api/v1/association/sign-up-with-code', {
    body: { accountId: service.accountId, associationCode, emailAddress, password },
    token: null,
  });
const read = async (id: string) => (await service.ok('GET', `/api/v1/devices/${id}`)).device;
const put = async (id: string, body: object, token = service.admin) =>
  service.http('PUT', `/api/v1/devices/${id}`, { body, token, headers: { etag: (await read(id)).version } });
const labelOf = async (deviceId: string): Promise<string> =>
  (await service.ok('POST', '/api/v1/association/create-association-code', { body: { deviceId } })).associationCode;
const claiming = (body: object) => service.http('PUT', '/api/v1/account/claiming', { body });

/** Logs a person in again: sessions end while time passes. */
const loggedIn = async ({ email, password }: Person): Promise<string> => (await service.loginAs(email, password)).jwt;

const noSuchCode = { status: 404, body: { error: { code: 100, message: 'The association code does not exist.' } } };
const isTaken = {
  status: 422,
  body: { error: { code: 106, message: 'It belongs to somebody. Ask them to give it away.' } },
};

/** Two customers with a person each, and a device of the first one with both codes. */
async function household() {
  const [home, away] = [await service.organization(), await service.organization()];
  const [owner, buyer] = [await service.endUser(home.id), await service.endUser(away.id)];
  const { device, secret } = await service.device({ organizationId: home.id });
  const label = await labelOf(device.id);
  const code = await codeOf(device.id, owner.token);
  return { home, away, owner, buyer, id: device.id, secret, label, code };
}

async function codeOf(deviceId: string, token = service.admin, more: object = {}): Promise<string> {
  const { status, body, text } = await give(deviceId, token, more);
  if (status !== 200) throw new Error(text);
  return body.associationCode;
}

t.test('a customer gives a device away, and nothing changes until somebody claims it', async (t) => {
  const { away, owner, buyer, id, label } = await household();
  const before = await read(id);
  const { status, body } = await give(id, owner.token);
  t.equal(status, 200);
  const { associationCode, claimUrl, expiresAt } = body;
  t.match(associationCode, /^[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$/);
  t.equal(new URL(claimUrl).searchParams.get('code'), associationCode);
  t.equal(new URL(claimUrl).searchParams.get('account'), service.accountId);
  t.equal(Date.parse(expiresAt), now + 7 * day, 'seven days');
  t.match(await service.ok('GET', `${path}/${id}`, { token: owner.token }), { giveAway: { deviceId: id, expiresAt } });
  t.same(await read(id), before, 'nothing has changed');
  t.notMatch(
    JSON.stringify(storedRows(service, 'SELECT * FROM "associationCodes"')),
    new RegExp(associationCode.replaceAll('-', '-?')),
    'stored hashed',
  );
  t.same(Object.keys((await lookUp(associationCode)).body), Object.keys((await lookUp(label)).body));
  t.match((await lookUp(associationCode)).body, { serialNumber: before.serialNumber, signUp: true, taken: false });
  t.match((await lookUp(label)).body, { serialNumber: before.serialNumber, signUp: false, taken: true });
  now += 60_000;
  t.match(await claim(associationCode, away.id, buyer.token), { status: 200, body: { deviceId: id } });
  t.match(await read(id), { organizationId: away.id, possessionSince: new Date(now).toISOString() });
  const { auditRecords } = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${id}`);
  t.match(
    auditRecords.results.filter(({ event }) => event === 'giveAwayStarted' || event === 'association'),
    [
      { event: 'association', actorId: buyer.endUser.userId, details: { organizationId: away.id } },
      { event: 'giveAwayStarted', actorId: owner.endUser.userId },
      { event: 'giveAwayStarted', actorId: owner.endUser.userId },
    ],
  );
});

t.test('a spent, replaced, withdrawn or expired code is none; each device has one', async (t) => {
  const { away, owner, buyer, id, code } = await household();
  const second = await codeOf(id, owner.token);
  t.match(await claim(code, away.id, buyer.token), noSuchCode, 'replaced');
  t.equal(countStored(service, '"associationCodes"', '"deviceId" = ?', [id]), codeKinds.length);
  t.match(await withdraw(id, owner.token), { status: 200, body: { deviceId: id } });
  t.match(await withdraw(id, owner.token), { status: 404, body: { error: { code: 100 } } });
  t.notOk(await isOpen(id));
  t.match(await claim(second, away.id, buyer.token), noSuchCode, 'withdrawn');
  t.match(await lookUp(second), noSuchCode);
  const third = await codeOf(id, owner.token);
  now += 7 * day - 1;
  t.match(await lookUp(third), { status: 200 });
  now += 1;
  t.match(await lookUp(third), noSuchCode, 'expired');
  const [former, next] = [await loggedIn(owner), await loggedIn(buyer)];
  t.match(await claim(third, away.id, next), noSuchCode);
  t.match(await signUp(third, 'late@example.com'), noSuchCode);
  t.match(await withdraw(id, former), { status: 404 });
  t.notOk(await isOpen(id));
  const fourth = await codeOf(id, former);
  t.match(await claim(fourth, away.id, next), { status: 200 });
  t.match(await claim(fourth, away.id, next), noSuchCode, 'spent');
  await codeOf(id, next);
  now += 8 * day;
  await service.login();
  await purgeNow(service);
  t.same(storedRows(service, 'SELECT "kind" FROM "associationCodes" WHERE "deviceId" = ?', [id]), [{ kind: 'label' }]);
});

t.test('expiresAt is at most 30 days away', async (t) => {
  const { owner, id } = await household();
  for (const wrong of [now + 30 * day + 1, now, now - 1].map((time) => new Date(time).toISOString()))
    t.match(await give(id, owner.token, { expiresAt: wrong }), { status: 400, body: { error: { code: 106 } } }, wrong);
  for (const wrong of ['', 'tomorrow', 5, null, '2026-13-01'])
    t.match(
      await give(id, owner.token, { expiresAt: wrong }),
      { status: 400, body: { error: { code: 106 } } },
      `${wrong}`,
    );
  const last = new Date(now + 30 * day).toISOString();
  t.match(await give(id, owner.token, { expiresAt: last }), { status: 200, body: { expiresAt: last } });
});

t.test('the right to change a device is enough to give it away, and to withdraw a code of others', async (t) => {
  const { home, id, owner } = await household();
  const below = await service.organization({ parentId: home.id });
  for (const role of ['installer', 'operator', 'manager']) {
    const { token } = await service.endUser(home.id, { roleId: `organization:${role}` });
    t.match(await give(id, token), { status: 200 }, role);
    t.match(await withdraw(id, token), { status: 200 }, role);
  }
  const viewer = await service.endUser(home.id, { roleId: 'organization:viewer' });
  const mixed = await service.endUser(below.id);
  await service.create('/end-users', 'endUser', {
    organizationId: home.id,
    userId: mixed.endUser.userId,
    roleId: 'organization:viewer',
  });
  const stranger = await service.endUser((await service.organization()).id);
  await give(id, owner.token);
  for (const [name, { token }, status] of [
    ['reads it', viewer, 403],
    ['reads it, and changes others', mixed, 403],
    ['a stranger', stranger, 404],
  ] as Array<[string, Person, number]>) {
    t.equal((await give(id, token)).status, status, name);
    t.equal((await withdraw(id, token)).status, status, name);
    t.equal((await service.http('GET', `${path}/${id}`, { token })).status, status, name);
  }
  t.equal((await give(id, null)).status, 401);
  t.match(await withdraw(id), { status: 200 }, 'an admin');
  const { device } = await service.device();
  t.match(await give(device.id), { status: 422, body: { error: { code: 106 } } }, 'it belongs to nobody');
  t.match(await give('nothing'), { status: 404 });
  const gone = (await service.device({ organizationId: home.id })).device;
  await service.ok('DELETE', `/api/v1/devices/${gone.id}`, { headers: { etag: (await read(gone.id)).version } });
  t.match(await give(gone.id, owner.token), { status: 410 });
});

t.test('the code of the label moves it only for who reaches its owner, and neither code ends the other', async (t) => {
  const { home, away, owner, buyer, id, label, code } = await household();
  t.match(await claim(label, away.id, buyer.token), isTaken);
  t.match(await signUp(label, 'taker@example.com'), isTaken);
  const below = await service.organization({ parentId: home.id });
  t.match(await claim(label, below.id, owner.token), { status: 200 });
  const again = await labelOf(id);
  t.match((await lookUp(again)).status, 200);
  t.match((await lookUp(code)).status, 200, 'another label, and a move within the tree, keep it');
  await codeOf(id, owner.token);
  t.match((await lookUp(again)).status, 200);
  t.match(await claim(again, away.id, service.admin), { status: 200 }, 'an admin reaches everybody');
});

t.test('a code ends when the device leaves the tree of its owner in another way', async (t) => {
  const job = async (body: object) => {
    const made = await service.http('POST', '/api/v1/devices/jobs', { body: { action: 'move', ...body } });
    await follow(service, made.body.job.id);
  };
  type Household = Awaited<ReturnType<typeof household>>;
  const leaving: Array<[string, (all: Household) => Promise<unknown>]> = [
    ['a PUT', ({ id, away }) => put(id, { organizationId: away.id })],
    ['a job', ({ id, away }) => job({ ids: [id], organizationId: away.id })],
    ['it is removed', ({ id, owner }) => put(id, { organizationId: null }, owner.token)],
    ['its label', ({ label, away }) => claim(label, away.id, service.admin)],
    [
      'its organization goes',
      async ({ home, away }) => {
        const { version } = (await service.ok('GET', `/api/v1/organizations/${home.id}`)).organization;
        const body = { parentId: away.id };
        await service.ok('PUT', `/api/v1/organizations/${home.id}`, { body, headers: { etag: version } });
      },
    ],
    [
      'its hardware is replaced',
      async ({ id }) => {
        const headers = { etag: (await read(id)).version };
        const body = { serialNumber: service.unique('new') };
        await service.ok('POST', `/api/v1/devices/${id}/replace`, { body, headers });
      },
    ],
  ];
  for (const [name, leave] of leaving) {
    const all = await household();
    await leave(all);
    t.match(await lookUp(all.code), noSuchCode, name);
    t.match(await claim(all.code, all.away.id, all.buyer.token), noSuchCode, name);
  }
  const { home, away, owner, buyer, id, code } = await household();
  const below = await service.organization({ parentId: home.id });
  await put(id, { organizationId: below.id }, owner.token);
  await job({ ids: [id], organizationId: home.id });
  const { version } = (await service.ok('GET', `/api/v1/organizations/${below.id}`)).organization;
  await service.ok('PUT', `/api/v1/organizations/${below.id}`, { body: { name: 'x' }, headers: { etag: version } });
  t.match(await claim(code, away.id, buyer.token), { status: 200 }, 'moves within the tree keep it');
});

t.test('a code counts only while its maker may still change devices of the same owner', async (t) => {
  const losing: Array<[string, (maker: Person) => Promise<unknown>]> = [
    [
      'deleted',
      ({ endUser: { id, version } }) => service.ok('DELETE', `/api/v1/end-users/${id}`, { headers: { etag: version } }),
    ],
    [
      'only a viewer now',
      ({ endUser: { id, version, organizationId } }) =>
        service.ok('PUT', `/api/v1/end-users/${id}`, {
          headers: { etag: version },
          body: { organizationId, roleId: 'organization:viewer' },
        }),
    ],
    [
      'moved to somebody else',
      async ({ endUser: { id, version } }) => {
        const { id: organizationId } = await service.organization();
        await service.ok('PUT', `/api/v1/end-users/${id}`, { headers: { etag: version }, body: { organizationId } });
      },
    ],
  ];
  for (const [name, lose] of losing) {
    const { home, away, buyer, id } = await household();
    const maker = await service.endUser(home.id);
    const code = await codeOf(id, maker.token);
    await lose(maker);
    t.match(await lookUp(code), noSuchCode, name);
    t.match(await claim(code, away.id, buyer.token), noSuchCode, name);
    t.match(await signUp(code, 'none@example.com'), noSuchCode, name);
    t.notOk(await isOpen(id), name);
  }
});

t.test('a code counts no more when its maker loses the right while somebody signs up with it', async (t) => {
  const { home, id } = await household();
  const maker = await service.endUser(home.id);
  const code = await codeOf(id, maker.token);
  const { hashNew } = Passwords.prototype;
  t.teardown(() => Object.assign(Passwords.prototype, { hashNew }));
  Passwords.prototype.hashNew = async function (...given) {
    const { id: endUserId, version } = maker.endUser;
    await service.ok('DELETE', `/api/v1/end-users/${endUserId}`, { headers: { etag: version } });
    return hashNew.apply(this, given);
  };
  t.match(await signUp(code, 'late@example.com'), noSuchCode);
  t.equal((await read(id)).organizationId, home.id);
});

t.test('a code that was ended counts no more, also when the clock is set back', async (t) => {
  const { home, away, buyer, id } = await household();
  const path = `/api/v1/organizations/${home.id}`;
  const above = await service.organization();
  for (const end of [
    (code: string) => claim(code, away.id, buyer.token),
    () => withdraw(id),
    async () => {
      const { organization } = await service.ok('GET', path as '/api/v1/organizations/{id}');
      return service.http('PUT', path, { headers: { etag: organization.version }, body: { parentId: above.id } });
    },
  ]) {
    await put(id, { organizationId: home.id });
    const code = await codeOf(id);
    now += 60_000;
    t.match(await end(code), { status: 200 });
    now -= 60_000;
    t.match(await lookUp(code), noSuchCode);
  }
});

t.test('of several codes that are made at once one counts', async (t) => {
  const { owner, id } = await household();
  const codes = await Promise.all(Array.from({ length: 5 }, () => codeOf(id, owner.token)));
  const answers = await Promise.all(codes.map(lookUp));
  t.same(answers.map(({ status }) => status).sort(), [200, 404, 404, 404, 404]);
});

t.test('a claim within the tree is a move; one into a foreign organization leaves the code unspent', async (t) => {
  const { home, away, owner, buyer, id, code } = await household();
  const below = await service.organization({ parentId: home.id });
  for (const target of [home.id, 'nothing'])
    t.match(await claim(code, target, buyer.token), { status: 400, body: { error: { code: 102 } } });
  const viewer = await service.endUser(away.id, { roleId: 'organization:viewer' });
  t.match(await claim(code, away.id, viewer.token), { status: 403 });
  t.match(await lookUp(code), { status: 200 });
  t.match(await claim(code, below.id, owner.token), { status: 200 });
  t.match(await read(id), { organizationId: below.id, possessionSince: null });
  t.match(await lookUp(code), noSuchCode, 'spent');
});

t.test('a person signs up with it and becomes the owner; before a second claim the address is confirmed', async (t) => {
  const { id, code, owner } = await household();
  const email = 'ada@example.com';
  const [first, second] = await Promise.all([signUp(code, email), signUp(code, email)]);
  const made = first.status === 200 ? first : second;
  t.equal(made.status, 200, 'two at once make one of everything');
  const { jwt, organizationId } = made.body as { jwt: string; organizationId: string };
  t.equal((await read(id)).organizationId, organizationId);
  t.match(await service.http('GET', `/api/v1/devices/${id}`, { token: owner.token }), { status: 404 });
  t.match(await signUp(code, 'bo@example.com'), noSuchCode);
  const other = await household();
  t.match(await claim(other.code, organizationId, jwt), { status: 403, body: { error: { code: 21 } } });
  t.match(await lookUp(other.code), { status: 200 }, 'and the code is not spent');
  const token = await mailbox.nextTokenTo(email);
  await service.ok('POST', '/api/v1/auth/confirm-email', { token: null, body: { token } });
  t.match(await claim(other.code, organizationId, jwt), { status: 200 });
  const switchedOff = await codeOf(other.id, jwt);
  await claiming({ signUp: false });
  t.match((await lookUp(switchedOff)).body, { signUp: false, taken: false });
  t.match(await signUp(switchedOff, 'cy@example.com'), { status: 403 });
  await claiming({ signUp: true });
});

/** An MQTT client of a person that hears all devices. */
async function listener(t: Test, { token }: Person) {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket({ username: 'Auth:JWT', password: Buffer.from(token) }));
  await client.next();
  await subscribed(client, ['#', 1]);
  return client;
}

t.test(
  'a former owner with the code in hand has no right that it does not give, and a spent one gives none',
  async (t) => {
    const { away, owner, buyer, id, secret, code } = await household();
    const own = await listener(t, owner);
    const theirs = await listener(t, buyer);
    const device = await service.connect({ deviceId: id, secret });
    const topic = service.topic(id, '_log');
    const publish = (word: string) => device.publishAsync(topic, JSON.stringify({ message: word }), { qos: 1 });
    const asks = (token: string) =>
      Promise.all([
        service.http('GET', `/api/v1/devices/${id}`, { token }),
        service.http('PUT', `/api/v1/devices/${id}`, { token, headers: { etag: '1' }, body: { name: 'x' } }),
        service.http('GET', `/api/v1/devices/${id}/logs`, { token }),
        service.http('GET', `/api/v1/devices/${id}/refusals`, { token }),
        service.http('POST', `/api/v1/devices/${id}/commands`, { token, body: { name: 'x' } }),
        give(id, token),
        withdraw(id, token),
        service.http('GET', `${path}/${id}`, { token }),
      ]);
    for (const answer of await asks(buyer.token)) t.equal(answer.status, 404, 'the code alone shows nothing');
    await publish('before');
    t.ok((await taken(own, ({ length }) => length > 0)).length > 0);
    t.match(await claim(code, away.id, buyer.token), { status: 200 });
    await publish('after');
    t.ok((await taken(theirs, ({ length }) => length > 0)).length > 0);
    t.same(await taken(own, () => true), [], 'nothing crosses');
    for (const answer of await asks(owner.token)) t.equal(answer.status, 404);
    t.match(await claim(code, owner.endUser.organizationId, owner.token), noSuchCode);
    t.match(await lookUp(code), noSuchCode);
    t.match(await signUp(code, 'former@example.com'), noSuchCode);
  },
);

t.test('1,000 claims and withdrawals at once give each device exactly one owner', async (t) => {
  const [devices, claims, withdrawals] = [40, 12, 13];
  const home = await service.organization();
  const owners = await Promise.all(Array.from({ length: 20 }, () => service.endUser(home.id)));
  const buyers = await Promise.all(
    Array.from({ length: 60 }, async () => service.endUser((await service.organization()).id)),
  );
  const given = await Promise.all(
    Array.from({ length: devices }, async () => {
      const { device } = await service.device({ organizationId: home.id });
      return { id: device.id, code: await codeOf(device.id, owners[0]?.token) };
    }),
  );
  const race = async ({ id, code }: { id: string; code: string }, index: number) => {
    const tries = Array.from({ length: claims + withdrawals }, async (_, n) => {
      // Claims and withdrawals in turns.
      if (n % 2 === 0) {
        const { token = '' } = owners[(index + n) % owners.length] ?? {};
        return { status: (await withdraw(id, token)).status, organizationId: home.id };
      }
      const { token = '', endUser } = buyers[(index * claims + (n - 1) / 2) % buyers.length] ?? {};
      const organizationId = String(endUser?.organizationId);
      return { status: (await claim(code, organizationId, token)).status, organizationId };
    });
    return { id, answers: await Promise.all(tries) };
  };
  const results: Awaited<ReturnType<typeof race>>[] = [];
  // As many at once as one address may have connections.
  for (let from = 0; from < devices; from += 10)
    results.push(...(await Promise.all(given.slice(from, from + 10).map((one, n) => race(one, from + n)))));
  let requests = 0;
  for (const { id, answers } of results) {
    requests += answers.length;
    t.same([...new Set(answers.map(({ status }) => status))].sort(), [200, 404]);
    const won = answers.filter(({ status }) => status === 200);
    t.equal(won.length, 1, 'one claim or one withdrawal');
    t.equal((await read(id)).organizationId, won[0]?.organizationId);
  }
  t.equal(requests, 1000);
  const ids = given.map(({ id }) => id);
  const left = `"kind" = 'giveAway' AND "deviceId" IN (${ids.map(() => '?')}) AND "expires" > ?`;
  t.equal(countStored(service, '"associationCodes"', left, [...ids, new Date(now).toISOString()]), 0);
});

t.test('a customer takes a device out, and the label works again, unless the account does not allow it', async (t) => {
  const { home, away, owner, buyer, id, label } = await household();
  const own = await listener(t, owner);
  t.match(await put(id, { organizationId: null, name: 'Kettle' }, owner.token), {
    status: 200,
    body: { device: { organizationId: null, name: 'Kettle' } },
  });
  t.match(await service.http('GET', `/api/v1/devices/${id}`, { token: owner.token }), { status: 404 });
  t.same(await taken(own, () => true), []);
  t.match(await read(id), { possessionSince: new Date(now).toISOString() }, 'the possession has ended');
  t.match(await claim(label, away.id, buyer.token), { status: 200 });

  t.match(await claiming({ customersMayRemove: false }), {
    status: 200,
    body: { claiming: { signUp: true, customersMayRemove: false } },
  });
  t.match(await claiming({ signUp: false }), { body: { claiming: { signUp: false, customersMayRemove: false } } });
  t.match(await claiming({ signUp: true }), { body: { claiming: { signUp: true, customersMayRemove: false } } });
  t.match(await claiming({}), { status: 200, body: { claiming: { signUp: true, customersMayRemove: false } } });
  t.match(await claiming({ customersMayRemove: 'perhaps' }), { status: 400 });
  for (const name of ['toString', 'valueOf', 'other'])
    t.match(await claiming({ [name]: true }), { status: 200 }, 'what is not known is ignored');
  const installer = await service.endUser(away.id, { roleId: 'organization:installer' });
  for (const { token } of [buyer, installer]) {
    t.match(await put(id, { organizationId: null }, token), { status: 403, body: { error: { code: 21 } } });
    t.match(await put(id, { organizationId: null, name: 'x' }, token), { status: 403 });
    t.match(await put(id, { name: 'Pot' }, token), { status: 200 }, 'other changes stay possible');
    t.match(await give(id, token), { status: 200 });
  }
  t.match(await read(id), { organizationId: away.id, name: 'Pot' });
  t.match(await put(id, { organizationId: null }), { status: 200 }, 'an admin');
  t.match(await claiming({ customersMayRemove: true }), { body: { claiming: { customersMayRemove: true } } });
  await put(id, { organizationId: home.id });
  const viewer = await service.endUser(home.id, { roleId: 'organization:viewer' });
  t.match(await put(id, { organizationId: null }, viewer.token), { status: 403 });
});

t.end();
