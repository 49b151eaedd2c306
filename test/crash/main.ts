/** `npm run test:crash -- --rounds N [--seed S] [--devices D] [--move] [--fleet F] [--mqtt5]`: ends 1 when anything acknowledged is lost. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { seed as seedAccount, seedAdmin } from '../../bench/seed.ts';
import { dice } from '../support/dice.ts';
import { proveMqtt5 } from './mqtt5.ts';
import { proveCrashes } from './proof.ts';

/** Milliseconds from the start of the process to its first answers; a busy machine is no loss. */
const readyFigure = 5000;
/** Milliseconds from the start of the process to its first acknowledgement, and until the fleet is back. */
const acknowledgementFigure = 4000;
const fleetFigure = 10_000;

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    devices: { type: 'string', default: '100000' },
    move: { type: 'boolean', default: false },
    fleet: { type: 'string', default: '0' },
    mqtt5: { type: 'boolean', default: false },
  },
});
const [rounds, seed, devices, fleet] = [values.rounds, values.seed, values.devices, values.fleet].map(Number) as [
  number,
  number,
  number,
  number,
];
const directory = mkdtempSync(join(tmpdir(), 'slipway-crash-'));
try {
  console.log(`${rounds} rounds, seed ${seed}\n`);
  await (values.mqtt5 ? mqtt5() : everything());
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function everything(): Promise<void> {
  const proof = await proveCrashes({
    directory,
    rounds,
    seed,
    devices,
    loadTime: 2500,
    move: values.move,
    fleet,
    say: console.log,
  });
  const { kills, inCheckpoint, acknowledged, writes, starts, losses } = proof;
  console.log(`\n${kills} kills, ${inCheckpoint} of them in a checkpoint`);
  console.log(`${acknowledged} messages and ${writes} writes over HTTP were acknowledged`);
  sayTimes('ready', starts, readyFigure);
  sayTimes('first acknowledgement', proof.firstAcknowledgements, acknowledgementFigure);
  if (proof.fleetBack !== undefined) sayTimes(`${fleet} devices back`, [proof.fleetBack], fleetFigure);
  sayLosses(losses);
}

/** What levels 3 and 4 do not have. */
async function mqtt5(): Promise<void> {
  const accountId = await seedAccount(directory, devices, () => {});
  const settings = {
    directory,
    accountId,
    admin: seedAdmin,
    rounds,
    loadTime: 2500,
    dice: dice(seed),
    say: console.log,
  };
  const { kills, acknowledged, missed, losses } = await proveMqtt5(settings);
  console.log(
    `\n${kills} kills, ${acknowledged} messages were acknowledged; ${missed} times came too late to be looked at`,
  );
  sayLosses(losses);
}

function sayLosses(losses: readonly string[]): void {
  console.log(losses.length === 0 ? 'nothing was lost' : `\n${losses.length} LOSSES\n${losses.join('\n')}`);
  if (losses.length > 0) process.exitCode = 1;
}

/** Times of all starts, in milliseconds from the start of the process. */
function sayTimes(what: string, times: number[], figure: number): void {
  const sorted = times.toSorted((a, b) => a - b);
  const [median, slowest] = [sorted[sorted.length >> 1] ?? 0, sorted.at(-1) ?? 0];
  const verdict = slowest < figure ? 'within' : 'NOT within';
  const each = `${Math.round(median)} ms (median), ${Math.round(slowest)} ms (slowest)`;
  console.log(`${what} after ${each}: ${verdict} ${figure} ms`);
}
