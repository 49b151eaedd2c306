import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type Service, startService } from './support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

interface Program {
  name: string;
  /** Whether its tools are here. */
  isReady: () => boolean;
  missing: string;
  /** The command that runs it; what it builds goes to the directory. */
  command: (directory: string) => [string, ...string[]];
}

const run = (command: string, ...args: string[]) => spawnSync(command, args, { stdio: 'ignore' }).status === 0;
const goPath = { GOPATH: process.env.GOPATH ?? '/usr/share/gocode', GO111MODULE: 'off', GOFLAGS: '' };

const programs: Program[] = [
  {
    name: 'Node.js',
    isReady: () => true,
    missing: '',
    command: () => [process.execPath, 'examples/node/device.mjs'],
  },
  {
    name: 'Python',
    isReady: () => run('python3', '-c', 'import paho.mqtt.client'),
    missing: 'python3 with paho-mqtt is not installed.',
    command: () => ['python3', 'examples/python/device.py'],
  },
  {
    name: 'C',
    isReady: () => run('sh', '-c', 'echo "#include <mosquitto.h>" | cc -E -'),
    missing: 'A C compiler with the headers of libmosquitto is not installed.',
    command: (directory) => {
      const output = join(directory, 'device');
      const flags = ['-Wall', '-Wextra', '-Werror', '-o', output, 'examples/c/device.c', '-lmosquitto'];
      execFileSync('cc', flags, { stdio: 'inherit' });
      return [output];
    },
  },
  {
    name: 'Go',
    isReady: () =>
      spawnSync('go', ['list', 'github.com/eclipse/paho.mqtt.golang'], { env: { ...process.env, ...goPath } })
        .status === 0,
    missing: 'Go with paho.mqtt.golang as a package of the system is not installed.',
    command: (directory) => {
      const output = join(directory, 'device');
      const options = { cwd: 'examples/go', env: { ...process.env, ...goPath }, stdio: 'inherit' } as const;
      execFileSync('go', ['build', '-o', output, 'main.go'], options);
      return [output];
    },
  },
];

/** The program as a device of the service, until the end of the test. */
async function start(t: Test, { command }: Program): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'slipway-example-'));
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const [file, ...args] = command(directory);
  const env = {
    ...process.env,
    SLIPWAY_HOST: '127.0.0.1',
    SLIPWAY_PORT: String(service.server.mqttPort),
    SLIPWAY_ACCOUNT: service.accountId,
    SLIPWAY_DEVICE: device.id,
    SLIPWAY_SECRET: secret,
  };
  const program: ChildProcess = spawn(file, args, { env, stdio: 'inherit' });
  t.teardown(() => {
    program.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  });
  return device.id;
}

for (const program of programs) {
  const title = `the example in ${program.name} publishes readings and answers commands`;
  t.test(title, { skip: !program.isReady() && program.missing }, async (t) => {
    const deviceId = await start(t, program);
    const send = (name: string) =>
      service.ok('POST', `/api/v1/devices/${deviceId}/commands?wait=1`, { body: { name, payload: { level: 3 } } });
    t.match((await send('echo')).command, { state: 'succeeded', result: { level: 3 } });
    t.match((await send('dance')).command, { state: 'failed', result: 'unknown command' });
    const path = `/api/v4/data/${service.topic(deviceId, 'readings')}/latest`;
    let { result } = await service.ok('GET', path);
    while (result.length === 0) ({ result } = await service.ok('GET', path));
    t.match(result, [{ category: 'temperature' }]);
  });
}
