/** One job of many units next to others who ask and connect, and the same units by single requests. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Api, logIn } from './api.ts';
import { startAsking } from './asker.ts';
import { type Equipped, equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import { openLink } from './link.ts';
import type { ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';

/** Units a second, and the longest that others may wait (p99, milliseconds). */
const rateFigure = 10_000;
const othersFigure = 100;
/** What `slipway provision one` asks for a unit may take so long (p99, milliseconds), of which the start of the command is a part. */
const oneFigure = 200;
const oneByOne = 300;
/** Units that are made singly, so many at once. */
const singles = 2000;
const atOnce = 8;
/** Milliseconds between a CONNACK and the next CONNECT. */
const pause = 10;

export async function measureProvisioning({ size, directory, serve }: Bench): Promise<Row[]> {
  const count = size.units;
  const seeded = await directory(1000);
  const devices = await equip(seeded, 200);
  const accountId = devices[0]?.accountId ?? '';
  const server = await serve(seeded);
  try {
    const api = await logIn(server, accountId);
    const { token } = api;
    await provision(server, api, 'WARM', 2000);
    const asking = startAsking(`${server.url}/devices?accountId=${accountId}&pageSize=20`, token);
    const connecting = startConnecting(server, devices);
    const cpuBefore = server.cpu();
    const job = await provision(server, api, 'JOB', count);
    const cpu = server.cpu() - cpuBefore;
    const [asked, connected] = [await asking.stop(), await connecting.stop()];
    const single = await makeSingly(api, accountId);
    const ones = await makeOneByOne(api, accountId);

    const rate = count / (job.taken + job.worked);
    console.log(
      `\n  one job of ${count}: ${Math.round(rate)} devices/s, each with a credential and an association code`,
    );
    console.log(`    taken in ${job.taken.toFixed(2)} s, worked on for ${job.worked.toFixed(2)} s`);
    console.log(`    CPU time of the server: ${Math.round((cpu / count) * 1e6)} µs a device, with those who ask`);
    console.log(
      `  single requests, ${atOnce} at once: ${Math.round(single)} devices/s; the job is ${(rate / single).toFixed(1)} times as fast`,
    );
    console.log(`  one unit after the other         ${described(ones)}`);
    console.log(`  GET a page of devices meanwhile  ${described(asked)}`);
    console.log(`  CONNECT meanwhile                ${described(connected)}\n`);
    const others = { unit: 'ms', figure: { below: othersFigure } };
    return [
      {
        what: `Provisioning job of ${count}, with credential and code`,
        ours: rate,
        unit: 'devices/s',
        peer: { name: 'single requests', value: single },
        figure: { atLeast: rateFigure },
      },
      { what: 'CPU time of the server for it', ours: (cpu / count) * 1e6, unit: 'µs/device' },
      { what: 'GET a page of devices next to the job, p99', ours: at(asked, 0.99), ...others },
      { what: 'CONNECT next to the job, p99', ours: at(connected, 0.99), ...others },
      {
        what: 'One unit by single requests, p99',
        ours: at(ones, 0.99),
        unit: 'ms',
        figure: { below: oneFigure },
      },
    ];
  } finally {
    await server.stop();
  }
}

/** Seconds until the answer, and from there until all is done. */
async function provision({ url }: ServingService, { call, token }: Api, prefix: string, count: number) {
  const rows = Array.from({ length: count }, (_, row) => `${prefix}-${String(row).padStart(8, '0')}`);
  const from = performance.now();
  const csv = `serialNumber\n${rows.join('\n')}`;
  const { job } = await call<{ job: { id: string } }>('POST', '/provisioning/jobs', csv);
  const accepted = performance.now();
  const events = await fetch(`${url}/provisioning/jobs/${job.id}/events`, {
    headers: { authorization: `Bearer ${token}` },
  });
  const text = await events.text();
  if (!text.includes(`"done":${count},`)) throw new Error(`the job ended otherwise: ${text.slice(-500)}`);
  return { taken: (accepted - from) / 1000, worked: (performance.now() - accepted) / 1000 };
}

/** One device after the other connects and goes; the answer's `stop` resolves to the milliseconds until each CONNACK. */
function startConnecting({ mqttPort: port }: ServingService, devices: readonly Equipped[]) {
  const times: number[] = [];
  let open = true;
  const connecting = (async () => {
    for (let turn = 0; open; turn += 1) {
      const { id, secret } = devices[turn % devices.length] as Equipped;
      const from = performance.now();
      const link = await openLink({ port }, { username: id, password: secret, clientId: id });
      times.push(performance.now() - from);
      link.socket.destroy();
      await sleep(pause);
    }
  })();
  return {
    stop: async () => {
      open = false;
      await connecting;
      return times;
    },
  };
}

/** Devices a second, each with a credential and a code by requests of its own. */
async function makeSingly(api: Api, accountId: string): Promise<number> {
  let next = 0;
  const from = performance.now();
  const makeSome = async () => {
    while (next < singles) {
      next += 1;
      await makeUnit(api, accountId, `ONE-${next}`);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, makeSome));
  return singles / ((performance.now() - from) / 1000);
}

/** Milliseconds that each unit takes as `slipway provision one` asks for it, over a connection that stays. */
async function makeOneByOne(api: Api, accountId: string): Promise<number[]> {
  const times: number[] = [];
  for (let unit = 0; unit < oneByOne; unit += 1) {
    const from = performance.now();
    const serialNumber = `BY-ONE-${unit}`;
    await api.call('GET', `/devices?accountId=${accountId}&serialNumber=${serialNumber}`);
    await makeUnit(api, accountId, serialNumber);
    times.push(performance.now() - from);
  }
  return times;
}

async function makeUnit({ call }: Api, accountId: string, serialNumber: string): Promise<void> {
  const { device } = await call<{ device: { id: string } }>('POST', '/devices', { accountId, serialNumber });
  await call('POST', '/access/mqtt-credentials', { accountId, entityId: device.id, entityType: 'device' });
  await call('POST', '/association/create-association-code', { deviceId: device.id });
}
