/** `npm run test:move -- [--devices 5000] [--rounds 10] [--quiet 2] [--seed S]`: ends 1 when anything acknowledged is lost. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { Test } from 'tap';
import { equip } from '../../bench/equip.ts';
import { seed, seedAdmin } from '../../bench/seed.ts';
import { slotOf } from '../../src/core/ids.ts';
import { Api } from '../crash/api.ts';
import { startProxy } from '../support/cells.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { freePort } from '../support/free-port.ts';
import { withHaproxy } from '../support/haproxy.ts';
import { cliFile, inherited, type Launched, launch, plainNode } from '../support/process.ts';
import { Acknowledgements, lost, Unit, Writer } from './load.ts';

/** Milliseconds that the account may be silent when nothing is killed. */
const silenceFigure = 2000;
const maxCalls = 10;
const moveToken = 'the-token-that-moves-whole-accounts';
/** A kill falls so many milliseconds after a step, at most. */
const afterStep = 400;

const { values } = parseArgs({
  options: {
    devices: { type: 'string', default: '5000' },
    rounds: { type: 'string', default: '10' },
    /** Rounds in which nothing is killed, before the others. */
    quiet: { type: 'string', default: '2' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
});
const [devices, rounds, quietRounds] = [Number(values.devices), Number(values.rounds), Number(values.quiet)];
let state = Number(values.seed) >>> 0;
/** The same seed chooses the same victims and moments. */
function dice(): number {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
}
const pick = <T>(all: readonly T[]): T => all[Math.floor(dice() * all.length)] as T;

interface Cell {
  name: string;
  directory: string;
  env: Record<string, string>;
  launched: Launched;
}

/** One call of the command; `onStep` hears each line as it comes. */
async function call(args: string[], onStep: (line: string, kill: () => void) => void) {
  const child = spawn('env', [...plainNode, cliFile, 'account', 'move', ...args], {
    env: { ...inherited, SLIPWAY_MOVE_TOKEN: moveToken },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, last] = ['', ''];
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  createInterface({ input: child.stderr }).on('line', (line) => {
    last = line;
    onStep(line, () => child.kill('SIGKILL'));
  });
  const [code] = await once(child, 'close');
  return { code: code as number | null, stdout, last };
}

async function main(t: Pick<Test, 'teardown'>): Promise<void> {
  console.log(`${devices} devices, ${quietRounds} moves and ${rounds} with kills, seed ${values.seed}`);
  const [first, second] = [temporaryDirectory(t as Test), temporaryDirectory(t as Test)];
  const accountId = await seed(first, devices, () => {});
  const equipped = await equip(first, devices);
  const start = async (name: string, directory: string): Promise<Cell> => {
    const env = {
      SLIPWAY_HTTP_PORT: String(await freePort()),
      SLIPWAY_MQTT_PORT: String(await freePort()),
      SLIPWAY_MOVE_TOKEN: moveToken,
      SLIPWAY_TRUSTED_PROXIES: '127.0.0.1',
      SLIPWAY_LOG_LEVEL: 'error',
    };
    const cell = { name, directory, env, launched: launch(directory, env) };
    t.teardown(() => cell.launched.child.kill('SIGKILL'));
    await cell.launched.listening;
    return cell;
  };
  const names = slotOf(accountId) < '800' ? (['c01', 'c02'] as const) : (['c02', 'c01'] as const);
  const here = await start(names[0], first);
  cpSync(join(first, 'keys'), join(second, 'keys'), { recursive: true });
  const cells = [here, await start(names[1], second)] as [Cell, Cell];
  const placeOf = ({ env }: Cell) => ({
    url: `http://127.0.0.1:${env.SLIPWAY_HTTP_PORT}`,
    mqttPort: Number(env.SLIPWAY_MQTT_PORT),
  });
  const sorted = cells.toSorted((a, b) => (a.name < b.name ? -1 : 1)) as [Cell, Cell];
  const proxied = await startProxy(t as Test, [placeOf(sorted[0]), placeOf(sorted[1])]);
  const config = join(proxied.directory, '..', 'cells.yaml');

  const api = new Api(accountId, seedAdmin);
  api.url = proxied.url;
  await api.login();
  const acknowledgements = new Acknowledgements();
  const units = equipped.map((device) => new Unit(device, proxied.ports.mqtt, acknowledgements));
  const running = units.map((unit, n) => unit.run((n * 10_000) / devices));
  const { devices: page } = await api.ok('GET', `/api/v1/devices?accountId=${accountId}&pageSize=1`);
  const writer = new Writer(api);
  const [sample] = page.results;
  const writing = writer.run(sample.deviceTemplateId, sample.id);
  await flowing(acknowledgements, devices);

  let at = 0;
  const silences: number[] = [];
  const kills = new Map<string, number>();
  for (let round = 1; round <= quietRounds + rounds; round += 1) {
    const isQuiet = round <= quietRounds;
    const [source, target] = [cells[at], cells[1 - at]] as [Cell, Cell];
    const victim = isQuiet ? undefined : pick(['source', 'target', 'source', 'target', 'command'] as const);
    const stepOfKill = pick(['copying', 'round 1', 'paused', 'copied', 'activated', 'switched']);
    const delay = dice() * afterStep;
    const isUndone = !isQuiet && dice() < 0.3;
    acknowledgements.takeLongest();
    let killed: Promise<void> | undefined;
    const kill = async (killCommand: () => void) => {
      // The time is what is tested: a kill at any moment after the step has begun.
      await sleep(delay);
      const what = `${victim} after "${stepOfKill}"`;
      kills.set(what, (kills.get(what) ?? 0) + 1);
      if (victim === 'command') return killCommand();
      const cell = victim === 'source' ? source : target;
      cell.launched.child.kill('SIGKILL');
      await cell.launched.ended;
      cell.launched = launch(cell.directory, cell.env);
      await cell.launched.listening;
    };
    let calls = 0;
    let done: Awaited<ReturnType<typeof call>>;
    do {
      const args = [accountId, '--to', target.name, '--config', config];
      done = await call(calls > 0 && isUndone ? [...args, '--undo'] : args, (line, killCommand) => {
        if (isQuiet) console.log(`   ${line}`);
        if (victim && !killed && line.startsWith(stepOfKill)) killed = kill(killCommand);
      });
      await killed;
      calls += 1;
    } while (done.code !== 0 && calls < maxCalls);
    if (done.code !== 0) throw new Error(`round ${round} did not end: ${done.last}`);
    const moved = JSON.parse(done.stdout);
    at = cells.findIndex(({ name }) => name === moved.in);
    await flowing(acknowledgements, devices / 5);
    const silent = acknowledgements.takeLongest();
    if (isQuiet) silences.push(silent);
    const about = isQuiet
      ? 'nothing killed'
      : `${victim} killed after "${stepOfKill}", ${calls} calls${isUndone ? ', undone' : ''}`;
    console.log(
      `${round}: in ${moved.in}, ${about}; command says ${moved.silence ?? '-'} ms, without acknowledgement ${silent} ms`,
    );
  }

  for (const unit of units) unit.stop();
  writer.stop();
  await Promise.all([...running, writing]);
  const losses = await lost(api, units);
  for (const id of writer.made)
    if ((await api.ask('GET', `/api/v1/devices/${id}`)).status !== 200) losses.push(`device ${id}`);
  const { device } = await api.ok('GET', `/api/v1/devices/${sample.id}`);
  if (writer.name !== '' && device.name !== writer.name) losses.push(`the name ${writer.name}, it is ${device.name}`);
  console.log(`acknowledged: ${acknowledgements.count} messages and ${writer.made.length} new devices`);
  console.log(`lost: ${losses.length}`);
  if (losses.length > 0) console.log(losses.slice(0, 50).join('\n'));
  const ordered = silences.toSorted((a, b) => a - b);
  const [median = 0, longest = 0] = [ordered[Math.floor(ordered.length / 2)], ordered.at(-1)];
  const isWithin = longest < silenceFigure;
  console.log(
    `without acknowledgement when nothing was killed: median ${median} ms, longest ${longest} ms, ${isWithin ? 'within' : 'NOT within'} ${silenceFigure} ms`,
  );
  console.log(`kills: ${[...kills].map(([what, count]) => `${count} ${what}`).join(', ') || 'none'}`);
  if (losses.length > 0) process.exitCode = 1;
}

/** Waits until so many messages have been acknowledged. */
async function flowing(acknowledgements: Acknowledgements, messages: number): Promise<void> {
  for (const until = acknowledgements.count + messages; acknowledgements.count < until; ) await sleep(50);
}

if ('skip' in withHaproxy) console.log(`${withHaproxy.skip}: nothing is moved`);
else {
  const ends: Array<() => unknown> = [];
  try {
    await main({ teardown: (end: () => unknown) => void ends.push(end) } as Pick<Test, 'teardown'>);
  } finally {
    for (const end of ends.reverse()) await end();
  }
}
