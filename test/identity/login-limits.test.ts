import { whileHashingIsFull } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const minute = 60_000;
const time = { now: Date.parse('2026-03-01T00:00:00Z') };
let service: Service;
t.before(async () => {
  service = await boot(t);
});
// Whatever was counted is forgotten.
t.beforeEach(() => {
  time.now += 48 * 60 * minute;
});

async function boot(t: Parameters<typeof startService>[0], env: Record<string, string> = {}): Promise<Service> {
  return startService(t, {
    clock: { now: () => time.now },
    // The tests speak from many addresses through a proxy that is trusted.
    env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1', ...env },
  });
}

const from = (service: Service, address: string, body: object = {}) =>
  service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    headers: { 'x-forwarded-for': address },
    body: { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId, ...body },
  });
const wrong = { password: 'a wrong password' };

t.test('ten wrong tries end an address for an identity, not the identity for its owner', async (t) => {
  for (let left = 9; left >= 0; left -= 1) {
    const answer = await from(service, '192.0.2.1', wrong);
    t.equal(answer.status, 401);
    t.equal(answer.headers.get('ratelimit-limit'), '10');
    t.equal(answer.headers.get('ratelimit-remaining'), String(left));
  }
  const limited = await from(service, '192.0.2.1');
  t.match(limited, { status: 429, body: { statusCode: 429, attributes: { errorCode: 'TooManyError' } } });
  t.equal(limited.headers.get('retry-after'), '900');
  t.equal((await from(service, '192.0.2.2')).status, 200, 'the owner, elsewhere');
  t.equal((await from(service, '192.0.2.1', { emailAddress: 'other@example.com' })).status, 401, 'other identities');
  time.now += 15 * minute;
  t.equal((await from(service, '192.0.2.1')).status, 200, 'after a quarter of an hour');
});

t.test('many tries at once do not get past the limit', async (t) => {
  const answers = await Promise.all(Array.from({ length: 40 }, () => from(service, '192.0.2.1', wrong)));
  t.equal(answers.filter(({ status }) => status === 401).length, 10);
  t.equal(answers.filter(({ status }) => status === 429).length, 30);
});

t.test('an identity that does not exist is limited like one that does', async (t) => {
  const statuses = async (body: object) => {
    const seen = [];
    for (let n = 0; n < 12; n += 1) {
      const { status, headers } = await from(service, '192.0.2.1', body);
      seen.push([status, headers.get('ratelimit-remaining')]);
    }
    return seen;
  };
  t.strictSame(await statuses({ emailAddress: 'nobody@example.com' }), await statuses(wrong));
});

t.test('a try for which there was no room is no wrong one', async (t) => {
  await whileHashingIsFull(service, async () => {
    for (let n = 0; n < 12; n += 1) t.equal((await from(service, '192.0.2.1')).status, 429);
  });
  const answer = await from(service, '192.0.2.1', wrong);
  t.equal(answer.status, 401);
  t.equal(answer.headers.get('ratelimit-remaining'), '9');
});

t.test('a right password forgets what was wrong before it', async (t) => {
  for (let n = 0; n < 9; n += 1) await from(service, '192.0.2.1', wrong);
  t.equal((await from(service, '192.0.2.1')).status, 200);
  t.equal((await from(service, '192.0.2.1', wrong)).headers.get('ratelimit-remaining'), '9');
});

t.test(
  'an address that tries many identities is refused for an hour; one of IPv6 is its network of 64 bits',
  async (t) => {
    const service = await boot(t, { SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '20' });
    const guess = (n: number, address: string) => from(service, address, { emailAddress: `guess${n}@example.com` });
    for (let n = 0; n < 20; n += 1) t.equal((await guess(n, `2001:db8:1:2::${n + 1}`)).status, 401);
    t.equal((await guess(20, '2001:db8:1:2:ffff::1')).status, 429);
    t.equal((await from(service, '2001:db8:1:2::1')).status, 429, 'no matter who it is');
    t.equal((await guess(21, '2001:db8:1:3::1')).status, 401, 'the next network');
    time.now += 60 * minute;
    t.equal((await from(service, '2001:db8:1:2::1')).status, 200);
  },
);

t.test('a network of 48 bits may fail ten times as often as one of its networks of 64 bits', async (t) => {
  const service = await boot(t, {
    SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '4',
    SLIPWAY_LOGIN_FAILURES_PER_IDENTITY: '2',
  });
  const guess = (n: number, address: string) => from(service, address, { emailAddress: `guess${n}@example.com` });
  for (let n = 0; n < 40; n += 1) t.equal((await guess(n, `2001:db8:1:${n}::1`)).status, 401);
  const refused = await guess(40, '2001:db8:1:ffff::1');
  t.equal(refused.status, 429, 'from a network of 64 bits that has not failed yet');
  t.equal(refused.headers.get('ratelimit-limit'), '40');
  t.equal((await from(service, '2001:db8:2:ffff::1')).status, 200, 'the next network of 48 bits');
  t.equal((await from(service, '192.0.2.9')).status, 200);

  const statuses = [];
  for (let n = 0; n < 21; n += 1) statuses.push((await from(service, `2001:db8:3:${n}::1`, wrong)).status);
  t.strictSame(statuses, [...Array(20).fill(401), 429], 'of one identity too');
  time.now += 15 * minute;
  t.equal((await from(service, '2001:db8:3:1::1')).status, 200);
  for (let n = 0; n < 19; n += 1) await from(service, `2001:db8:3:${n}::1`, wrong);
  t.equal((await from(service, '2001:db8:3:0::1')).status, 200, 'a right password is not counted');
  t.equal((await from(service, '2001:db8:3:99::1', wrong)).status, 401, 'and forgets what was wrong from its own');
});

t.test('guessing from many addresses slows strangers down, not those who were there before', async (t) => {
  t.equal((await from(service, '192.0.2.1')).status, 200);
  for (let n = 0; n < 50; n += 1) t.equal((await from(service, `198.51.100.${n}`, wrong)).status, 401);
  t.equal((await from(service, '203.0.113.1', wrong)).status, 401, 'one stranger in ten seconds');
  const next = await from(service, '203.0.113.2', wrong);
  t.equal(next.status, 429);
  t.equal(next.headers.get('retry-after'), '10');
  t.equal((await from(service, '192.0.2.1')).status, 200, 'the owner, where it was before');
  time.now += 10_000;
  t.equal((await from(service, '203.0.113.2')).status, 200, 'the owner, from a new address, a little later');
});

t.test('what is refused for one identity is no try of the address: a neighbour logs in', async (t) => {
  const service = await boot(t, { SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '20' });
  for (let n = 0; n < 60; n += 1) await from(service, '192.0.2.1', { emailAddress: 'somebody@example.com' });
  t.equal((await from(service, '192.0.2.1')).status, 200);
});

t.test('an owner of an IPv6 network is known by the network', async (t) => {
  t.equal((await from(service, '2001:db8:6:5::1')).status, 200);
  for (let n = 0; n < 52; n += 1) await from(service, `198.51.100.${n}`, wrong);
  t.equal((await from(service, '2001:db8:6:5:aaaa::2')).status, 200);
});

t.test('however a trusted proxy writes an address, it is one and the same', async (t) => {
  const service = await boot(t, { SLIPWAY_LOGIN_FAILURES_PER_IDENTITY: '3' });
  const left = async (address: string) => (await from(service, address, wrong)).headers.get('ratelimit-remaining');
  t.equal(await left('192.0.2.7'), '2');
  t.equal(await left('::ffff:c000:207'), '1');
  t.equal(await left('192.0.2.7:5555'), '0');
  for (const spelling of ['[::ffff:192.0.2.7]:80', '192.0.2.7'])
    t.equal((await from(service, spelling)).status, 429, spelling);
  t.equal(await left('0xc0.0.2.7'), '2', 'no address: the proxy itself');
  t.equal(await left('anything'), '1');
});

t.test('whose word about the sender is not trusted is the sender', async (t) => {
  const service = await boot(t, { SLIPWAY_TRUSTED_PROXIES: '192.0.2.0/24' });
  for (let n = 0; n < 10; n += 1) t.equal((await from(service, `198.51.100.${n}`, wrong)).status, 401);
  t.equal((await from(service, '198.51.100.99')).status, 429);
});

t.test('a caller may be limited in general', async (t) => {
  const service = await boot(t, { SLIPWAY_HTTP_RATE_PER_CALLER: '5' });
  const list = () => service.http('GET', `/api/v1/devices?accountId=${service.accountId}`);
  for (let left = 4; left >= 0; left -= 1) {
    const answer = await list();
    t.equal(answer.status, 200);
    t.equal(answer.headers.get('ratelimit-remaining'), String(left));
  }
  const limited = await list();
  t.match(limited, { status: 429, body: { error: { code: -199 } } });
  t.equal(limited.headers.get('retry-after'), '1');
  time.now += 1000;
  t.equal((await list()).status, 200);
});

t.end();
