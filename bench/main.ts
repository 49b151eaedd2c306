/** `npm run bench -- <scenario>`: measures what the README promises in figures. Each scenario can be run singly. */
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { measureBackup } from './backup.js';
import { measureBridges } from './bridges.js';
import { measureDisturbance } from './disturbance.js';
import { sayLoad } from './figures.js';
import { measureKeeping } from './keeping.js';
import { measureLatency } from './latency.js';
import { measureLists } from './lists.js';
import { measureLogins } from './logins.js';
import { measureLogs } from './logs.js';
import { measureMoves } from './move.js';
import { measureOne } from './one.js';
import { measureProvisioning } from './provision.js';
import { measureReconnect } from './reconnect.js';
import { seed } from './seed.js';
import { measureSeries } from './series.js';
import { measureStored } from './stored.js';

const usage = `npm run bench -- seed  --data-dir D [--devices 1000000]   make a large registry in D
npm run bench -- lists [--data-dir D] [--devices 1000000]  every filter and sort of GET /devices (seeds its own without D)
npm run bench -- move  [--devices 10000]                   move an organization with so many devices under live connections
npm run bench -- keeping                                   ingest while the cap on bytes is reached, against ingest without
npm run bench -- bridges                                   what bridges cost publishers, at each level
npm run bench -- series [--points 10000000]                pages, latest, rollups, a month as CSV while devices publish
npm run bench -- logins                                    what logins cost others, and what their time tells
npm run bench -- reconnect [--devices 10000]               a fleet with stored sessions comes back after a restart
npm run bench -- latency                                   publish to receive on an idle broker
npm run bench -- disturbance                               what honest clients feel of those who do harm
npm run bench -- stored                                    QoS 1 that is on disk before it is acknowledged
npm run bench -- backup                                    what publishers feel of a backup beside them
npm run bench -- provision [--devices 50000]               one job of so many units beside others, and single requests
npm run bench -- one                                       one unit by a process of its own, as a line makes it
npm run bench -- logs                                      a million log entries: stored, paged, searched
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'data-dir': { type: 'string' }, devices: { type: 'string' }, points: { type: 'string' } },
});
const [scenario = ''] = positionals;
const usual: Record<string, number> = { move: 10_000, reconnect: 10_000, provision: 50_000 };
const devices = Number(values.devices ?? usual[scenario] ?? 1_000_000);
const points = Number(values.points ?? 10_000_000);
const given = values['data-dir'];
const say = (line: string) => console.log(line);

/** Each scenario on a directory; `seeds` is how many devices are to be there before, when the directory is new. */
const scenarios: Record<string, { seeds: number; run(directory: string): Promise<unknown> }> = {
  seed: { seeds: 0, run: (directory) => seed(directory, devices, say) },
  lists: { seeds: devices, run: measureLists },
  keeping: { seeds: 0, run: (directory) => measureKeeping(directory, say) },
  bridges: { seeds: 0, run: measureBridges },
  logins: { seeds: 0, run: measureLogins },
  series: { seeds: 0, run: (directory) => measureSeries(directory, points) },
  logs: { seeds: 2000, run: measureLogs },
  move: { seeds: 1000, run: (directory) => measureMoves(directory, devices) },
  reconnect: { seeds: devices, run: (directory) => measureReconnect(directory, devices) },
  latency: { seeds: 1000, run: measureLatency },
  disturbance: { seeds: 1000, run: measureDisturbance },
  provision: { seeds: 1000, run: (directory) => measureProvisioning(directory, devices) },
  one: { seeds: 1000, run: measureOne },
  backup: { seeds: 100_000, run: measureBackup },
  stored: { seeds: 1000, run: measureStored },
};
const chosen = Object.hasOwn(scenarios, scenario) ? scenarios[scenario] : undefined;

if (
  ![devices, points].every((number) => Number.isInteger(number) && number > 0) ||
  !chosen ||
  (scenario === 'seed' && !given)
) {
  console.error(usage);
  process.exitCode = 2;
} else {
  const directory = given ?? mkdtempSync(join(tmpdir(), 'slipway-bench-'));
  try {
    sayLoad(loadavg(), availableParallelism());
    if (given === undefined && chosen.seeds > 0) await seed(directory, chosen.seeds, say);
    await chosen.run(directory);
  } finally {
    if (given === undefined) rmSync(directory, { recursive: true, force: true });
  }
}
