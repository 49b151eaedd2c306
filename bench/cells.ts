/** Two cells behind HAProxy: what a message costs next to one cell alone, and what a cell feels when the other is killed. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { readCells } from '../cells/config.ts';
import { writeCells } from '../cells/haproxy/files.ts';
import { slotOf } from '../src/core/ids.ts';
import { type Equipped, equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import { type Link, openLink } from './link.ts';
import { freePort, type ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';
import { paced } from './stored.ts';

/** Publishers of each cell, and messages a second of all of them: far below what two cells do on two cores. */
const crowd = 20;
const rate = 1000;
/** Milliseconds until a device tries again. */
const retry = 200;
const figures = { cpu: 1.05, p99: 1.1 };

interface Cell {
  serving: ServingService;
  devices: Equipped[];
  /** Starts it again at the same ports. */
  begin(): Promise<void>;
}

export async function measureCells({ size, directory, serve }: Bench): Promise<Row[]> {
  // Looking for HAProxy may download it, which other scenarios do not wait for.
  const { startHaproxy, withHaproxy } = await import('../test/support/haproxy.ts');
  if ('skip' in withHaproxy) {
    console.log('(HAProxy is not installed: nothing is measured.)');
    return [];
  }
  const begin = async (devices: number): Promise<Cell> => {
    const seeded = await directory(devices);
    const equipped = await equip(seeded, crowd);
    const env = {
      SLIPWAY_TRUSTED_PROXIES: '127.0.0.1',
      SLIPWAY_HTTP_PORT: `${await freePort()}`,
      SLIPWAY_MQTT_PORT: `${await freePort()}`,
    };
    const cell = {
      devices: equipped,
      serving: await serve(seeded, env),
      begin: async () => {
        cell.serving = await serve(seeded, env);
      },
    };
    return cell;
  };
  // Another number of devices is another directory, with another account.
  const cells = [await begin(1000), await begin(1001)] as const;
  const place = mkdtempSync(join(tmpdir(), 'slipway-bench-cells-'));
  const { adminSocket, port } = await writeProxy(place, cells);
  const proxy = await startHaproxy(join(place, 'haproxy.cfg'), adminSocket);
  try {
    return await measure(cells, port, size);
  } finally {
    await proxy.stop();
    rmSync(place, { recursive: true });
  }
}

/** Writes the configuration of HAProxy: one cell has the slot of its account, and the other one all others. */
async function writeProxy(directory: string, [first, second]: readonly [Cell, Cell]) {
  const [port, http] = [await freePort(), await freePort()];
  const slot = slotOf(first.devices[0]?.accountId ?? '');
  if (slot === slotOf(second.devices[0]?.accountId ?? ''))
    throw new Error('Both accounts have one slot: run it again.');
  const others = Array.from({ length: 0x1000 }, (_, n) => n.toString(16).padStart(3, '0')).filter(
    (one) => one !== slot,
  );
  const adminSocket = join(directory, 'admin.sock');
  const cell = ({ serving: { url, mqttPort } }: Cell, slots: string) =>
    `{ address: 127.0.0.1, http: ${new URL(url).port}, mqtt: ${mqttPort}, slots: [${slots}] }`;
  const config = readCells(`cells:
  c01: ${cell(first, slot)}
  c02: ${cell(second, `${others}`)}
public: { address: 127.0.0.1, http: ${http}, mqtt: ${port}, adminSocket: ${adminSocket}, user: ${userInfo().username} }`);
  writeCells(config, directory);
  return { adminSocket, port };
}

async function measure([first, second]: readonly [Cell, Cell], mqttPort: number, size: Bench['size']): Promise<Row[]> {
  // One pair says little: the median of several is compared, each of one moment of the machine.
  const rounds = size.rounds * 3;
  const run = ({ devices }: Cell) => paced({ mqttPort }, devices, size.duration, rate);
  /** Microseconds of all servers for each message. */
  const costOf = async (loaded: readonly Cell[]) => {
    const before = loaded.map(({ serving }) => serving.cpu());
    const times = await Promise.all(loaded.map(run));
    const spent = loaded.reduce((sum, { serving }, n) => sum + serving.cpu() - (before[n] ?? 0), 0);
    return (spent / times.flat().length) * 1e6;
  };
  // The secrets of all devices are hashed once, and what is compiled late is compiled.
  await costOf([first, second]);
  const [alone, together]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    // Each cell alone in its turn: the two directories are not quite the same.
    alone.push(((await costOf([first])) + (await costOf([second]))) / 2);
    together.push(await costOf([first, second]));
  }
  console.log(
    `  CPU of a message: ${median(alone).toFixed(0)} µs in one cell, ${median(together).toFixed(0)} µs in two`,
  );
  const [before, after]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    const [times = []] = await Promise.all([run(first), run(second)]);
    before.push(at(times, 0.99));
    console.log(`  both cells          ${described(times)}`);
    const late = run(first);
    await pause(size.duration / 2);
    await second.serving.kill();
    const returning = comeBack(mqttPort, second.devices);
    const alone = await late;
    after.push(at(alone, 0.99));
    console.log(`  the other is killed ${described(alone)}`);
    await second.begin();
    await returning;
  }
  const what = `${rate} stored messages a second in each cell`;
  return [
    {
      what: `CPU of a message in two cells, of that in one; ${what}`,
      ours: median(together) / median(alone),
      unit: '×',
      figure: { below: figures.cpu },
    },
    {
      what: 'Publish → PUBACK p99 while the other cell is killed and its devices try to come back, of that with both',
      ours: median(after) / median(before),
      unit: '×',
      figure: { below: figures.p99 },
    },
  ];
}

/** The devices of a dead cell, which try to connect all the time. Resolves when all of them are back. */
async function comeBack(port: number, devices: readonly Equipped[]): Promise<void> {
  await Promise.all(
    devices.map(async ({ id, secret }) => {
      for (let link: Link | undefined; !link; ) {
        link = await openLink({ port }, { username: id, password: secret, clientId: id }).catch(() => undefined);
        link?.socket.destroy();
        await pause(retry);
      }
    }),
  );
}
