/** What a flood of logins costs: neither the process nor somebody else's turn. */
import t from 'tap';
import { FairQueue } from '../../src/fair-queue.js';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' } });
});
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
    const organization = await service.organization();
    const { token, endUser } = await service.endUser(organization.id);
    const { appToken } = await service.create('/applications', 'application', { name: 'A', kind: 'endUserApp' });
    const { accountId } = service;
    const invited = { accountId, organizationId: organization.id, createIdmUser: true, idmUserEmail: 'a@example.com' };
    for (const [path, body, headers] of [
      ['auth/login-user', { emailAddress: long, password: 'p', accountId }],
      ['auth/login-user', { emailAddress: adminEmail, password: long, accountId }],
      ['auth/login-user', { emailAddress: adminEmail, password: 'p', accountId: long }],
      ['auth/login-application', { appId: long, appToken: 'x', accountId }],
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

t.test('whoever floods the hashes waits for them alone', async (t) => {
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

t.test('lanes take turns, and one that is too long is refused', async (t) => {
  const queue = new FairQueue(1);
  const done: string[] = [];
  const open: Array<() => void> = [];
  const work = (name: string) => () =>
    new Promise<void>((resolve) => {
      done.push(name);
      open.push(resolve);
    });
  const all = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((name) => queue.run(name.charAt(0), work(name)));
  for (let n = 0; n < all.length; n += 1) {
    open.shift()?.();
    await all.at(0);
    await new Promise(setImmediate);
  }
  await Promise.all(all);
  t.strictSame(done, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']);
  const blocked = queue.run('a', work('first'));
  const waiting = Array.from({ length: 200 }, () => queue.run('a', async () => {}));
  await t.rejects(
    queue.run('a', async () => {}),
    /Too many requests/,
  );
  t.equal(await Promise.race([queue.run('b', async () => 'b'), Promise.resolve('not yet')]), 'not yet');
  open.shift()?.();
  await Promise.all([blocked, ...waiting]);
});
