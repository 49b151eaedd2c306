/** `npm run bench -- <scenario>`: measures what the README promises in figures. Each scenario can be run singly. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { measureLists } from './lists.js';
import { seed } from './seed.js';

const usage = `npm run bench -- seed  --data-dir D [--devices 1000000]   make a large registry in D
npm run bench -- lists [--data-dir D] [--devices 1000000]  every filter and sort of GET /devices (seeds its own without D)
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'data-dir': { type: 'string' }, devices: { type: 'string', default: '1000000' } },
});
const devices = Number(values.devices);
const [scenario] = positionals;
const given = values['data-dir'];

if (
  !Number.isInteger(devices) ||
  devices < 1 ||
  (scenario !== 'seed' && scenario !== 'lists') ||
  (scenario === 'seed' && !given)
) {
  console.error(usage);
  process.exitCode = 2;
} else {
  const directory = given ?? mkdtempSync(join(tmpdir(), 'slipway-bench-'));
  try {
    if (scenario === 'seed' || given === undefined) await seed(directory, devices, (line) => console.log(line));
    if (scenario === 'lists') await measureLists(directory);
  } finally {
    if (given === undefined) rmSync(directory, { recursive: true, force: true });
  }
}
