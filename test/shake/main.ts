/**
 * `npm run test:shake -- [--rounds N] [--seed S] [--files REGEXP] [--jobs 4] [--busy 2]`: all test files in random order, in pairs, on a
 * busy machine with a slow disk. Ends 1 when a test fails. Round n has the seed S + n: `--seed` of a round repeats it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { filesAt, type Group, isAlone } from '../run/files.ts';
import { runGroups } from '../run/processes.ts';
import { Report } from '../run/report.ts';
import { dice, shuffled } from '../support/dice.ts';
import { endingWithUs } from '../support/ending.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    files: { type: 'string', default: '' },
    /** Processes at once. */
    jobs: { type: 'string', default: '4' },
    /** Loops beside them that do nothing but take CPU. */
    busy: { type: 'string', default: '2' },
  },
});
const delays = fileURLToPath(new URL('./delays.ts', import.meta.url));
/** A loop that ends by itself should nobody end it. */
const busy = 'const end = Date.now() + 3_600_000; while (Date.now() < end);';
/** Seconds of a file, and of a wait: four times what they have on a machine at rest. */
const [limit, patience] = [480, 80];

/** Files two by two, and those that need a process of their own. */
function pairsOf(files: readonly string[], roll: () => number): Group[] {
  const mixed = shuffled(files, roll);
  const sharing = mixed.filter((file) => !isAlone(file));
  const pairs = sharing.flatMap((file, at): Group[] =>
    at % 2 === 0 ? [[file, ...sharing.slice(at + 1, at + 2)]] : [],
  );
  return shuffled([...pairs, ...mixed.filter(isAlone).map((file) => [file])], roll);
}

async function shake(files: readonly string[], seed: number): Promise<Report> {
  const report = new Report();
  const groups = pairsOf(files, dice(seed));
  const seeds = new Map(groups.map((group, at) => [group, seed * 1000 + at]));
  let left = groups.length;
  await runGroups(groups, {
    jobs: Number(values.jobs),
    limit,
    env: (group) => ({
      TEST_SHAKE: delays,
      TEST_SHAKE_SEED: String(seeds.get(group)),
      TEST_PATIENCE_SECONDS: String(patience),
      NODE_OPTIONS: `--import=${delays}`,
    }),
    ended: (outcome) => {
      left -= 1;
      const lines = report.add(outcome);
      if (outcome.failures.length > 0)
        console.log(`${lines}\nSeed ${seed}: ${outcome.group.join(' ')} (${left} left)\n`);
    },
  });
  return report;
}

function startLoop(): ChildProcess {
  const [command, ...args] = endingWithUs([process.execPath, '--eval', busy]);
  return spawn(command, args, { stdio: 'ignore' });
}

const files = filesAt(['test']).filter((file) => new RegExp(values.files).test(file));
const rows: Array<{ seed: number; seconds: number; passed: number; failed: number }> = [];
const failed = new Map<string, number[]>();
for (let round = 0; round < Number(values.rounds); round += 1) {
  const [seed, from] = [Number(values.seed) + round, performance.now()];
  console.log(`Round ${round + 1}: ${files.length} files, seed ${seed}`);
  const loops = Array.from({ length: Number(values.busy) }, startLoop);
  try {
    const { passed, failures } = await shake(files, seed);
    const seconds = Math.round((performance.now() - from) / 1000);
    rows.push({ seed, seconds, passed, failed: failures.length });
    for (const { title } of failures) failed.set(title, [...(failed.get(title) ?? []), seed]);
    console.log(`${passed} passed, ${failures.length} failed (${seconds} s)\n`);
  } finally {
    for (const loop of loops) loop.kill('SIGKILL');
  }
}
console.table(rows);
for (const [title, seeds] of failed) console.log(`Failed with ${seeds.join(', ')}: ${title}`);
process.exitCode = failed.size > 0 ? 1 : 0;
