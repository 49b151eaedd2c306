/** GET /search, with what people type, in a registry of the size that the directory has. */
import { join } from 'node:path';
import { openSqlite } from '../db/sqlite/open.ts';
import { logIn } from './api.ts';
import { at, described, type Row } from './figures.ts';
import { askAgain } from './http-load.ts';
import { look } from './lists.ts';
import type { Bench } from './sizes.ts';

const warmUp = 3;
/** Each n-th device gets a name. */
const namedEach = 10;
/** The figure, p95 in milliseconds. */
const figure = 50;

export async function measureSearch({ size, directory, serve }: Bench): Promise<Row[]> {
  const large = await directory(size.large);
  giveNames(large);
  const server = await serve(large);
  try {
    const { accountId, count, sample } = look(large);
    const { token } = await logIn(server, accountId);
    const { id = '', serialNumber: serial = '' } = sample;
    const asked = {
      'what one device is called': [id, id.slice(0, 13), serial, serial.toLowerCase(), serial.slice(0, 6)],
      'a part that many have': ['sn', 's', '0', 'Z0', 'pump', 'Pump 7', 'org', id.slice(0, 4)],
      'what nothing has': ['nothing-like-it', 'ü', 'SN-SN-SN', '00000000-0000', 'pump pump'],
    };
    const { port, pathname } = new URL(server.url);
    const rows: Row[] = [];
    console.log(`GET /search, ${count} devices (figure: p95 < ${figure} ms)\n`);
    for (const [what, texts] of Object.entries(asked)) {
      const slowest: number[] = [];
      for (const text of texts) {
        const line = `${pathname}/search?accountId=${accountId}&q=${encodeURIComponent(text)}`;
        const { times, answer } = await askAgain(Number(port), line, token, { warmUp, asks: size.asks });
        slowest.push(at(times, 0.95));
        console.log(`${described(times)}  ${answer.split('"type"').length - 1} hits  ${text}`);
      }
      const ours = Math.max(...slowest);
      rows.push({
        what: `Search for ${what}: p95 of the slowest`,
        devices: count,
        ours,
        unit: 'ms',
        figure: { below: figure },
      });
    }
    return rows;
  } finally {
    await server.stop();
  }
}

function giveNames(directory: string): void {
  const file = openSqlite(join(directory, 'registry.db'));
  file.exec(`UPDATE "devices" SET "fields" = json_object('name', 'Pump ' || ("row" / ${namedEach}))
    WHERE "row" % ${namedEach} = 0 AND "fields" = '{}'`);
  file.close();
}
