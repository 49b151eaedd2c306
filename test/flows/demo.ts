/** `npm run demo` as package.json has it, in directories of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { inherited } from '../support/process.ts';
import { soon } from '../support/until.ts';

const project = process.cwd();
const script: string = JSON.parse(readFileSync('package.json', 'utf8')).scripts.demo;

export interface Demo {
  /** Where it was started. */
  directory: string;
  /** Where it makes temporary directories. */
  temporary: string;
  child: ChildProcess;
  /** Both streams so far. */
  output(): string;
  /** Resolves when the output has this. */
  said(text: string): Promise<void>;
  /** The exit code, or the signal. */
  ended: Promise<number | string>;
}

/** Runs the script in a shell, as npm does, and in a group of its own, as a terminal does. */
export function startDemo(
  t: Test,
  args = '',
  env: Record<string, string> = {},
  directory = temporaryDirectory(t),
): Demo {
  const temporary = temporaryDirectory(t);
  const command = script.replaceAll(/(?<= )(?=(bin|dist)\/)/g, `${project}/`);
  const child = spawn('sh', ['-c', `${command} ${args}`], {
    cwd: directory,
    env: {
      ...inherited,
      PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
      TMPDIR: temporary,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_MQTT_PORT: '0',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const ended = once(child, 'close').then(([code, by]) => code ?? by);
  t.teardown(async () => {
    signalGroup(child, 'SIGKILL');
    // Before its directories are removed.
    await ended;
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk;
    });
  const said = async (text: string) => {
    while (!output.includes(text)) {
      const next = Promise.race([once(child.stdout, 'data'), ended.then(() => undefined)]);
      const more = await soon(`"${text}"`, next, () => output);
      if (!more && !output.includes(text)) throw new Error(`It has not said "${text}": ${output}`);
    }
  };
  return { directory, temporary, child, output: () => output, said, ended };
}

/** As Ctrl-C in a terminal: the shell, the demo and its server get it. */
export function signalGroup({ pid = 0 }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch (error) {
    // Nothing is left of it.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
