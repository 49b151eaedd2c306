/** Long reading is shared: what one account reads in bulk does not make another wait, and drawing is not done by the event loop. */
import { holdReads, readsWaiting } from '../support/faults.ts';
import { shareOfLoop } from '../support/feel.ts';
import { download, follow, postRows, provision } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const rows = (count: number) => Array.from({ length: count }, (_, n) => ({ serialNumber: `R-${n}` }));

/** Devices of another account, and its token. */
async function neighbour(service: Service, count: number): Promise<{ accountId: string; token: string }> {
  const { accountId, admin: token } = await service.account();
  const made = await postRows(service, rows(count), '', { token });
  t.match((await follow(service, made.body.job.id, token)).at(-1), { state: 'succeeded' });
  return { accountId, token };
}

t.test('a page of another account does not wait for all the long pages of one that reads in bulk', async (t) => {
  const service = await sharedService(t);
  await provision(service, rows(1000));
  const other = await neighbour(service, 500);
  const path = (accountId: string, pageSize: number) =>
    `/api/v1/devices?accountId=${accountId}&pageSize=${pageSize}&expand=device-template`;
  const release = holdReads(t, service);
  const bulk = Array.from({ length: 12 }, () => service.ok('GET', path(service.accountId, 1000)));
  // One has a thread, which it does not give back.
  await until(() => readsWaiting(service) >= 11);
  const body = await service.ok('GET', path(other.accountId, 500), { token: other.token });
  t.equal(body.devices.results.length, 500);
  t.ok(readsWaiting(service) >= 11, 'the others still wait');
  release();
  for (const { devices } of await Promise.all(bulk)) t.equal(devices.results.length, 1000);
});

t.test('labels are drawn by a thread: the event loop has time for others', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_CLAIM_URL: `https://example.com/${'c'.repeat(900)}` } });
  const { id } = await provision(service, rows(4));
  const path = `/api/v1/provisioning/jobs/${id}/labels?format=png`;
  const one = await provision(service, rows(1));
  await (await download(service, path.replace(id, one.id))).arrayBuffer();
  const { result, share } = await shareOfLoop(async () => (await download(service, path)).arrayBuffer());
  t.ok(result.byteLength > 10_000);
  t.ok(share < 0.5, `${Math.round(100 * share)} % of the work was done in the event loop while labels were drawn`);
});

t.end();
