/** Jobs wait for their turn: only so many at once, so that nobody's hold up those of others. */

import { follow, postRows } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

t.test(
  'of one caller only so many jobs are open at once; others, and what was made before, are not held up',
  async (t) => {
    const service = await sharedService(t);
    const idmUserPassword = 'another fine secret';
    await service.create('/account-users', 'accountUser', {
      ...{ createIdmUser: true, idmUserEmail: 'other@example.com', idmUserPassword },
    });
    const { jwt: token } = await service.loginAs('other@example.com', idmUserPassword);
    const { admin: jwt } = await service.account();
    // They keep both places busy meanwhile, also where requests are slower than threads: as many rows as a job may have.
    const long = Array.from({ length: 50_000 }, (_, at) => ({ serialNumber: `LONG-${at}` }));
    const known = await postRows(service, long);
    await postRows(service, long, '?dryRun=true');
    const posted = await Promise.all(
      Array.from({ length: 205 }, (_, at) => postRows(service, [{ serialNumber: `${at}` }], '?dryRun=true')),
    );
    const made = posted.filter(({ status }) => status === 202);
    const refused = posted.filter(({ status }) => status === 429);
    t.equal(made.length + refused.length, 205);
    t.ok(made.length <= 200 && made.length >= 198, `${made.length} of them wait`);
    t.match(refused[0], { body: { error: { code: -199, message: /open/ } } });
    t.ok(Number(refused[0]?.headers.get('retry-after')) > 0);
    t.equal((await postRows(service, long)).body.job.id, known.body.job.id, 'a repeat is answered');
    const bulk = { action: 'delete', ids: ['00000000-0000-7000-8000-000000000000'] };
    t.equal((await service.http('POST', '/api/v1/devices/jobs', { body: bulk })).status, 429);
    const others = await postRows(service, [{ serialNumber: 'X' }], '?dryRun=true', { token });
    t.equal(others.status, 202);
    const next = await postRows(service, [{ serialNumber: 'next' }], '?dryRun=true', { token: jwt });
    const jobsOf = async (state = '') =>
      (await service.ok('GET', `/api/v1/provisioning/jobs?accountId=${service.accountId}&pageSize=1000${state}`)).jobs
        .results;
    const results = await jobsOf();
    t.equal(results.length, made.length + 3, 'nothing is left of what was refused');
    t.match((await follow(service, next.body.job.id, jwt)).at(-1), { state: 'succeeded' });
    const { created, finished } = (
      await service.ok('GET', `/api/v1/provisioning/jobs/${next.body.job.id}`, { token: jwt })
    ).job;
    const waiting = (await jobsOf()).filter((one) => one.finished === null || one.finished > created);
    const sooner = waiting.filter((one) => one.finished !== null && one.finished < finished).length;
    t.ok(waiting.length > 20, `${waiting.length} jobs waited when the other account posted its own`);
    t.ok(
      sooner < waiting.length / 2,
      `${sooner} of ${waiting.length} waiting jobs ended before the one of the other account`,
    );
    for (const { id, total } of results)
      if (total === 50_000) await service.ok('POST', `/api/v1/provisioning/jobs/${id}/cancel`);
    await Promise.all(results.slice(0, 10).map(({ id }) => follow(service, id)));
    t.equal((await postRows(service, [{ serialNumber: 'after' }], '?dryRun=true')).status, 202, 'there is room again');
  },
);

t.test('a long job gives its place away while another account waits, and goes on after it', async (t) => {
  const service = await sharedService(t);
  const { admin: jwt } = await service.account();
  const long = (name: string) => Array.from({ length: 50_000 }, (_, at) => ({ serialNumber: `${name}-${at}` }));
  // At once, so that neither has gone far when the short one comes.
  const both = await Promise.all(['A', 'B'].map(async (name) => (await postRows(service, long(name))).body.job));
  const own = (await postRows(service, [{ serialNumber: 'own' }], '', { token: jwt })).body.job;
  t.match((await follow(service, own.id, jwt)).at(-1), { state: 'succeeded', done: 1 });
  const jobOf = async ({ id }: Record<'id', string>) =>
    (await service.ok('GET', `/api/v1/provisioning/jobs/${id}`)).job;
  for (const one of both) {
    const { state, done } = await jobOf(one);
    t.equal(state, 'running', 'the long ones have not ended');
    await until(async () => (await jobOf(one)).done > done);
    await service.ok('POST', `/api/v1/provisioning/jobs/${one.id}/cancel`);
  }
});

t.end();
