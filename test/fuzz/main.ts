/**
 * `npm run test:fuzz -- --seed N [--rounds N] [--seconds N] [--only NAME]`, where
 * NAME is part of the name of each part that runs: ends 1 when the service answers, logs or ends as it must not.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { fuzz } from './fuzz.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    rounds: { type: 'string', default: String(2 ** 31 - 1) },
    seconds: { type: 'string', default: '60' },
    only: { type: 'string', default: '' },
  },
});
const [seed, rounds, seconds] = [values.seed, values.rounds, values.seconds].map(Number) as [number, number, number];
const directory = mkdtempSync(join(tmpdir(), 'slipway-fuzz-'));
try {
  console.log(`seed ${seed}, ${seconds} seconds for each part\n`);
  const { inputs, findings } = await fuzz({ directory, seed, rounds, seconds, only: values.only, say: console.log });
  console.log(`\n${inputs} inputs, ${findings.length === 0 ? 'no findings' : `${findings.length} FINDINGS`}`);
  for (const finding of findings) console.log(`\n${finding}`);
  if (findings.length > 0) process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
