/** What those who publish feel of a backup next to them, and what it takes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Equipped, equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import { openLink, publishBytes } from './link.ts';
import type { Bench } from './sizes.ts';

const publishers = 50;
/** Points of one message, of half as many in all as `Size.points` counts. */
const rows = 1000;
/** Messages a second of all publishers together, and milliseconds between two handfuls of them. */
const pace = 5000;
const beat = 10;
const command = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));

export async function measureBackup({ size, directory: seeded, serve }: Bench): Promise<Row[]> {
  const directory = await seeded(size.registry);
  const devices = await equip(directory, publishers);
  const server = await serve(directory, { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' });
  try {
    await fill(server.mqttPort, devices, size.points / 2);
    const quiet = await paced(server.mqttPort, devices, pause(5000));
    console.log(`${pace} msg/s of ${publishers} publishers, from publish to PUBACK`);
    console.log(`  without a backup  ${described(quiet)}`);
    const file = join(directory, 'bench.zip');
    let taken: Awaited<ReturnType<typeof backUp>> | undefined;
    const backup = backUp(directory, file).then((result) => {
      taken = result;
    });
    const times = await paced(server.mqttPort, devices, backup);
    console.log(`  next to a backup   ${described(times)}  longest ${Math.max(...times).toFixed(0)} ms`);
    const mib = (path: string) => Math.round((existsSync(path) ? statSync(path).size : 0) / 1024 ** 2);
    const [registry, messages, log] = ['registry.db', 'messages.db', 'messages.db-wal'].map((name) =>
      mib(join(directory, name)),
    );
    console.log(
      `  the backup: ${taken?.seconds.toFixed(1)} s, ${taken?.peak} MiB of memory at most, file ${mib(file)} MiB`,
    );
    console.log(
      `  registry.db ${registry} MiB, messages.db ${messages} MiB, its write-ahead log afterwards ${log} MiB`,
    );
    rmSync(file);
    return [
      {
        what: 'Publish to PUBACK next to a backup, p99',
        ours: at(times, 0.99),
        unit: 'ms',
        peer: { name: 'without a backup', value: at(quiet, 0.99) },
      },
    ];
  } finally {
    await server.stop();
  }
}

/** Seconds, and the most memory (MiB) that it held. */
async function backUp(directory: string, file: string): Promise<{ seconds: number; peak: number }> {
  const began = performance.now();
  const args = [command, 'backup', file, '--data-dir', directory];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  let peak = 0;
  const look = setInterval(() => {
    const status = existsSync(`/proc/${child.pid}/status`) ? readFileSync(`/proc/${child.pid}/status`, 'utf8') : '';
    peak = Math.max(peak, Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024));
  }, 50);
  const [code] = await once(child, 'exit');
  clearInterval(look);
  if (code !== 0) throw new Error(`the backup ended with ${code}`);
  return { seconds: (performance.now() - began) / 1000, peak };
}

async function fill(port: number, devices: Equipped[], stored: number): Promise<void> {
  const each = stored / rows / devices.length;
  let time = Date.now() - stored;
  const payload = () =>
    Array.from({ length: rows }, () => {
      time += 1;
      return `${time},temperature,${(Math.random() * 40).toFixed(2)},`;
    }).join('\n');
  await Promise.all(
    devices.map(async (device) => {
      let n = 0;
      await new Promise<void>((resolve, reject) => {
        const send = () => publishBytes(device.topic('temperature'), payload(), { qos: 1, messageId: n + 1 });
        const login = { username: device.id, password: device.secret, clientId: 'fill' };
        openLink({ port }, login, ({ cmd }, link) => {
          if (cmd !== 'puback') return;
          n += 1;
          if (n < each) link.send(send());
          else {
            link.socket.destroy();
            resolve();
          }
        }).then((link) => link.send(send()), reject);
      });
    }),
  );
}

/** Milliseconds from each publish to its PUBACK, until `end`. */
async function paced(port: number, devices: Equipped[], end: Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  const sent = new Map<string, number>();
  const links = await Promise.all(
    devices.map(({ id, secret }) =>
      openLink({ port }, { username: id, password: secret, clientId: 'paced' }, ({ cmd, messageId }) => {
        if (cmd !== 'puback') return;
        times.push(performance.now() - (sent.get(`${id} ${messageId}`) ?? Number.NaN));
        sent.delete(`${id} ${messageId}`);
      }),
    ),
  );
  let running = true;
  void end.finally(() => {
    running = false;
  });
  const from = performance.now();
  for (let n = 0; running; await pause(beat))
    for (; n < ((performance.now() - from) / 1000) * pace; n += 1) {
      const [link, device] = [links[n % links.length], devices[n % links.length]];
      if (!link || !device) continue;
      const messageId = (Math.floor(n / links.length) % 65_535) + 1;
      sent.set(`${device.id} ${messageId}`, performance.now());
      link.send(publishBytes(device.topic('temperature'), `,x,${n},`, { qos: 1, messageId }));
    }
  while (sent.size > 0) await pause(beat);
  for (const { socket } of links) socket.destroy();
  await end;
  return times;
}
