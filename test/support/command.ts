/** Calls of `slipway` one after another in one process, for tests of what commands do: most of a call is loading. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Call, Ended } from './command-runner.ts';
import { cliFile, inherited } from './process.ts';
import { soon } from './until.ts';

let runner: ChildProcess | undefined;
/** Rejects when the runner ends. */
let gone: Promise<never>;
let last: Promise<unknown> = Promise.resolve();

/** As runToEnd of the command line; a call that ends by a signal or leaves something running needs a process of its own. */
export function runCommand(args: string[], env: Record<string, string> = {}): Promise<Ended> {
  const ended = last.then(() => call({ file: cliFile, args, env: { ...inherited, ...env } as Call['env'] }));
  last = ended.catch(() => {});
  return ended;
}

async function call(asked: Call): Promise<Ended> {
  const file = fileURLToPath(new URL('./command-runner.ts', import.meta.url));
  if (!runner) {
    runner = fork(file, [], { env: inherited, execArgv: [], stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    gone = once(runner, 'exit').then(([code, by]) => {
      throw new Error(`a command ended its process: ${code ?? by}`);
    });
    gone.catch(() => {});
  }
  runner.ref();
  runner.channel?.ref();
  const answered = once(runner, 'message') as Promise<[Ended]>;
  runner.send(asked);
  const [ended] = await soon(`the end of ${asked.args.join(' ')}`, Promise.race([answered, gone]));
  // It ends with the test's process.
  runner.unref();
  runner.channel?.unref();
  return ended;
}
