/** `npm run bench -- <scenario>`: measures what the README promises in figures. Each scenario can be run singly. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { measureLists } from './lists.js';
import { measureLogins } from './logins.js';
import { measureLogs } from './logs.js';
import { measureMoves } from './move.js';
import { seed } from './seed.js';

const usage = `npm run bench -- seed  --data-dir D [--devices 1000000]   make a large registry in D
npm run bench -- lists [--data-dir D] [--devices 1000000]  every filter and sort of GET /devices (seeds its own without D)
npm run bench -- move  [--devices 10000]                   move an organization with so many devices under live connections
npm run bench -- logins                                    what logins cost others, and what their time tells
npm run bench -- logs                                      a million log entries: stored, paged, searched
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'data-dir': { type: 'string' }, devices: { type: 'string' } },
});
const [scenario = ''] = positionals;
const devices = Number(values.devices ?? (scenario === 'move' ? 10_000 : 1_000_000));
const given = values['data-dir'];
const say = (line: string) => console.log(line);

/** Each scenario on a directory; `seeds` is how many devices are to be there before, when the directory is new. */
const scenarios: Record<string, { seeds: number; run(directory: string): Promise<unknown> }> = {
  seed: { seeds: 0, run: (directory) => seed(directory, devices, say) },
  lists: { seeds: devices, run: measureLists },
  logins: { seeds: 0, run: measureLogins },
  logs: { seeds: 2000, run: measureLogs },
  move: { seeds: 1000, run: (directory) => measureMoves(directory, devices) },
};
const chosen = Object.hasOwn(scenarios, scenario) ? scenarios[scenario] : undefined;

if (!Number.isInteger(devices) || devices < 1 || !chosen || (scenario === 'seed' && !given)) {
  console.error(usage);
  process.exitCode = 2;
} else {
  const directory = given ?? mkdtempSync(join(tmpdir(), 'slipway-bench-'));
  try {
    if (given === undefined && chosen.seeds > 0) await seed(directory, chosen.seeds, say);
    await chosen.run(directory);
  } finally {
    if (given === undefined) rmSync(directory, { recursive: true, force: true });
  }
}
