/** What a flood of logins costs: neither the process nor the turn of others. */
import { areStrangers, FairLanes, FairQueue, strangerLane } from '../../src/limits/fair-queue.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' }, slowHashes: true });
});
const lane = (name: string) => ({ accountId: name, callerId: name });
const login = (body: object, address = '192.0.2.1') =>
  service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    headers: { 'x-forwarded-for': address },
    body: { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId, ...body },
  });

t.test(
  'texts that grow when they are normalized, or are long, are refused before anything is done with them',
  async (t) => {
    // One character that becomes eighteen.
    const long = '\uFDFA'.repeat(100_000);
    // Without a token a body has 16 KiB.
    const fitting = '\uFDFA'.repeat(5000);
    const organization = await service.organization();
    const { token, endUser } = await service.endUser(organization.id);
    const { appToken } = await service.create('/applications', 'application', { name: 'A', kind: 'endUserApp' });
    const { accountId } = service;
    const invited = { accountId, organizationId: organization.id, createIdmUser: true, idmUserEmail: 'a@example.com' };
    for (const [path, body, headers] of [
      ['auth/login-user', { emailAddress: fitting, password: 'p', accountId }],
      ['auth/login-user', { emailAddress: adminEmail, password: fitting, accountId }],
      ['auth/login-user', { emailAddress: adminEmail, password: 'p', accountId: fitting }],
      ['auth/login-application', { appId: fitting, appToken: 'x', accountId }],
      ['auth/create-user', { accountId, emailAddress: 'b@example.com', password: long }, { accesstoken: appToken }],
      ['profile/change-password', { userId: endUser.userId, oldPassword: 'x', newPassword: long }],
      ['end-users', { ...invited, idmUserPassword: long }],
    ] as const) {
      const answer = await service.http('POST', `/api/v1/${path}`, {
        body,
        token: path.startsWith('auth') ? null : path === 'end-users' ? service.admin : token,
        ...(headers && { headers }),
      });
      t.equal(answer.status, 400, path);
    }
  },
);

t.test('anyone who floods the hashes waits for them alone', async (t) => {
  const answered: string[] = [];
  const flood = Array.from({ length: 60 }, async (_, n) => {
    await login({ emailAddress: `guess${n}@example.com` });
    answered.push('flood');
  });
  const owner = login({}, '198.51.100.1').then(({ status }) => {
    t.equal(status, 200);
    answered.push('owner');
  });
  await Promise.all([...flood, owner]);
  // In one queue it would be the last; hashing begins before all of them are there.
  t.ok(answered.indexOf('owner') < 45, `the owner came ${answered.indexOf('owner') + 1}th of ${answered.length}`);
});

t.test(
  'a login from where the owner has logged in before goes before 200 strangers, after a restart too',
  async (t) => {
    const directory = temporaryDirectory(t);
    const settings = { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' }, directory };
    const home = '2001:db8:77:1::5';
    const loginAt = (at: Service, address: string, body: object) =>
      at.http('POST', '/api/v1/auth/login-user', {
        token: null,
        headers: { 'x-forwarded-for': address },
        body: { emailAddress: adminEmail, password: adminPassword, accountId: at.accountId, ...body },
      });
    const before = await startService(t, settings);
    t.equal((await loginAt(before, home, {})).status, 200);
    await before.close();

    const restarted = await startService(t, { ...settings, slowHashes: true });
    let answered = 0;
    const flood = Array.from({ length: 200 }, async (_, n) => {
      const { status } = await loginAt(restarted, `198.51.100.${n}`, { emailAddress: `guess${n}@example.com` });
      answered += 1;
      t.equal(status, 401);
    });
    await Promise.race(flood);
    const waited = answered;
    const owner = await loginAt(restarted, home.replace('::5', '::9'), {});
    const served = answered - waited;
    t.equal(owner.status, 200);
    t.ok(served <= 12, `${served} strangers were served before the owner, of 200`);
    await Promise.all(flood);
  },
);

t.test('those who go last get every fifth turn', async (t) => {
  const queue = new FairQueue(1, { isLast: areStrangers });
  const leave = await queue.enter(lane('busy'), 1);
  const order: string[] = [];
  const run = (name: string, { accountId, callerId }: { accountId: string; callerId: string }) =>
    queue.run({ accountId, callerId }, 1, async () => void order.push(name));
  const strangers = ['2001:db8:1:1::1', '2001:db8:1:2::1', '192.0.2.1'];
  const waiting = strangers.map((address) => run('stranger', strangerLane(address)));
  for (let n = 0; n < 9; n += 1) waiting.push(run('owner', lane('a')));
  leave();
  await Promise.all(waiting);
  const turns = order.map((name) => name.charAt(0)).join('');
  t.equal(turns, 'oooosoooosos');
});

t.test('networks of 64 bits share the turn of their network of 48 bits', async (t) => {
  const queue = new FairQueue(1);
  const leave = await queue.enter(lane('busy'), 1);
  const order: string[] = [];
  const run = (name: string, address: string) => queue.run(strangerLane(address), 1, async () => void order.push(name));
  const attack = Array.from({ length: 20 }, (_, n) => run('attacker', `2001:db8:bad:${n}::1`));
  const honest = [run('honest', '192.0.2.1'), run('honest', '2001:db8:600d:1::1')];
  leave();
  await Promise.all([...attack, ...honest]);
  t.ok(order.lastIndexOf('honest') <= 3, order.join(' '));
});

t.test('lanes take turns, and one that is too long is refused', async (t) => {
  const queue = new FairQueue(1);
  const done: string[] = [];
  const open: Array<() => void> = [];
  const work = (name: string) => () =>
    new Promise<void>((resolve) => {
      done.push(name);
      open.push(resolve);
    });
  const all = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((name) => queue.run(lane(name.charAt(0)), 1, work(name)));
  await new Promise(setImmediate);
  for (let n = 0; n < all.length; n += 1) {
    open.shift()?.();
    await all.at(0);
    await new Promise(setImmediate);
  }
  await Promise.all(all);
  t.strictSame(done, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']);
  const blocked = queue.run(lane('a'), 1, work('first'));
  const waiting = Array.from({ length: 200 }, () => queue.run(lane('a'), 1, async () => {}));
  await t.rejects(
    queue.run(lane('a'), 1, async () => {}),
    /Too many requests/,
  );
  t.equal(await Promise.race([queue.run(lane('b'), 1, async () => 'b'), Promise.resolve('not yet')]), 'not yet');
  open.shift()?.();
  await Promise.all([blocked, ...waiting]);
});

t.test('accounts take turns by what their work costs, then the callers of each', async (t) => {
  const lanes = new FairLanes<string>(10);
  const push = (accountId: string, callerId: string, cost: number, items: string[]) => {
    for (const item of items) lanes.push({ accountId, callerId }, cost, item);
  };
  push('greedy', 'one', 50, ['G1', 'G2', 'G3']);
  push('modest', 'a', 5, ['a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8']);
  push('modest', 'b', 5, ['b1', 'b2']);
  const order = Array.from({ length: 13 }, () => lanes.shift());
  t.equal(lanes.shift(), undefined);
  const ofGreedy = order.flatMap((item, at) => (item?.startsWith('G') ? at : []));
  t.equal(ofGreedy[0], 0, 'who came first is first');
  t.equal(ofGreedy[1], 11, 'and pays for what it took: the others have their 50 in turn');
  t.ok(order.indexOf('b1') < order.indexOf('a4'), 'callers of one account take turns');
  t.strictSame(
    order.filter((item) => item?.startsWith('a')),
    ['a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8'],
    'those of one caller stay in order',
  );
});

t.test('one account has only its part of the places, however slow its work is', async (t) => {
  const queue = new FairQueue(4, { perAccount: 2 });
  const open: Array<() => void> = [];
  const begun: string[] = [];
  const work = (name: string) => () =>
    new Promise<void>((resolve) => {
      begun.push(name);
      open.push(resolve);
    });
  const slow = ['s1', 's2', 's3'].map((name) => queue.run(lane('slow'), 1, work(name)));
  const other = queue.run(lane('other'), 1, work('o1'));
  await new Promise(setImmediate);
  t.strictSame(begun, ['s1', 's2', 'o1']);
  open.shift()?.();
  await slow[0];
  await new Promise(setImmediate);
  t.strictSame(begun, ['s1', 's2', 'o1', 's3']);
  for (const end of open) end();
  await Promise.all([...slow, other]);
});

t.end();
