/** Each Python here that has paho-mqtt: that of the system is 1.6 on Debian 12; `.ci/run` brings 2 next to it. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

export interface Python {
  file: string;
  /** The version of paho-mqtt. */
  paho: string;
  env: NodeJS.ProcessEnv;
  /** The same as env(1) takes it. */
  assigned: string;
}

const ask = 'import sys, paho.mqtt; print(sys.executable, paho.mqtt.__version__)';

function find(command: string, modules?: string): Python | undefined {
  const more = modules === undefined ? {} : { PYTHONPATH: modules };
  const env = { ...process.env, ...more };
  const { status, stdout } = spawnSync(command, ['-c', ask], { env, encoding: 'utf8' });
  if (status !== 0) return undefined;
  const [file = '', paho = ''] = stdout.trim().split(' ');
  return { file, paho, env, assigned: modules === undefined ? '' : `PYTHONPATH='${modules}'` };
}

const found = [
  find('python3'),
  find('/usr/bin/python3'),
  find('python3', join(process.cwd(), 'node_modules/.cache/paho-mqtt-2')),
].filter((one) => one !== undefined);

/** One for each version of paho-mqtt. */
export const pythons: readonly Python[] = found.filter(
  ({ paho }, at) => found.findIndex((one) => one.paho === paho) === at,
);
