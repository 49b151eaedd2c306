import t from 'tap';
import { adminEmail, adminPassword, present, type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

const post = (body: object, token?: string) =>
  service.http('POST', '/api/v1/account-users', {
    body: { accountId: service.accountId, ...body },
    ...(token && { token }),
  });

t.test('a second admin is made, works, and can be ended; the last one stays', async (t) => {
  const made = await post({
    createIdmUser: true,
    idmUserEmail: 'second@example.com',
    idmUserPassword: 'a second secret',
  });
  t.match(made, { status: 200, body: { accountUser: { userId: String, accountId: service.accountId, version: '1' } } });
  const { accountUser } = made.body;
  const { jwt } = await service.loginAs('second@example.com', 'a second secret');
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`, { token: jwt });
  t.equal(list.accountUsers.meta.count, 2);
  const first = present(list.accountUsers.results.find((user) => user.id !== accountUser.id));
  t.strictSame(
    list.accountUsers.results.map((user) => user.emailAddress).sort(),
    ['admin@example.com', 'second@example.com'],
    'admins see the addresses of each other',
  );
  const path = `/api/v1/account-users/${first.id}`;
  t.match(await service.http('DELETE', path, { token: jwt }), { status: 400, body: { error: { code: 103 } } });
  await service.ok('DELETE', path, { token: jwt, headers: { etag: first.version } });
  const lists = () => service.http('GET', `/api/v1/devices?accountId=${service.accountId}`);
  t.match(await lists(), { status: 403, body: { error: { code: 21 } } }, 'the ended one can do nothing');
  const own = { token: jwt, headers: { etag: accountUser.version } };
  t.match(await service.http('DELETE', `/api/v1/account-users/${accountUser.id}`, own), {
    status: 400,
    body: { error: { code: 104 } },
  });
  t.match(await service.http('GET', path, { token: jwt }), { status: 410 });
  t.match(await post({ userId: first.userId }, jwt), { status: 200 }, 'made an admin again');
  t.match(await lists(), { status: 200 });
});

t.test('an identity is never both account user and end-user', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  t.match(await post({ userId: endUser.userId }), { status: 400, body: { error: { code: 110 } } });
  t.match(await post({ createIdmUser: true, idmUserEmail: adminEmail, idmUserPassword: adminPassword }), {
    status: 400,
    body: { error: { code: 110 } },
  });
  t.match(await post({ userId: 'nobody' }), { status: 400, body: { error: { code: 102 } } });
  t.match(await post({}), { status: 400, body: { error: { code: 106 } } });
  t.match(await post({ userId: endUser.userId }, token), { status: 403, body: { error: { code: 21 } } });
});
