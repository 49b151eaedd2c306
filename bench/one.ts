/** `slipway provision one` as the line runs it: a whole process for each unit, beside an empty process and the requests alone. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { equip } from './equip.js';
import { at, described } from './figures.js';
import { adminToken, type ServingService, serve } from './processes.js';

/** Milliseconds, p99, from the start of the process to its end. */
const figure = 200;
const rounds = 100;

/** Each round runs all of them one after the other, so that a busy moment of the machine is nobody's alone. */
export async function measureOne(directory: string): Promise<void> {
  const [first] = await equip(directory, 1);
  const accountId = first?.accountId ?? '';
  const server = await serve(directory);
  try {
    const token = await adminToken(server, accountId);
    const station = await makeStation(server, accountId, token);
    const cli = fileURLToPath(new URL('../src/cli.js', import.meta.url));
    const unit = (serial: string) => [cli, 'provision', 'one', '--serial', serial, '--format', 'esp-nvs-csv'];
    const plain = ['--out', join(directory, 'plain')];
    const labelled = ['--labels', '--out', join(directory, 'labelled')];
    const measured: Record<string, (round: number) => Promise<unknown>> = {
      'provision one': (round) => run([...unit(`PLAIN-${round}`), ...plain], station),
      'provision one --labels': (round) => run([...unit(`LABEL-${round}`), ...labelled], station),
      'node -e 0': () => run(['-e', '0'], {}),
      'its requests alone': (round) => ask(server, accountId, token, `ASKED-${round}`),
    };
    const times = Object.keys(measured).map((): number[] => []);
    for (let round = -3; round < rounds; round += 1)
      for (const [place, work] of Object.values(measured).entries()) {
        const from = performance.now();
        await work(round);
        if (round >= 0) times[place]?.push(performance.now() - from);
      }
    for (const [place, name] of Object.keys(measured).entries())
      console.log(`  ${name.padEnd(24)} ${described(times[place] ?? [])}`);
    const p99 = at(times[0] ?? [], 0.99);
    console.log(
      `\n${p99 < figure ? 'within' : 'NOT within'} the figure: p99 ${p99.toFixed(1)} ms, figure ${figure} ms`,
    );
  } finally {
    await server.stop();
  }
}

async function run(args: string[], env: Record<string, string>): Promise<void> {
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code] = await once(child, 'exit');
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
}

/** The environment of a line's computer. */
async function makeStation(server: ServingService, accountId: string, token: string): Promise<Record<string, string>> {
  const { deviceTemplates } = await call(server, token, `/devices/templates?accountId=${accountId}&default=true`);
  const deviceTemplateId = deviceTemplates.results[0]?.id;
  const limits = { deviceTemplateId, maxDevices: 100_000, expiresAt: '2099-01-01T00:00:00Z' };
  const body = { accountId, name: 'Line', kind: 'station', ...limits };
  const { application } = await call(server, token, '/applications', body);
  return {
    SLIPWAY_URL: server.url.replace(/\/api\/v1$/, ''),
    SLIPWAY_ACCOUNT_ID: accountId,
    SLIPWAY_APP_ID: application.id,
    SLIPWAY_TOKEN: application.appToken,
  };
}

/** What the command asks for, without its login, over connections that are open already. */
async function ask(server: ServingService, accountId: string, token: string, serialNumber: string): Promise<void> {
  await call(server, token, `/devices?accountId=${accountId}&serialNumber=${serialNumber}`);
  const { device } = await call(server, token, '/devices', { accountId, serialNumber });
  await Promise.all([
    call(server, token, '/access/mqtt-credentials', { accountId, entityId: device.id, entityType: 'device' }),
    call(server, token, '/association/create-association-code', { deviceId: device.id }),
    call(server, token, '/provisioning/addresses'),
  ]);
}

interface Answer {
  deviceTemplates: { results: Array<{ id: string }> };
  application: { id: string; appToken: string };
  device: { id: string };
}

/** GET, or POST where there is a body. */
async function call({ url }: ServingService, token: string, path: string, body?: object): Promise<Answer> {
  const response = await fetch(url + path, {
    headers: { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
  return (await response.json()) as Answer;
}
