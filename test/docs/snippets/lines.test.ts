/** What the service itself tells people to run: the greeting of the first start, the lines of a device, calls of the console. */
import { execFile, execFileSync } from 'node:child_process';
import { copyFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { runInNewContext } from 'node:vm';
import type { Test } from 'tap';
import { curlOf } from '../../../console/app/calls.ts';
import { stationLines } from '../../../console/factory/station-lines.ts';
import { greeting } from '../../../src/process/greeting.ts';
import { certificate } from '../../broker/certificate.ts';
import { temporaryDirectory } from '../../support/directory.ts';
import { part } from '../../support/part.ts';
import { startProcess } from '../../support/process.ts';
import { adminPassword, nextMessage, type Service, startService } from '../../support/service.ts';
import { sharedService } from '../../support/shared.ts';
import { checkBoard } from './boards.ts';
import { microPython } from './micropython.ts';
import { pythons } from './python.ts';
import { Shell } from './shell.ts';
import { has } from './story.ts';

const t = await part(import.meta);

/** An account of its own is made, so that this is a first start. */
const first = { SLIPWAY_ACCOUNT_NAME: 'First' };

/** The lines of a greeting that are commands; lines of Mosquitto only where it is installed. */
function commandsOf(said: string): string[] {
  const lines = said.slice(said.indexOf('1. Log in:')).split('\n');
  const sentence = /^(\d\. .*:|)$/;
  return lines.filter((line) => !sentence.test(line) && (has('mosquitto_pub') || !line.startsWith('mosquitto_pub')));
}

/** Pastes a greeting: its last line reads back what the lines before have published. */
async function pasteGreeting(t: Test, said: string, sh: Shell): Promise<void> {
  const commands = commandsOf(said);
  const published = commands.filter((line) => /^(mosquitto_pub|npx) /.test(line)).length;
  const [, read] = await sh.answers(commands.join('\n'));
  t.equal(read.result.length, published);
  t.match(read.result, [{ category: 'temperature', numericValue: 21.5 }]);
}

t.test('the lines of a first start can be pasted, with the password that it has made', async (t) => {
  const server = await startProcess(t, temporaryDirectory(t), { SLIPWAY_ADMIN_PASSWORD: undefined });
  const said = server.output();
  t.match(said, /^ {2}password {2}\S+$/m);
  t.match(said, /start with SLIPWAY_HOST=0\.0\.0\.0/);
  await pasteGreeting(t, said, new Shell(t));
  await server.stop('SIGTERM');
});

t.test('with TLS they use the port with TLS and the file of the CA', async (t) => {
  const env = certificate(t);
  const { server, mqttsPort: mqtts } = await startService(t, { env: { ...first, ...env } });
  const said = greeting(server);
  t.match(said, new RegExp(`^npx --yes mqtt@5 pub -C mqtts -h 127\\.0\\.0\\.1 -p ${mqtts} `, 'm'));
  t.match(said, new RegExp(`^mosquitto_pub --cafile .* -h 127\\.0\\.0\\.1 -p ${mqtts} `, 'm'));
  const sh = new Shell(t);
  copyFileSync(env.SLIPWAY_TLS_CERT ?? '', join(sh.directory, 'ca.pem'));
  await sh.set({ SLIPWAY_ADMIN_PASSWORD: adminPassword });
  const [trusting = ''] = /^export CURL_CA_BUNDLE=.*$/m.exec(said) ?? [];
  await sh.run(trusting);
  await pasteGreeting(t, said, sh);
});

t.test('where boards can connect, the greeting says at which port', async (t) => {
  const { server } = await startService(t, { env: { ...first, SLIPWAY_HOST: '0.0.0.0' } });
  t.match(greeting(server), new RegExp(`address of this machine, port ${server.mqttPort}`));
});

t.test('the greeting names what is missing for links in emails', async (t) => {
  const { server } = await startService(t, { env: first });
  t.match(greeting(server), /^SLIPWAY_PUBLIC_URL is not set: emails have no links/m);
  const named = await startService(t, { env: { ...first, SLIPWAY_PUBLIC_URL: 'https://things.example.com' } });
  t.notMatch(greeting(named.server), /SLIPWAY_PUBLIC_URL/);
});

t.test('the lines with which a device connects', async (t) => {
  const env = certificate(t);
  const plain = await startService(t);
  const secure = await startService(t, { env });
  const caFile = env.SLIPWAY_TLS_CERT ?? '';

  for (const [way, service] of [
    ['without TLS', plain],
    ['with TLS', secure],
  ] as const) {
    const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
    const { device, secret } = await service.device({ deviceTemplateId });
    const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`);
    const lines = Object.fromEntries(
      Object.entries(connectivity.lines).map(([tool, text]) => [tool, text.replaceAll('YOUR_SECRET', secret)]),
    );
    const sh = new Shell(t, {
      env: { CURL_CA_BUNDLE: caFile, NODE_EXTRA_CA_CERTS: caFile, SSL_CERT_FILE: caFile },
    });
    symlinkSync(join(process.cwd(), 'node_modules'), join(sh.directory, 'node_modules'));
    const listener = await service.connect({ jwt: service.admin });
    await listener.subscribeAsync(service.topic(device.id, 'readings'), { qos: 1 });
    const publishes = async (t: Test, command: string) => {
      const heard = nextMessage(listener);
      await sh.run(command);
      t.equal((await heard).text, ',temperature,21.5,');
    };

    await t.test(`curl publishes ${way}`, (t) => publishes(t, lines.curl ?? ''));

    const withoutMosquitto = !has('mosquitto_pub') && { skip: 'mosquitto_pub is not installed' };
    await t.test(`mosquitto_pub publishes ${way}`, { ...withoutMosquitto }, (t) => publishes(t, lines.mosquitto ?? ''));

    await t.test(`Node.js publishes ${way}`, (t) => {
      writeFileSync(join(sh.directory, 'device.mjs'), lines.node ?? '');
      return publishes(t, 'env -u NODE_OPTIONS node device.mjs');
    });

    await t.test(
      `Python publishes ${way}`,
      { ...(pythons.length === 0 && { skip: 'Python with paho-mqtt is not installed' }) },
      async (t) => {
        writeFileSync(join(sh.directory, 'device.py'), lines.python ?? '');
        for (const { assigned, file, paho } of pythons)
          await t.test(`paho-mqtt ${paho}`, (t) => publishes(t, `env ${assigned} '${file}' device.py`));
      },
    );

    const withoutMicroPython = !microPython && { skip: 'neither MicroPython nor Python with paho-mqtt is installed' };
    await t.test(`${microPython?.name ?? 'MicroPython'} publishes ${way}`, { ...withoutMicroPython }, async (t) => {
      copyFileSync(caFile, join(sh.directory, 'ca.pem'));
      writeFileSync(join(sh.directory, 'main.py'), lines.microPython ?? '');
      const [file = '', ...args] = [...(microPython?.command ?? []), 'main.py'];
      const heard = nextMessage(listener);
      await promisify(execFile)(file, args, { cwd: sh.directory, env: microPython?.env });
      t.equal((await heard).text, ',temperature,21.5,');
    });

    for (const board of ['arduino', 'espIdf', 'zephyr'] as const)
      await t.test(`the program for ${board} compiles ${way}`, async (t) => checkBoard(t, board, lines[board] ?? ''));
  }
});

t.test('the name of a channel is text in the lines, whatever it is', async (t) => {
  const service: Service = await sharedService(t);
  const channel = `a 'b' "c" \\ $(exit 7) \`exit 8\` ; exit 9 ? é`;
  const { id: deviceTemplateId } = await service.template({ channels: [channel] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`);
  const { mosquitto, node, curl, python } = connectivity.lines;
  const topic = service.topic(device.id, channel);
  const sh = new Shell(t);
  const words = await sh.run(mosquitto.replace('mosquitto_pub', `printf '%s\\n'`));
  t.ok(words.split('\n').includes(topic), words);
  const [, literal = ''] = /publishAsync\(('.*'), ',temp/.exec(node) ?? [];
  t.equal(runInNewContext(literal), topic);
  const [, text = ''] = /single\(\n +(".*"),\n/.exec(python) ?? [];
  for (const { file } of pythons)
    t.equal(execFileSync(file, ['-c', `print(${text})`], { encoding: 'utf8', env: { PYTHONUTF8: '1' } }), `${topic}\n`);
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(topic);
  const heard = nextMessage(listener);
  await sh.run(curl.replaceAll('YOUR_SECRET', secret));
  t.equal((await heard).text, ',temperature,21.5,');
});

t.test('a call that the console shows can be pasted', async (t) => {
  const service = await sharedService(t);
  const sh = new Shell(t);
  await sh.set({ TOKEN: service.admin });
  const url = `${service.server.url}/api/v1/organizations`;
  const shown = { status: 200, answer: '', requestId: '' };
  const requestBody = JSON.stringify({ accountId: service.accountId, name: `O'Neil & "Sons" $HOME` }, null, 2);
  const [made] = await sh.answers(curlOf({ ...shown, method: 'POST', url, requestBody }));
  t.match(made, { organization: { name: `O'Neil & "Sons" $HOME` } });
  const one = `${url}/${made.organization.id}`;
  t.match(await sh.answers(curlOf({ ...shown, method: 'GET', url: one, requestBody: '' })), [made]);
});

t.test('the lines of a new station that the console shows let the command make units', async (t) => {
  const service = await sharedService(t);
  const { id: deviceTemplateId } = await service.template();
  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  const station = { name: 'Line 1', kind: 'station', deviceTemplateId, maxDevices: 1, expiresAt };
  const made = await service.create('/applications', 'application', station);
  const sh = new Shell(t);
  await sh.run(stationLines(service.server.url, service.accountId, made));
  t.match(
    await sh.run("printf 'serialNumber\\nTH-1\\n' > units.csv\nslipway provision --csv units.csv --dry-run"),
    /1 could be made/,
  );
});

t.end();
