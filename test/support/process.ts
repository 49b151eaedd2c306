/** The server as a process of its own, for what only a process can show: signals, kill -9, what it prints. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { endingWithUs } from './ending.ts';
import { adminEmail, adminPassword } from './service.ts';
import { copyKeys, copySchema } from './template.ts';

const inProject = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
/** Processes run the sources, or with TEST_BUILT (in CI) the last build, which starts in two thirds of the CPU. */
const programOf = (name: string) => inProject(process.env.TEST_BUILT ? `dist/${name}.js` : `${name}.ts`);
export const mainFile = programOf('src/main');
export const cliFile = programOf('cli/main');
/** What operators run. Types that Node takes out of sources at the start cost memory that they never pay. */
const builtFile = inProject('dist/src/main.js');

/** What a process of a test keeps of this one's environment: coverage is measured in both, and both take compiled modules from one place. */
const { PATH, NODE_V8_COVERAGE, NODE_COMPILE_CACHE, TEST_SHAKE, TEST_SHAKE_SEED } = process.env;
export const inherited = {
  PATH,
  ...(NODE_V8_COVERAGE && { NODE_V8_COVERAGE }),
  ...(TEST_SHAKE_SEED && { TEST_SHAKE_SEED }),
  ...(NODE_COMPILE_CACHE && { NODE_COMPILE_CACHE: resolve(NODE_COMPILE_CACHE) }),
};

/** Arguments of env(1), which becomes node: without the loaders that tap puts into every process of a test; a shake has one of its own. */
export const plainNode = [
  ...['-u', 'NODE_OPTIONS'],
  ...(TEST_SHAKE ? [`NODE_OPTIONS=--import=${TEST_SHAKE}`] : []),
  process.execPath,
];

export interface Running {
  child: ChildProcess;
  url: string;
  mqttPort: number;
  /** All of standard output so far. */
  output(): string;
  /** Sends a signal and waits for the end: the exit code, or the signal. */
  stop(signal: NodeJS.Signals): Promise<number | NodeJS.Signals>;
}

/** Runs a file of the service to its end; `input` is its standard input. */
export async function runToEnd(
  file: string,
  args: string[],
  env: Record<string, string>,
  input?: string,
): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = spawn('env', [...plainNode, file, ...args], { env: { ...inherited, ...env }, stdio: 'pipe' });
  if (input !== undefined) child.stdin.end(input);
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr.setEncoding('utf8').on('data', (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, 'close');
  return { code, stdout, stderr };
}

/** A server that has been started and may not listen yet. */
export interface Launched {
  child: ChildProcess;
  /** Rejects when the process ends before it listens. */
  listening: Promise<Running>;
  /** The exit code, or the signal. */
  ended: Promise<number | NodeJS.Signals>;
}

/**
 * Starts the server on `directory`. Anyone who starts it ends it. A `probe` is a module that is loaded first and may send
 * messages; what it measures is the built program.
 */
export function launch(directory: string, env: Record<string, string | undefined> = {}, probe?: string): Launched {
  const watched = probe === undefined ? [] : ['--expose-gc', '--import', probe];
  const [command, ...args] = endingWithUs([
    'env',
    ...plainNode,
    ...watched,
    probe === undefined ? mainFile : builtFile,
  ]);
  const child = spawn(command, args, {
    cwd: directory,
    env: {
      ...inherited,
      SLIPWAY_DATA_DIR: directory,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_DNS_SERVERS: '127.0.0.1:9',
      SLIPWAY_MQTT_PORT: '0',
      SLIPWAY_ADMIN_EMAIL: adminEmail,
      SLIPWAY_ADMIN_PASSWORD: adminPassword,
      SLIPWAY_LOG_LEVEL: 'warn',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit', ...(probe === undefined ? [] : ['ipc' as const])],
  });
  const ended = once(child, 'exit').then(([code, by]) => code ?? by);
  let output = '';
  const listening = new Promise<Running>((resolve, reject) => {
    ended.then((code) => reject(new Error(`the server ended with ${code}: ${output}`)));
    child.stdout?.setEncoding('utf8').on('data', (chunk) => {
      output += chunk;
      const [, url] = /API (http\S+)\/api\/v1/.exec(output) ?? [];
      const [, port] = /^MQTT \S+:(\d+) .*\n/m.exec(output) ?? [];
      if (!url || !port) return;
      const stop = async (signal: NodeJS.Signals) => {
        child.kill(signal);
        return ended;
      };
      resolve({ child, url, mqttPort: Number(port), output: () => output, stop });
    });
  });
  // Who kills it before it listens does not wait for that.
  listening.catch(() => {});
  return { child, listening, ended };
}

/** Starts the server on `directory`, with a schema if it is empty, and waits until it listens; it is killed when the test ends. */
export async function startProcess(
  t: Test,
  directory: string,
  env: Record<string, string | undefined> = {},
): Promise<Running> {
  copyKeys(directory);
  await copySchema(directory);
  const { child, listening, ended } = launch(directory, env);
  t.teardown(async () => {
    child.kill('SIGKILL');
    // Before its directory is removed.
    await ended;
  });
  return listening;
}
