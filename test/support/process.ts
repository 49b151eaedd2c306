/** The server as a process of its own, for what only a process can show: signals, kill -9, what it prints. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { adminEmail, adminPassword } from './service.js';
import { copyKeys } from './template.js';

export const mainFile = fileURLToPath(new URL('../../src/main.js', import.meta.url));
export const cliFile = fileURLToPath(new URL('../../src/cli.js', import.meta.url));

/** Arguments of env(1), which becomes node: without the loaders that tap puts into every process of a test. */
export const plainNode = ['-u', 'NODE_OPTIONS', process.execPath];

export interface Running {
  child: ChildProcess;
  url: string;
  mqttPort: number;
  /** All of standard output so far. */
  output(): string;
  /** Sends a signal and waits for the end: the exit code, or the signal. */
  stop(signal: NodeJS.Signals): Promise<number | NodeJS.Signals>;
}

/** Runs a file of the service to its end. */
export async function runToEnd(
  file: string,
  args: string[],
  env: Record<string, string>,
): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = spawn('env', [...plainNode, file, ...args], { env: { PATH: process.env.PATH, ...env }, stdio: 'pipe' });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, 'close');
  return { code, stdout, stderr };
}

/** Starts the server on `directory` and waits until it listens; it is killed when the test ends. */
export async function startProcess(
  t: Test,
  directory: string,
  env: Record<string, string | undefined> = {},
): Promise<Running> {
  copyKeys(directory);
  const child = spawn('env', [...plainNode, mainFile], {
    cwd: directory,
    env: {
      PATH: process.env.PATH,
      SLIPWAY_DATA_DIR: directory,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_DNS_SERVERS: '127.0.0.1:9',
      SLIPWAY_MQTT_PORT: '0',
      SLIPWAY_ADMIN_EMAIL: adminEmail,
      SLIPWAY_ADMIN_PASSWORD: adminPassword,
      SLIPWAY_LOG_LEVEL: 'warn',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let output = '';
  const [url, mqttPort] = await new Promise<[string, number]>((resolve, reject) => {
    ended.then(([code]) => reject(new Error(`the server ended with ${code}: ${output}`)));
    child.stdout.on('data', (chunk) => {
      output += chunk;
      const [, api] = /API (http\S+)\/api\/v1/.exec(output) ?? [];
      const [, port] = /^MQTT \S+:(\d+) .*\n/m.exec(output) ?? [];
      if (api && port) resolve([api, Number(port)]);
    });
  });
  return {
    child,
    url,
    mqttPort,
    output: () => output,
    stop: async (signal) => {
      child.kill(signal);
      const [code, by] = await ended;
      return code ?? by;
    },
  };
}
