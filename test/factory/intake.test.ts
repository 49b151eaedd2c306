/** Bodies with rows are in memory: only so many at once. */
import { once } from 'node:events';
import { request } from 'node:http';
import { postRows } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** A request whose body has begun and does not end. */
function begin(token: string) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'text/csv', 'transfer-encoding': 'chunked' };
  const sent = request(`${service.server.url}/api/v1/provisioning/jobs?dryRun=true`, { method: 'POST', headers });
  sent.on('error', () => {});
  sent.write('serialNumber\nA-1\n');
  return sent;
}

t.test('bodies that do not end fill the place of their caller, not that of others, until they are gone', async (t) => {
  const other = await service.create('/account-users', 'accountUser', {
    ...{ createIdmUser: true, idmUserEmail: 'other@example.com', idmUserPassword: 'another fine secret' },
  });
  t.ok(other.id);
  const { jwt: token } = await service.loginAs('other@example.com', 'another fine secret');
  const post = () => postRows(service, [{ serialNumber: 'X' }], '?dryRun=true');
  t.equal((await post()).status, 202);
  const open = [begin(service.admin), begin(service.admin), begin(service.admin)];
  const answered = await Promise.race(open.map((one) => once(one, 'response')));
  t.equal(answered[0].statusCode, 429, 'the third is not listened to');
  const refused = await post();
  t.equal(refused.status, 429);
  t.match(refused, { body: { error: { code: -199, message: /rows/ } } });
  t.ok(Number(refused.headers.get('retry-after')) > 0);
  t.equal((await postRows(service, [{ serialNumber: 'X' }], '?dryRun=true', { token })).status, 202);
  for (const one of open) one.destroy();
  let after = await post();
  for (let tries = 0; after.status === 429 && tries < 100; tries += 1) after = await post();
  t.equal(after.status, 202, 'who has gone away takes no place');
});

t.test('the bodies of one account leave room for those of another', async (t) => {
  const tokens = [service.admin];
  for (const idmUserEmail of ['second@example.com', 'third@example.com']) {
    const idmUserPassword = 'another fine secret';
    await service.create('/account-users', 'accountUser', { createIdmUser: true, idmUserEmail, idmUserPassword });
    tokens.push((await service.loginAs(idmUserEmail, idmUserPassword)).jwt);
  }
  const { admin: foreign } = await service.account();
  const open = [...tokens, ...tokens].map(begin);
  const answers = open.map((one) => once(one, 'response'));
  const [refused] = await Promise.race(answers);
  t.equal(refused.statusCode, 429, 'not all of them');
  const post = (token: string) => postRows(service, [{ serialNumber: 'X' }], '?dryRun=true', { token });
  let latest = await post(tokens[2] ?? '');
  for (let tries = 0; latest.status === 202 && tries < 100; tries += 1) latest = await post(tokens[2] ?? '');
  t.equal(latest.status, 429, 'its account has no place left');
  t.equal((await post(foreign)).status, 202);
  for (const one of open) one.destroy();
});

t.end();
