/** `npm run test:crash -- --rounds N [--seed S] [--devices D] [--move]`: ends 1 when anything acknowledged is lost. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { proveCrashes } from './proof.js';

/** Milliseconds from the start of the process to its first answers; a busy machine is no loss. */
const readyFigure = 5000;

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    devices: { type: 'string', default: '100000' },
    move: { type: 'boolean', default: false },
  },
});
const [rounds, seed, devices] = [values.rounds, values.seed, values.devices].map(Number) as [number, number, number];
const directory = mkdtempSync(join(tmpdir(), 'slipway-crash-'));
try {
  console.log(`${rounds} rounds, seed ${seed}\n`);
  const proof = await proveCrashes({
    directory,
    rounds,
    seed,
    devices,
    loadTime: 2500,
    move: values.move,
    say: console.log,
  });
  const { kills, inCheckpoint, acknowledged, writes, starts, losses } = proof;
  console.log(`\n${kills} kills, ${inCheckpoint} of them in a checkpoint`);
  console.log(`${acknowledged} messages and ${writes} writes over HTTP were acknowledged`);
  const [median, slowest] = [starts.sort((a, b) => a - b)[starts.length >> 1] ?? 0, starts.at(-1) ?? 0];
  const verdict = slowest < readyFigure ? 'within' : 'NOT within';
  console.log(
    `ready after ${Math.round(median)} ms (median), ${Math.round(slowest)} ms (slowest): ${verdict} ${readyFigure} ms`,
  );
  console.log(losses.length === 0 ? 'nothing was lost' : `\n${losses.length} LOSSES\n${losses.join('\n')}`);
  if (losses.length > 0) process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
