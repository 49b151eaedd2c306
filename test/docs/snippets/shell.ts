/** A terminal into which a test pastes commands, as a reader of a page does. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Test } from 'tap';
import { temporaryDirectory } from '../../support/directory.ts';
import { endingWithUs } from '../../support/ending.ts';
import { cliFile, inherited } from '../../support/process.ts';
import { soon, until } from '../../support/until.ts';

const mark = '--- end of block';

/** Commands that a reader has and a test does not: the one that is installed with Slipway, and what npm would fetch. */
const commands: Record<string, string> = {
  slipway: `exec env -u NODE_OPTIONS '${process.execPath}' '${cliFile}' "$@"`,
  npx: `case "$1 $2" in '--yes mqtt@5') shift 2; set -- mqtt "$@";; esac
exec env -u NODE_OPTIONS "${join(process.cwd(), 'node_modules/.bin')}/$@"`,
};

export interface ShellOptions {
  /** `sh` unless the page says Bash. */
  program?: 'sh' | 'bash';
  /** Exported variables. */
  env?: Record<string, string>;
  /** Further commands: what each does. */
  tools?: Record<string, string>;
  /** Texts that stand for something of the reader's: addresses, above all. */
  instead?: Record<string, string>;
}

/** A command in the background. */
export interface Started {
  /** What it has printed, on both streams. */
  output(): string;
  /** Resolves with the output when it has this. @throws Error when the program says that it has failed. */
  said(text: string): Promise<string>;
  /** Resolves when this is true. @throws Error as `said`. */
  until(isTrue: () => Promise<boolean>): Promise<unknown>;
  stop(): void;
}

/** Ticks of the processor (of 10 ms) in a wait from which on a program is at work: tsc prints nothing until it ends. */
const atWork = 10;

/** Ticks that a process and what it has started have had; 0 where /proc does not tell. */
function ticksOf(pid: number | undefined): number {
  const read = (name: string) => {
    try {
      return readFileSync(`/proc/${pid}/${name}`, 'utf8');
    } catch {
      return '';
    }
  };
  // After the name, which may hold anything: of the process itself, and of its children that have ended.
  const own = read('stat').split(') ').at(-1)?.split(' ').slice(11, 15) ?? [];
  const children = read(`task/${pid}/children`).split(' ').filter(Boolean);
  return [...own.map(Number), ...children.map((child) => ticksOf(Number(child)))].reduce((sum, one) => sum + one, 0);
}

export class Shell {
  readonly directory: string;
  readonly #shell: ChildProcess;
  readonly #instead: Record<string, string>;
  #output = '';
  #errors = '';
  #ended = false;
  readonly #waiting: Array<() => void> = [];
  #started = 0;

  constructor(t: Test, { program = 'sh', env = {}, tools = {}, instead = {} }: ShellOptions = {}) {
    this.directory = temporaryDirectory(t);
    this.#instead = instead;
    const folder = join(temporaryDirectory(t), 'bin');
    mkdirSync(folder);
    for (const [name, script] of Object.entries({ ...commands, ...tools })) {
      writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
      chmodSync(join(folder, name), 0o755);
    }
    const [command, ...args] = endingWithUs([program, '-e']);
    const path = `${folder}:${dirname(process.execPath)}:${process.env.PATH}`;
    const shell = spawn(command, args, {
      cwd: this.directory,
      env: { ...inherited, HOME: this.directory, ...env, PATH: path },
      stdio: 'pipe',
      // A group of its own, with what it leaves running.
      detached: true,
    });
    this.#shell = shell;
    const changed = () => {
      for (const look of this.#waiting.splice(0)) look();
    };
    shell.stdout.on('data', (chunk) => {
      this.#output += chunk;
      changed();
    });
    shell.stderr.on('data', (chunk) => {
      this.#errors += chunk;
    });
    shell.on('close', () => {
      this.#ended = true;
      changed();
    });
    t.teardown(() => {
      if (shell.pid !== undefined && !this.#ended) process.kill(-shell.pid, 'SIGKILL');
    });
  }

  /** Sets variables that only the shell knows. */
  async set(variables: Record<string, string>): Promise<void> {
    await this.run(
      Object.entries(variables)
        .map(([name, value]) => `${name}='${value}'\n`)
        .join(''),
    );
  }

  /** The value of a variable. */
  async get(name: string): Promise<string> {
    return (await this.run(`echo "$${name}"`)).trim();
  }

  /** Runs commands: what they print. @throws Error when one fails, with all that it has printed. */
  async run(commands: string): Promise<string> {
    const file = join(this.directory, '.commands');
    writeFileSync(file, this.#with(commands));
    const from = this.#output.length;
    this.#shell.stdin?.write(`. '${file}' </dev/null\necho '${mark}'\n`);
    await this.#printed(`${mark}\n`, from);
    return this.#output.slice(from, -mark.length - 1);
  }

  /** Runs commands and reads the answers that they print, in JSON. */
  async answers(commands: string) {
    const printed = (await this.run(commands)).replaceAll('}{', '}\n{').trim();
    return printed.split('\n').map((line) => JSON.parse(line));
  }

  /** Runs a command that goes on, in the background. */
  async start(command: string): Promise<Started> {
    this.#started += 1;
    const file = join(this.directory, `.output-${this.#started}`);
    writeFileSync(file, '');
    const pid = Number(await this.run(`${command.trim()} >'${file}' 2>&1 &\necho $!`));
    const output = () => readFileSync(file, 'utf8');
    const untilTrue = (isTrue: () => boolean | Promise<boolean>) =>
      until(() => {
        if (/^Traceback|: not found$|^Error: /m.test(output())) throw new Error(output());
        return isTrue();
      });
    return {
      output,
      until: untilTrue,
      said: async (text) => {
        await untilTrue(() => output().includes(text));
        return output();
      },
      stop: () => process.kill(pid, 'SIGTERM'),
    };
  }

  #with(text: string): string {
    return Object.entries(this.#instead).reduce((all, [from, to]) => all.replaceAll(from, to), text);
  }

  async #printed(text: string, from: number): Promise<void> {
    while (!this.#output.includes(text, from)) {
      if (this.#ended) throw new Error(`The commands failed:\n${this.#output.slice(from)}${this.#errors}`);
      const more = new Promise<void>((resolve) => this.#waiting.push(resolve));
      const worked = ticksOf(this.#shell.pid);
      await soon(`"${text}"`, more, () => this.#output.slice(from)).catch((late) => {
        if (ticksOf(this.#shell.pid) - worked < atWork) throw late;
      });
    }
  }
}
