/** GET /overview over HTTP at the size that the directory has, with a week of history and most devices lost. */
import { join } from 'node:path';
import { openSqlite } from '../db/sqlite/open.ts';
import { activityStep, stepOf } from '../src/ports/activity.ts';
import { logIn } from './api.ts';
import { at, described, type Row } from './figures.ts';
import { askAgain } from './http-load.ts';
import type { Bench } from './sizes.ts';

const warmUp = 3;
/** p95, in milliseconds. */
const figure = 50;
const steps = (7 * 24 * 60 * 60_000) / activityStep;

export async function measureOverview({ size, directory, serve }: Bench): Promise<Row[]> {
  const large = await directory(size.large);
  const { accountId, count } = fill(large);
  const server = await serve(large);
  try {
    const { token } = await logIn(server, accountId);
    const { pathname, port } = new URL(server.url);
    console.log(`GET /overview, ${count} devices (figure: p95 < ${figure} ms)\n`);
    const rows: Row[] = [];
    for (const hours of [24, 168]) {
      const line = `${pathname}/overview?accountId=${accountId}&hours=${hours}`;
      const cpu = server.cpu();
      const { times, answer } = await askAgain(Number(port), line, token, { warmUp, asks: size.asks });
      const cost = (1000 * (server.cpu() - cpu)) / (warmUp + size.asks);
      console.log(`${described(times)}  ${cost.toFixed(1)} ms CPU  ${answer.length} bytes  hours=${hours}`);
      const about = { devices: count, unit: 'ms' };
      const below = hours === 24 && { figure: { below: figure } };
      rows.push(
        { what: `GET /overview, ${hours} hours, p95`, ...about, ours: at(times, 0.95), ...below },
        { what: 'The same, CPU of a request', ...about, ours: cost },
      );
    }
    return rows;
  } finally {
    await server.stop();
  }
}

/** A week of activity, and every device that was ever connected has gone within the last day. */
function fill(directory: string): { accountId: string; count: number } {
  const file = openSqlite(join(directory, 'registry.db'));
  try {
    const largest = `SELECT "accountId", sum("count") AS "count" FROM "deviceCounts" GROUP BY 1 ORDER BY 2 DESC LIMIT 1`;
    const found = file.prepare<[], { accountId: string; count: number }>(largest).get();
    if (!found) throw new Error('there are no devices');
    const insert = file.prepare(
      `INSERT OR REPLACE INTO "activity" VALUES (?, ?, 12500, 30000, 3, '{"noSuchChannel":3}')`,
    );
    const last = stepOf(Date.now());
    file.transaction(() => {
      for (let step = 1; step <= steps; step += 1) insert.run(found.accountId, last - step * activityStep);
      file
        .prepare('UPDATE "devicePresence" SET "offlineSince" = ? WHERE "connected" = 0')
        .run(new Date().toISOString());
    })();
    file.pragma('wal_checkpoint(TRUNCATE)');
    return found;
  } finally {
    file.close();
  }
}
