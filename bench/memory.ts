/** What the process holds of memory: after its first start, after its second, and with a fleet connected. */
import { setTimeout as sleep } from 'node:timers/promises';
import { equip } from './equip.ts';
import { median, type Row } from './figures.ts';
import type { Bench } from './sizes.ts';
import { connectAll, subscribe } from './storm.ts';

/** Megabytes. */
const idleFigure = 170;
/** How often each start is measured. */
const starts = 2;
const fleetFigure = 350;

export async function measureMemory({ size, directory, serve }: Bench): Promise<Row[]> {
  const idle: { first: number[]; second: number[] } = { first: [], second: [] };
  for (let round = 0; round < (size.rounds > 1 ? starts : 1); round += 1) {
    const empty = await directory(0);
    for (const start of ['first', 'second'] as const) {
      const service = await serve(empty);
      await sleep(size.rest);
      idle[start].push(service.rss());
      await service.stop();
    }
  }
  console.log(`  first starts ${idle.first.join(', ')} MB; second starts ${idle.second.join(', ')} MB`);

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
    { what: 'Idle, second start', ours: median(idle.second), unit: 'MB', figure: { below: idleFigure } },
    { what: 'Idle, first start', ours: median(idle.first), unit: 'MB', figure: { below: idleFigure } },
    {
      what: 'Connected, each with a stored session and a subscription',
      devices: size.fleet,
      ours: connected,
      unit: 'MB',
      figure: { below: fleetFigure },
    },
  ];
}
