/** `npm run test:soak -- --minutes N [--every S]`: ends 1 when memory, descriptors or write-ahead logs grow, or anything fails. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { soak } from './soak.ts';

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '30' }, every: { type: 'string', default: '5' } },
});
const directory = mkdtempSync(join(tmpdir(), 'slipway-soak-'));
try {
  const seconds = Number(values.minutes) * 60;
  const { verdicts, done, failures } = await soak({
    directory,
    seconds,
    every: Number(values.every),
    say: console.log,
  });
  console.log(`\n${[...done].map(([what, count]) => `${count} ${what}`).join(', ')}\n`);
  for (const { name, median, rise, isFlat } of verdicts)
    console.log(
      `${name.padEnd(16)} median ${median.toFixed(1).padStart(8)}   rise ${rise.toFixed(1).padStart(7)}   ${isFlat ? 'flat' : 'NOT FLAT'}`,
    );
  for (const failure of failures.slice(0, 20)) console.log(`! ${failure}`);
  if (failures.length > 0 || verdicts.some(({ isFlat }) => !isFlat)) process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
