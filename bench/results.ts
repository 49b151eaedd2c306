/** What a run has shown, with the machine and the versions it ran on. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { aligned, cells, isMet, type Row } from './figures.ts';
import { mosquittoVersion } from './mosquitto.ts';
import { natsVersion } from './nats.ts';

/** Cores that others may use without spoiling the times. */
const quiet = 0.3;

export interface ScenarioResult {
  scenario: string;
  /** What it took, and how many cores others were using just before. */
  seconds: number;
  load: number;
  /** Cores that processes other than the bench and what it started used meanwhile, on average. */
  others?: number;
  /** The share of the time in which something waited for a core; the load of the scenario itself counts. */
  pressure?: number;
  rows: Row[];
  /** When it could not be measured. */
  error?: string;
}

export interface Results {
  begun: string;
  scale: string;
  machine: { cpu: string; cores: number; memoryGb: number; kernel: string };
  versions: Record<string, string>;
  results: ScenarioResult[];
}

/** What a run is to be read with; its results are still to come. */
export function begin(scale: string): Results {
  const processors = cpus();
  return {
    begun: new Date().toISOString(),
    scale,
    machine: {
      cpu: processors[0]?.model.trim() ?? 'unknown',
      cores: availableParallelism(),
      memoryGb: Math.round(totalmem() / 2 ** 30),
      kernel: release(),
    },
    versions: versions(),
    results: [],
  };
}

/**
 * The share of time in which something that could run had to wait for a core, by the kernel's accounting, since `begin`.
 * Undefined where the kernel does not account it.
 */
export function pressureSince(begin: Pressure | undefined): number | undefined {
  const now = pressureNow();
  if (!begin || !now) return undefined;
  return Math.round(((now.waited - begin.waited) / Math.max(1, now.at - begin.at)) * 100) / 100;
}

/** Microseconds of waiting since the machine started, and when that was read, in microseconds. */
export interface Pressure {
  waited: number;
  at: number;
}

export function pressureNow(): Pressure | undefined {
  try {
    const [, total] = /some .*total=(\d+)/.exec(readFileSync('/proc/pressure/cpu', 'utf8')) ?? [];
    return total === undefined ? undefined : { waited: Number(total), at: performance.now() * 1000 };
  } catch {
    return undefined;
  }
}

/** Seconds of CPU time of all processes since the machine started. */
export function machineCpu(): number {
  const busy = cpus().map(({ times: { user, nice, sys, irq } }) => user + nice + sys + irq);
  return busy.reduce((sum, milliseconds) => sum + milliseconds, 0) / 1000;
}

/** How many cores are in use in this second: asked between scenarios it is what others do, unlike the load average. */
export async function loadNow(): Promise<number> {
  const count = () => {
    const times = cpus().map((core) => core.times);
    const idle = times.reduce((sum, time) => sum + time.idle, 0);
    return {
      idle,
      all: times.reduce((sum, { user, nice, sys, idle, irq }) => sum + user + nice + sys + idle + irq, 0),
    };
  };
  const before = count();
  await sleep(1000);
  const after = count();
  const busy = 1 - (after.idle - before.idle) / Math.max(1, after.all - before.all);
  return Math.round(busy * availableParallelism() * 10) / 10;
}

/** Whether others used so much of the machine that the figures say little. */
export function isBusy({ load, others = 0 }: ScenarioResult): boolean {
  return Math.max(load, others) > quiet;
}

/** Prints the table. @returns whether every figure that could be judged is met and nothing failed. */
export function sayResults({ results }: Results): boolean {
  const lines = [['what', 'figure', 'Slipway', 'peer', 'ratio', '']];
  for (const shown of results) {
    const { scenario, rows, error } = shown;
    for (const row of rows) lines.push(cells(row, isBusy(shown)));
    if (error !== undefined) lines.push([`${scenario} FAILED`, '', '', '', '', error]);
  }
  console.log(`\n${aligned(lines).join('\n')}`);
  for (const { scenario, load, others, pressure } of results.filter(isBusy))
    console.log(
      `\nBUSY machine: others used ${load} cores just before ${scenario} and ${others ?? 'unknown'} meanwhile (CPU pressure ${pressure ?? 'unknown'}): its figures say little.`,
    );
  return results.every(({ rows, error }) => error === undefined && rows.every((row) => isMet(row) !== false));
}

export function writeResults(file: string, results: Results): void {
  writeFileSync(file, `${JSON.stringify(results, undefined, 2)}\n`);
}

export function readResults(file: string): Results {
  return JSON.parse(readFileSync(file, 'utf8')) as Results;
}

/** When the commit of a checkout was written, which a rebase keeps as its hash does not; empty where it is not one. */
export function commitTime(directory: string): string {
  const { stdout } = spawnSync('git', ['log', '-1', '--format=%aI'], { cwd: directory, encoding: 'utf8' });
  return stdout?.trim() ?? '';
}

function versions(): Record<string, string> {
  const root = new URL('../', import.meta.url);
  const read = (path: string) => JSON.parse(readFileSync(fileURLToPath(new URL(path, root)), 'utf8'));
  const { version, dependencies } = read('package.json') as { version: string; dependencies: Record<string, string> };
  const memory = new Database(':memory:');
  const sqlite = memory.prepare('SELECT sqlite_version()').pluck().get() as string;
  memory.close();
  const commit = commitTime(fileURLToPath(root));
  return {
    slipway: commit ? `${version} (commit of ${commit})` : version,
    node: process.versions.node,
    v8: process.versions.v8,
    sqlite,
    ...Object.fromEntries(
      Object.keys(dependencies).map((name) => [name, read(`node_modules/${name}/package.json`).version as string]),
    ),
    mosquitto: mosquittoVersion() ?? 'not installed',
    'nats-server': natsVersion() ?? 'not installed',
  };
}
