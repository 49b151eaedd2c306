/** What runs programs for MicroPython: itself where it is installed with umqtt.simple, else Python with stand-ins for both. */
import { spawnSync } from 'node:child_process';
import { delimiter, join } from 'node:path';
import { pythons } from './python.ts';

const standIns = join(process.cwd(), 'test/support/boards/micropython');

export interface MicroPython {
  name: string;
  /** Its file, and what comes before that of the program. */
  command: [string, ...string[]];
  env: NodeJS.ProcessEnv;
}

function find(): MicroPython | undefined {
  const path = [process.env.MICROPYPATH, '.frozen', standIns].filter((one) => one !== undefined).join(':');
  const env = { ...process.env, MICROPYPATH: path };
  const ask = 'import sys, umqtt.simple; print(".".join(map(str, sys.implementation.version[:3])))';
  const { status, stdout } = spawnSync('micropython', ['-c', ask], { env, encoding: 'utf8' });
  if (status === 0) return { name: `MicroPython ${stdout.trim()}`, command: ['micropython'], env };
  const python = pythons.at(-1);
  if (!python) return undefined;
  const modules = [standIns, python.env.PYTHONPATH].filter((one) => one !== undefined).join(delimiter);
  return {
    name: 'MicroPython, with stand-ins for the board and umqtt',
    command: [python.file, join(standIns, 'run.py')],
    env: { ...python.env, PYTHONPATH: modules },
  };
}

export const microPython = find();
