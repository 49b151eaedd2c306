/** What the process holds of memory: after its first start, after its second, and with a fleet connected. */
import { setTimeout as sleep } from 'node:timers/promises';
import { equip } from './equip.js';
import type { Row } from './figures.js';
import type { Bench } from './sizes.js';
import { connectAll, subscribe } from './storm.js';

/** Megabytes. */
const idleFigure = 120;
const fleetFigure = 550;

export async function measureMemory({ size, directory, serve }: Bench): Promise<Row[]> {
  const empty = await directory(0);
  const idle: number[] = [];
  for (let start = 0; start < 2; start += 1) {
    const service = await serve(empty);
    await sleep(size.rest);
    idle.push(service.rss());
    await service.stop();
  }
  const [first = Number.NaN, second = Number.NaN] = idle;

  const seeded = await directory(size.fleet);
  const devices = await equip(seeded, size.fleet);
  const service = await serve(seeded);
  const { links } = await connectAll(service, devices);
  await Promise.all([...links].map(([device, link]) => subscribe(link, device.topic('chat'))));
  await sleep(size.rest);
  const connected = service.rss();
  for (const { socket } of links.values()) socket.destroy();
  await service.stop();
  return [
    { what: 'Idle, second start', ours: second, unit: 'MB', figure: { below: idleFigure } },
    { what: 'Idle, first start', ours: first, unit: 'MB' },
    {
      what: 'Connected, each with a stored session and a subscription',
      devices: size.fleet,
      ours: connected,
      unit: 'MB',
      figure: { below: fleetFigure },
    },
  ];
}
