/** `slipway provision one` as the line runs it: a whole process for each unit, next to an empty process and the requests alone. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Api, logIn } from './api.ts';
import { equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import type { ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';

/** Milliseconds, p99, from the start of the process to its end. */
const figure = 200;

/** Each round runs all of them one after the other, so that a busy moment of the machine is nobody's alone. */
export async function measureOne({ size, directory: lend, serve }: Bench): Promise<Row[]> {
  const directory = await lend(1000);
  const [first] = await equip(directory, 1);
  const accountId = first?.accountId ?? '';
  const server = await serve(directory);
  try {
    const api = await logIn(server, accountId);
    const station = await makeStation(server, accountId, api);
    const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));
    const made = ['--format', 'esp-nvs-csv', '--broker', 'mqtts://things.example.com:8883'];
    const unit = (serial: string) => [cli, 'provision', 'one', '--serial', serial, ...made];
    const plain = ['--out', join(directory, 'plain')];
    const labelled = ['--labels', '--out', join(directory, 'labelled')];
    const measured: Record<string, (round: number) => Promise<unknown>> = {
      'provision one': (round) => run([...unit(`PLAIN-${round}`), ...plain], station),
      'provision one --labels': (round) => run([...unit(`LABEL-${round}`), ...labelled], station),
      'node -e 0': () => run(['-e', '0'], {}),
      'its requests alone': (round) => ask(api, accountId, `ASKED-${round}`),
    };
    const times = Object.keys(measured).map((): number[] => []);
    for (let round = -3; round < size.asks; round += 1)
      for (const [place, work] of Object.values(measured).entries()) {
        const from = performance.now();
        await work(round);
        if (round >= 0) times[place]?.push(performance.now() - from);
      }
    for (const [place, name] of Object.keys(measured).entries())
      console.log(`  ${name.padEnd(24)} ${described(times[place] ?? [])}`);
    const [ours, , empty] = times.map((taken) => at(taken, 0.99));
    return [
      {
        what: '`slipway provision one`, a process for each unit, p99',
        ours: ours ?? Number.NaN,
        unit: 'ms',
        peer: { name: 'node -e 0', value: empty ?? Number.NaN },
        figure: { below: figure },
      },
    ];
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
async function makeStation(server: ServingService, accountId: string, { call }: Api): Promise<Record<string, string>> {
  type Templates = { deviceTemplates: { results: Array<{ id: string }> } };
  const { deviceTemplates } = await call<Templates>('GET', `/devices/templates?accountId=${accountId}&default=true`);
  const deviceTemplateId = deviceTemplates.results[0]?.id;
  const limits = { deviceTemplateId, maxDevices: 100_000, expiresAt: '2099-01-01T00:00:00Z' };
  const body = { accountId, name: 'Line', kind: 'station', ...limits };
  type MadeStation = { application: { id: string; appToken: string } };
  const { application } = await call<MadeStation>('POST', '/applications', body);
  return {
    SLIPWAY_URL: server.url.replace(/\/api\/v1$/, ''),
    SLIPWAY_ACCOUNT_ID: accountId,
    SLIPWAY_APP_ID: application.id,
    SLIPWAY_TOKEN: application.appToken,
  };
}

/** What the command asks for, without its login, over connections that are open already. */
async function ask({ call }: Api, accountId: string, serialNumber: string): Promise<void> {
  await call('GET', `/devices?accountId=${accountId}&serialNumber=${serialNumber}`);
  const { device } = await call<{ device: { id: string } }>('POST', '/devices', { accountId, serialNumber });
  await Promise.all([
    call('POST', '/access/mqtt-credentials', { accountId, entityId: device.id, entityType: 'device' }),
    call('POST', '/association/create-association-code', { deviceId: device.id }),
    call('GET', '/provisioning/addresses'),
  ]);
}
