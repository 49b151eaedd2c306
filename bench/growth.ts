/** What the same costs with ever more devices in the registry. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn } from './api.ts';
import { equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import { getBytes, HttpLine, postBytes } from './http-load.ts';
import { openLink, publishBytes } from './link.ts';
import type { Bench } from './sizes.ts';

/** Devices that connect; each question is asked of another one. */
const connecting = 200;
const warmUp = 20;

export async function measureGrowth({ size, directory, serve }: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  for (const devices of size.growth) {
    const seeded = await directory(devices);
    const equipped = await equip(seeded, Math.min(connecting, devices));
    const [first] = equipped;
    if (!first) throw new Error('no device');
    const { accountId } = first;
    // The first start makes what is missing.
    await (await serve(seeded)).stop();
    const from = performance.now();
    const service = await serve(seeded);
    const started = (performance.now() - from) / 1000;
    const row = (what: string, ours: number, unit: string) => {
      rows.push({ what, ours, unit, devices });
      console.log(`  ${devices} devices: ${what} ${ours.toFixed(2)} ${unit}`);
    };
    row('Start', started, 's');
    await sleep(size.rest);
    row('Memory, idle', service.rss(), 'MB');
    row('registry.db', statSync(join(seeded, 'registry.db')).size / devices, 'bytes/device');

    const { token } = await logIn(service, accountId);
    const url = new URL(service.url);
    const line = new HttpLine(Number(url.port));
    const timed = async (what: string, work: (n: number) => Promise<unknown>) => {
      const times: number[] = [];
      for (let n = 0; n < warmUp + 3 * size.asks; n += 1) {
        const begun = performance.now();
        await work(n);
        if (n >= warmUp) times.push(performance.now() - begun);
      }
      console.log(`  ${described(times)}  ${what}`);
      row(`${what}, p50`, at(times, 0.5), 'ms');
    };
    const one = (n: number) => equipped[n % equipped.length] ?? first;
    const get = (path: string) => line.ask(getBytes(`${url.pathname}/devices${path}`, token));
    const list = (query: string) => get(`?accountId=${accountId}&${query}`);
    await timed('GET a device by id', (n) => get(`/${one(n).id}`));
    await timed('A page of the list', () => list(''));
    await timed('A page, sorted by time', () => list('sortBy=created&sortOrder=desc'));
    await timed('A page, one state', () => list('provisioningState=activated'));
    await timed('A page, part of a serial number', () => list('serialNumber=q7'));
    await timed('POST /devices', (n) =>
      line.ask(postBytes(`${url.pathname}/devices`, token, { accountId, serialNumber: `GROWN-${n}` })),
    );
    await timed('CONNECT', async (n) => {
      const { id, secret } = one(n);
      const link = await openLink({ port: service.mqttPort }, { username: id, password: secret, clientId: id });
      if (link.returnCode !== 0) throw new Error(`refused with ${link.returnCode}`);
      link.socket.destroy();
    });
    let acknowledged = () => {};
    const login = { username: first.id, password: first.secret, clientId: 'publisher' };
    const link = await openLink({ port: service.mqttPort }, login, ({ cmd }) => cmd === 'puback' && acknowledged());
    await timed('Publish, stored, to PUBACK', (n) => {
      link.send(publishBytes(first.topic('temperature'), `,x,${n},`, { qos: 1, messageId: n + 1 }));
      return new Promise<void>((resolve) => {
        acknowledged = resolve;
      });
    });
    link.socket.destroy();
    line.end();
    await service.stop();
  }
  return rows;
}
