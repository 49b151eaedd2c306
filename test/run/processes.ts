/** Runs groups of test files, each in a process of its own, and reads what they say. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { Parser, type Result } from 'tap-parser';
import { type Group, isSlow } from './files.ts';

/** A test that failed, with the titles above it. */
export interface Failure {
  title: string;
  diag: unknown;
}

export interface Outcome {
  group: Group;
  seconds: number;
  passed: number;
  skipped: number;
  failures: Failure[];
  /** The end of its standard error. */
  said: string;
  /** Seconds of each file. */
  files: Array<{ name: string; seconds: number }>;
}

export interface How {
  /** Processes at once. */
  jobs: number;
  /** Seconds that one file may take; a slow one may take five times as long. */
  limit: number;
  /** More of the environment of a group. */
  env?: (group: Group) => Record<string, string>;
  /** Is told each outcome as it comes. */
  ended(outcome: Outcome): void;
}

/** Seconds that a process has for its own end, or for a file that does not let a timer run. */
const grace = 15;

/** Runs all groups, in their order. Resolves when all have ended. */
export async function runGroups(groups: readonly Group[], how: How): Promise<void> {
  const waiting = [...groups];
  const work = async () => {
    for (let group = waiting.shift(); group; group = waiting.shift()) how.ended(await runGroup(group, how));
  };
  await Promise.all(Array.from({ length: how.jobs }, work));
}

/** The arguments of Node for a group: a file, or a module that imports several in their order. */
export function argumentsFor(group: Group): string[] {
  const imports = group.map((file) => `import ${JSON.stringify(resolve(file))};`);
  return group.length === 1 ? [...group] : ['--input-type=module', '--eval', imports.join('\n')];
}

async function runGroup(group: Group, { limit: usual, env = () => ({}) }: How): Promise<Outcome> {
  const limit = group.some(isSlow) ? 5 * usual : usual;
  const from = performance.now();
  const outcome: Outcome = { group, seconds: 0, passed: 0, skipped: 0, failures: [], said: '', files: [] };
  const child = spawn(process.execPath, argumentsFor(group), {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      NODE_COMPILE_CACHE: 'node_modules/.cache/compiled',
      TEST_FILE_SECONDS: String(limit),
      TAP_TIMEOUT: group.length === 1 ? String(limit) : '0',
      ...env(group),
    },
  });
  child.stderr.on('data', (chunk) => {
    outcome.said = (outcome.said + chunk).slice(-4000);
  });
  const now = listen(child, outcome, limit + grace);
  const [code, signal] = await once(child, 'close');
  now.stop();
  outcome.seconds = (performance.now() - from) / 1000;
  if (now.isLate || (code !== 0 && outcome.failures.length === 0)) {
    const why = now.isLate
      ? `it said nothing for ${limit + grace} seconds`
      : `its process ended with ${code ?? signal}`;
    const missing =
      group.length === 1 ? [] : group.filter((file) => !outcome.files.some(({ name }) => isOf(file, name)));
    outcome.failures.push({ title: now.file ?? missing[0] ?? group[0] ?? '', diag: { why, missing } });
  }
  return outcome;
}

/** Whether a part has the name of a file: its path within `test`. */
const isOf = (file: string, name: string) => resolve(file) === resolve('test', name);

/** Follows the TAP of a process into `outcome`, and kills it when it says nothing of a new file for too long. */
function listen(child: ChildProcess, outcome: Outcome, patience: number) {
  const now = { file: undefined as string | undefined, isLate: false, stop: () => clearTimeout(timer) };
  const kill = () => {
    now.isLate = true;
    child.kill('SIGKILL');
  };
  let timer = setTimeout(kill, patience * 1000);
  const goOn = () => {
    clearTimeout(timer);
    timer = setTimeout(kill, patience * 1000);
  };
  const parser = new Parser();
  parser.on('child', (one) => {
    now.file = one.name;
    goOn();
  });
  parser.on('assert', ({ name, time }) => {
    outcome.files.push({ name, seconds: (time ?? 0) / 1000 });
    now.file = undefined;
    goOn();
  });
  follow(parser, [], outcome);
  child.stdout?.pipe(parser);
  return now;
}

/** Counts what no other test contains. */
function follow(parser: Parser, titles: string[], outcome: Outcome): void {
  /** Failures before the test that comes to its end. */
  let before: number | undefined;
  parser.on('child', (child) => {
    before = outcome.failures.length;
    follow(child, [...titles, child.name], outcome);
  });
  parser.on('assert', ({ ok, skip, todo, name, diag }: Result) => {
    // What is in a test has been counted; it fails by itself when its process was killed, say.
    const isCounted = before !== undefined && (ok || before < outcome.failures.length);
    before = undefined;
    if (isCounted && !skip) return;
    if (skip) outcome.skipped += 1;
    else if (ok || todo) outcome.passed += 1;
    else outcome.failures.push({ title: [...titles, name].join(' > '), diag });
  });
}
