/** How long it takes from the start of the process until it listens: with a large registry, and with stored sessions. */
import { join } from 'node:path';
import { privateClientId } from '../broker/connections/client-ids.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { median, type Row } from './figures.ts';
import type { Bench } from './sizes.ts';

/** Seconds: of a start, and of one with 100,000 stored sessions. */
const figure = 1.2;
const figureOfSessions = 6;
/** The first start makes what a registry from elsewhere has not. */
const starts = 6;
/** Of a stored session: with five an account of 100,000 devices has about as many as it may have by default. */
const filtersOfSession = 5;

export async function measureStarts({ size, directory, serve, only }: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  const measure = async (place: string, devices: number, rest: Pick<Row, 'what' | 'figure'>) => {
    const seconds: number[] = [];
    const cpu: number[] = [];
    for (let start = 0; start < starts; start += 1) {
      const from = performance.now();
      const service = await serve(place);
      seconds.push((performance.now() - from) / 1000);
      cpu.push(service.cpu());
      await service.stop();
    }
    console.log(`${rest.what}, seconds: ${seconds.map((second) => second.toFixed(2)).join(', ')}`);
    rows.push({ ...rest, what: `${rest.what}, median of five`, devices, ours: median(seconds.slice(1)), unit: 's' });
    rows.push({ what: 'CPU time of it', devices, ours: median(cpu.slice(1)), unit: 's' });
  };
  const isAll = !only.includes('sessions');
  if (isAll)
    await measure(await directory(size.large), size.large, {
      what: 'Start until it listens',
      figure: { below: figure },
    });
  const held = await directory(size.registry);
  await (await serve(held)).stop();
  storeSessions(held);
  const what = `Start with a stored session of ${filtersOfSession} filters of each device`;
  await measure(held, size.registry, { what, figure: { below: figureOfSessions } });
  return rows;
}

/** Gives each device a session that it has left just now. */
function storeSessions(directory: string): void {
  const registry = openSqlite(join(directory, 'registry.db'), { readonly: true });
  const devices = registry
    .prepare<[], { id: string; accountId: string }>('SELECT "id", "accountId" FROM "devices"')
    .all();
  registry.close();
  const file = openSqlite(join(directory, 'messages.db'));
  const addSession = file.prepare('INSERT INTO "mqttSessions" ("id", "clientId", "left") VALUES (?, ?, ?)');
  const addFilter = file.prepare('INSERT INTO "mqttSubscriptions" ("session", "filter", "options") VALUES (?, ?, 1)');
  file.transaction(() => {
    for (const [at, { id, accountId }] of devices.entries()) {
      addSession.run(at + 1, privateClientId(accountId, id, id), Date.now());
      for (let n = 0; n < filtersOfSession; n += 1)
        addFilter.run(at + 1, `slipway/v1/${accountId}/d/${id}/channel-${n}`);
    }
  })();
  file.close();
}
