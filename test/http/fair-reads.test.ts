/** Long reading is shared: what one account reads in bulk does not make another wait, and drawing is not done by the event loop. */
import { shareOfLoop } from '../support/feel.ts';
import { download, follow, postRows, provision } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

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
  let pages = 0;
  let reading = true;
  const path = (accountId: string, pageSize: number) =>
    `/api/v1/devices?accountId=${accountId}&pageSize=${pageSize}&expand=device-template`;
  const bulk = Array.from({ length: 12 }, async () => {
    while (reading) {
      const body = await service.ok('GET', path(service.accountId, 1000));
      t.equal(body.devices.results.length, 1000);
      pages += 1;
    }
  });
  const sooner: number[] = [];
  for (let turn = 0; turn < 9; turn++) {
    const before = pages;
    const body = await service.ok('GET', path(other.accountId, 500), { token: other.token });
    t.equal(body.devices.results.length, 500);
    sooner.push(pages - before);
  }
  reading = false;
  await Promise.all(bulk);
  // With turns by account it is about 5, in steps of 12; in the order of arrival about 54.
  const all = sooner.reduce((sum, each) => sum + each, 0);
  t.ok(all <= 24, `${sooner} pages of 1,000 devices came before one of 500 of a neighbour; 12 are always under way`);
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
