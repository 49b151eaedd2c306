/** What a run has shown, with the machine and the versions it ran on. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { aligned, cells, isMet, type Row } from './figures.js';
import { mosquittoVersion } from './mosquitto.js';

export interface Shown {
  scenario: string;
  /** What it took, and the load of the machine when it began. */
  seconds: number;
  load: number;
  rows: Row[];
  /** When it could not be measured. */
  error?: string;
}

export interface Results {
  begun: string;
  scale: string;
  machine: { cpu: string; cores: number; memoryGb: number; kernel: string; load: number };
  versions: Record<string, string>;
  results: Shown[];
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
      load: loadNow(),
    },
    versions: versions(),
    results: [],
  };
}

/** How busy the machine has been in the last minute. */
export function loadNow(): number {
  return Math.round((loadavg()[0] ?? 0) * 10) / 10;
}

/** Prints the table. @returns whether every figure that could be judged is met and nothing failed. */
export function sayResults({ results, machine }: Results): boolean {
  const lines = [['what', 'figure', 'Slipway', 'peer', 'ratio', '']];
  for (const { scenario, rows, error } of results) {
    for (const row of rows) lines.push(cells(row));
    if (error !== undefined) lines.push([`${scenario} FAILED`, '', '', '', '', error]);
  }
  console.log(`\n${aligned(lines).join('\n')}`);
  const busy = results.filter(({ load }) => load > machine.cores).length;
  if (busy > 0)
    console.log(`\n${busy} of ${results.length} scenarios began on a BUSY machine: their figures say little.`);
  return results.every(({ rows, error }) => error === undefined && rows.every((row) => isMet(row) !== false));
}

export function writeResults(file: string, results: Results): void {
  writeFileSync(file, `${JSON.stringify(results, undefined, 2)}\n`);
}

export function readResults(file: string): Results {
  return JSON.parse(readFileSync(file, 'utf8')) as Results;
}

function versions(): Record<string, string> {
  const root = new URL('../../', import.meta.url);
  const read = (path: string) => JSON.parse(readFileSync(fileURLToPath(new URL(path, root)), 'utf8'));
  const { version, dependencies } = read('package.json') as { version: string; dependencies: Record<string, string> };
  const memory = new Database(':memory:');
  const sqlite = memory.prepare('SELECT sqlite_version()').pluck().get() as string;
  memory.close();
  const { stdout } = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: fileURLToPath(root), encoding: 'utf8' });
  const commit = stdout?.trim();
  return {
    slipway: commit ? `${version} (${commit})` : version,
    node: process.versions.node,
    v8: process.versions.v8,
    sqlite,
    ...Object.fromEntries(
      Object.keys(dependencies).map((name) => [name, read(`node_modules/${name}/package.json`).version as string]),
    ),
    mosquitto: mosquittoVersion() ?? 'not installed',
  };
}
