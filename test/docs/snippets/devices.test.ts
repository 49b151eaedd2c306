/** The programs of examples/ are devices of a service: those of a computer run, those of boards are compiled. */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { IPublishPacket } from 'mqtt-packet';
import type { Test } from 'tap';
import { newWindow } from '../../console/browser.ts';
import { openBrowser } from '../../console/shared-browser.ts';
import { connectOnce, newGroup } from '../../enrollment/devices.ts';
import { temporaryDirectory } from '../../support/directory.ts';
import { part } from '../../support/part.ts';
import type { Service } from '../../support/service.ts';
import { sharedService } from '../../support/shared.ts';
import { until } from '../../support/until.ts';
import { checkBoard } from './boards.ts';
import { microPython } from './micropython.ts';
import { pythons } from './python.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** What a board has in its source: where it connects, and as which device. */
interface Settings {
  port: number;
  device: string;
  secret: string;
}

interface Program {
  name: string;
  /** Whether its tools are here. */
  isReady: () => boolean;
  missing: string;
  env?: NodeJS.ProcessEnv;
  /** The command that runs it; what it builds goes to the directory. */
  command: (directory: string, settings: Settings) => [string, ...string[]];
  /** The one that asks and answers with MQTT 5, where there is one; the role follows it. */
  request?: (directory: string) => [string, ...string[]];
}

const run = (command: string, ...args: string[]) => spawnSync(command, args, { stdio: 'ignore' }).status === 0;
const goPath = { GOPATH: process.env.GOPATH ?? '/usr/share/gocode', GO111MODULE: 'off', GOFLAGS: '' };

/** Builds the programs in C. */
function make(directory: string): string {
  cpSync('examples/c', directory, { recursive: true });
  execFileSync('make', ['CFLAGS=-Wall -Wextra -Werror'], { cwd: directory, stdio: 'inherit' });
  return directory;
}

const programs: Program[] = [
  {
    name: 'Node.js',
    isReady: () => true,
    missing: '',
    command: () => [process.execPath, 'examples/node/device.mjs'],
    request: () => [process.execPath, 'examples/node/request.mjs'],
  },
  ...(pythons.length > 0 ? pythons : [undefined]).map((python) => ({
    name: python ? `Python with paho-mqtt ${python.paho}` : 'Python',
    isReady: () => python !== undefined,
    missing: 'python3 with paho-mqtt is not installed.',
    env: python?.env ?? {},
    command: (): [string, ...string[]] => [python?.file ?? '', 'examples/python/device.py'],
    request: (): [string, ...string[]] => [python?.file ?? '', 'examples/python/request.py'],
  })),
  {
    name: 'C',
    isReady: () => run('make', '--version') && run('sh', '-c', 'echo "#include <mosquitto.h>" | cc -E -'),
    missing: 'make or a C compiler with the headers of libmosquitto is not installed.',
    command: (directory) => [join(make(directory), 'device')],
    request: (directory) => [join(make(directory), 'request')],
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
  {
    name: microPython?.name ?? 'MicroPython',
    isReady: () => microPython !== undefined,
    missing: 'Neither MicroPython with umqtt.simple nor Python with paho-mqtt is installed.',
    env: microPython?.env ?? {},
    command: (directory, settings) => {
      const file = join(directory, 'main.py');
      writeFileSync(file, withSettings(readFileSync('examples/micropython/main.py', 'utf8'), settings));
      const [command, ...args] = microPython?.command ?? [''];
      return [command, ...args, file];
    },
  },
];

/** The program in MicroPython without TLS, for a device of the service. */
function withSettings(program: string, { port, device, secret }: Settings): string {
  const settings = {
    '"slipway.example.com", 8883': `"127.0.0.1", ${port}`,
    'CA = "ca.pem"': 'CA = None',
    'account id': service.accountId,
    'device id': device,
    '"secret"': `"${secret}"`,
  };
  return Object.entries(settings).reduce((text, [from, to]) => text.replace(from, () => to), program);
}

/** The program as a device of the service, until the end of the test. */
async function start(t: Test, { command, env: own }: Program): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'slipway-example-'));
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { mqttPort: port } = service.server;
  const [file, ...args] = command(directory, { port, device: device.id, secret });
  const env = {
    ...process.env,
    ...own,
    SLIPWAY_HOST: '127.0.0.1',
    SLIPWAY_PORT: String(port),
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

/** Passes when the device has published a reading, and answers the commands that every example knows. */
async function checkDevice(t: Test, deviceId: string): Promise<void> {
  const send = (name: string) =>
    service.ok('POST', `/api/v1/devices/${deviceId}/commands?wait=1`, { body: { name, payload: { level: 3 } } });
  t.match((await send('echo')).command, { state: 'succeeded', result: { level: 3 } });
  t.match((await send('dance')).command, { state: 'failed', result: 'unknown command' });
  const path = `/api/v4/data/${service.topic(deviceId, 'readings')}/latest`;
  let { result } = await service.ok('GET', path);
  while (result.length === 0) ({ result } = await service.ok('GET', path));
  t.match(result, [{ category: 'temperature' }]);
}

for (const program of programs) {
  const title = `the example in ${program.name} publishes readings and answers commands`;
  t.test(title, { skip: !program.isReady() && program.missing }, async (t) => {
    await checkDevice(t, await start(t, program));
  });
}

/** What a program prints, and how it ends. */
function startProgram([file, ...args]: readonly string[], env: NodeJS.ProcessEnv) {
  const program = spawn(file ?? '', args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const said = { output: '' };
  program.stdout.on('data', (text) => {
    said.output += text;
  });
  return { program, said, ended: once(program, 'close') };
}

for (const { name, isReady, missing, env: own, request } of programs) {
  if (!request) continue;
  const title = `the example of MQTT 5 in ${name} asks a device, and the device answers`;
  t.test(title, { skip: !isReady() && missing }, async (t) => {
    const command = request(temporaryDirectory(t));
    const channels = ['requests', 'responses'].map((one) => ({ name: one, persistenceType: 'simple' }));
    const { id: deviceTemplateId } = await service.template({ channels });
    const { device, secret } = await service.device({ deviceTemplateId });
    const heard: Array<{ topic: string; payload: string; properties: IPublishPacket['properties'] }> = [];
    const listener = await service.connect({ jwt: service.admin }, { protocolVersion: 5 });
    listener.on('message', (topic, payload, { properties }) => {
      heard.push({ topic: topic.split('/').at(-1) ?? '', payload: payload.toString(), properties });
    });
    await listener.subscribeAsync([service.topic(device.id, 'requests'), service.topic(device.id, 'responses')]);
    const env = {
      ...process.env,
      ...own,
      SLIPWAY_HOST: '127.0.0.1',
      SLIPWAY_PORT: String(service.server.mqttPort),
      SLIPWAY_ACCOUNT: service.accountId,
      SLIPWAY_DEVICE: device.id,
    };
    const answering = startProgram([...command, 'answer'], { ...env, SLIPWAY_SECRET: secret });
    t.teardown(() => answering.program.kill('SIGKILL'));
    await until(() => answering.said.output.includes('ready'));
    // Another caller's request: the program that asks tells its own answer by the correlation data.
    const other = { correlationData: Buffer.from('other'), responseTopic: service.topic(device.id, 'responses') };
    await listener.publishAsync(service.topic(device.id, 'requests'), '{}', { qos: 1, properties: other });
    await until(() => heard.length === 2);
    const asking = startProgram([...command, 'ask'], { ...env, SLIPWAY_TOKEN: service.admin });
    t.teardown(() => asking.program.kill('SIGKILL'));
    t.strictSame(await asking.ended, [0, null]);
    await until(() => heard.length === 4);
    const [asked, answer] = heard.slice(2);
    t.match(asked, {
      topic: 'requests',
      payload: '{"read":"temperature"}',
      properties: { contentType: 'application/json', responseTopic: service.topic(device.id, 'responses') },
    });
    const left = asked?.properties?.messageExpiryInterval ?? 0;
    t.ok(left > 50 && left <= 60, `${left} seconds are left`);
    t.match(answer, { topic: 'responses', properties: { contentType: 'application/json' } });
    t.ok(asked?.properties?.correlationData?.length);
    t.strictSame(answer?.properties?.correlationData, asked?.properties?.correlationData);
    t.type(JSON.parse(answer?.payload ?? '').temperature, 'number');
    t.ok(asking.said.output.includes(answer?.payload ?? 'nothing'), 'it prints the response');
    await listener.endAsync();
  });
}

const enrolling = [
  ...pythons.flatMap(({ file, paho, env }) =>
    [[], ['mqtt']].map((args) => ({
      name: `Python with paho-mqtt ${paho}, ${args[0] ?? 'http'}`,
      env,
      command: () => [file, join(process.cwd(), 'examples/python/enroll.py'), ...args],
    })),
  ),
  ...(run('sh', '-c', 'printf "#include <mosquitto.h>\\n#include <openssl/hmac.h>" | cc -E -')
    ? [{ name: 'C', env: {}, command: (directory: string) => [join(make(directory), 'enroll')] }]
    : []),
];
for (const { name, env: own, command } of enrolling)
  t.test(`the example of enrollment in ${name} gets the credential of a device`, async (t) => {
    const group = await newGroup(service, { proof: 'derivedKey' });
    const directory = temporaryDirectory(t);
    const [file = '', ...args] = command(directory);
    const env = {
      ...process.env,
      ...own,
      SLIPWAY_URL: service.server.url,
      SLIPWAY_HOST: '127.0.0.1',
      SLIPWAY_PORT: String(service.server.mqttPort),
      SLIPWAY_GROUP: group.id,
      SLIPWAY_GROUP_KEY: group.groupKey,
      SLIPWAY_SERIAL: 'AC:DE:48:00:11:22',
    };
    const program = spawn(file, args, { cwd: directory, env, stdio: ['ignore', 'pipe', 'inherit'] });
    let printed = '';
    program.stdout.on('data', (text) => {
      printed += text;
    });
    t.strictSame(await once(program, 'close'), [0, null]);
    const kept = join(directory, 'device.json');
    const answer = JSON.parse(existsSync(kept) ? readFileSync(kept, 'utf8') : printed);
    t.equal(answer.device.serialNumber, 'AC:DE:48:00:11:22');
    await connectOnce(service, answer);
  });

t.test('the example in the browser publishes readings and answers commands', async (t) => {
  const files = createServer(({ url = '' }, response) => {
    const name = url === '/' ? '/index.html' : url;
    const type = name.endsWith('.html') ? 'text/html' : 'text/javascript';
    const from = name === '/mqtt.min.js' ? 'node_modules/mqtt/dist' : 'examples/browser';
    try {
      response.setHeader('content-type', type).end(readFileSync(join(from, name)));
    } catch {
      response.writeHead(404).end();
    }
  }).listen(0, '127.0.0.1');
  await once(files, 'listening');
  t.teardown(() => files.close());
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const browser = await openBrowser();
  const window = await newWindow(browser);
  t.teardown(() => window.close());
  const page = await window.newPage();
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(`http://127.0.0.1:${(files.address() as AddressInfo).port}/`);
  await page.getByLabel('WebSocket URL').fill(`${service.server.url.replace('http', 'ws')}/mqtt`);
  await page.getByLabel('Account id').fill(service.accountId);
  await page.getByLabel('Device id').fill(device.id);
  await page.getByLabel('Secret').fill(secret);
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.getByText('connected').waitFor();
  await checkDevice(t, device.id);
  t.strictSame(errors, []);
});

for (const [name, kind, source] of [
  ['ESP-IDF', 'espIdf', 'examples/esp-idf/main/device.c'],
  ['updates by ESP-IDF', 'firmware', 'examples/esp-idf/update.c'],
  ['enrollment by ESP-IDF', 'firmware', 'examples/esp-idf/enroll.c'],
  ['Zephyr', 'zephyr', 'examples/zephyr/src/main.c'],
  ['Arduino', 'arduino', 'examples/arduino/device.ino'],
] as const)
  t.test(`the example for ${name} is a program that compiles against what it uses of its libraries`, async (t) =>
    checkBoard(t, kind, readFileSync(source, 'utf8')),
  );

t.end();
