/** What others feel of many firmware downloads at once, and what those cost in memory: quick readers, and ones that hardly read. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openSqlite } from '../db/sqlite/open.ts';
import { type Api, logIn } from './api.ts';
import { startAsking } from './asker.ts';
import { download } from './downloader.ts';
import { type Equipped, equip } from './equip.ts';
import { at, described, type Row } from './figures.ts';
import type { ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';

const readers = 200;
const fileBytes = 8 * 1024 * 1024;
/** Milliseconds: of the p99 of others, and how much memory may grow in megabytes. */
const figures = { p99: 100, memory: 60 };
/** How often the same downloads begin again where that is quick. */
const passes = 3;

export async function measureDownloads({ size, directory, serve }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const devices = await equip(seeded, readers);
  ofOneTemplate(seeded, devices);
  const service = await serve(seeded, { SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '0' });
  const accountId = devices[0]?.accountId ?? '';
  const api = await logIn(service, accountId);
  await rollOut(service, api, accountId, devices);
  const urls = await Promise.all(devices.map((device) => urlOf(service, device)));
  const victim = `${service.url}/devices/${devices[0]?.id}`;
  // What a first download loads and compiles is not what downloads cost.
  await during(service, api, victim, () => download(urls, 'quick', 1));
  await sleep(size.rest);

  const before = service.rss();
  const alone = await during(service, api, victim, () => sleep(size.duration));
  const quick = await during(service, api, victim, () => download(urls, 'quick', size.rounds > 1 ? passes : 1));
  const slow = await during(service, api, victim, () => download(urls, 'slow', size.duration));
  await service.stop();
  console.log(`GET of a device, and the memory of the service; ${readers} downloads of 8 MB at once\n`);
  for (const [kind, { times, most, seconds }] of Object.entries({ alone, quick, slow }))
    console.log(
      `  ${kind.padEnd(6)} ${described(times)}  at most ${most} MB (${before} before), ${seconds.toFixed(1)} s`,
    );
  const megabytes = (readers * fileBytes * (size.rounds > 1 ? passes : 1)) / 1e6 / quick.seconds;
  const peer = { name: 'alone', value: at(alone.times, 0.99) };
  return [
    {
      what: `GET a device next to ${readers} downloads, p99`,
      ours: at(quick.times, 0.99),
      unit: 'ms',
      peer,
      figure: { below: figures.p99 },
    },
    {
      what: `GET a device next to ${readers} readers of one byte a second, p99`,
      ours: at(slow.times, 0.99),
      unit: 'ms',
      peer,
      figure: { below: figures.p99 },
    },
    {
      what: `Memory for ${readers} downloads, quick or slow`,
      ours: Math.max(quick.most, slow.most) - before,
      unit: 'MB',
      figure: { below: figures.memory },
    },
    { what: `Firmware sent by ${readers} downloads`, ours: megabytes, unit: 'MB/s' },
  ];
}

/** A package is for the devices of one template. */
function ofOneTemplate(directory: string, devices: Equipped[]): void {
  const file = openSqlite(join(directory, 'registry.db'));
  const templateId = file
    .prepare('SELECT "deviceTemplateId" FROM "devices" WHERE "id" = ?')
    .pluck()
    .get(devices[0]?.id);
  const change = file.prepare('UPDATE "devices" SET "deviceTemplateId" = ? WHERE "id" = ?');
  for (const { id } of devices) change.run(templateId, id);
  file.close();
}

async function rollOut({ url }: ServingService, api: Api, accountId: string, devices: Equipped[]): Promise<void> {
  const { device } = await api.call<{ device: { deviceTemplateId: string } }>('GET', `/devices/${devices[0]?.id}`);
  const made = await api.call<{ firmwarePackage: { id: string } }>('POST', '/firmware/packages', {
    ...{ accountId, deviceTemplateId: device.deviceTemplateId, name: 'Bench', firmwareVersion: '2' },
  });
  const path = `/firmware/packages/${made.firmwarePackage.id}`;
  const uploaded = await fetch(`${url}${path}/files/app.bin`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${api.token}`, 'content-type': 'application/octet-stream' },
    body: randomBytes(fileBytes),
  });
  const { firmwarePackage } = (await uploaded.json()) as { firmwarePackage: { id: string; version: string } };
  await api.call('POST', `${path}/publish`, undefined, firmwarePackage.version);
  await api.call('POST', '/firmware/rollouts', {
    accountId,
    firmwarePackageId: firmwarePackage.id,
    target: { deviceIds: devices.map(({ id }) => id) },
  });
}

/** The signed URL of the offer, which arises a moment after the rollout. */
async function urlOf({ url }: ServingService, { id, secret }: Equipped): Promise<string> {
  const authorization = `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  for (;;) {
    const response = await fetch(`${url}/firmware/offer`, { headers: { authorization } });
    const { files } = (await response.json()) as { files?: Array<{ url: string }> };
    if (files?.[0]) return files[0].url;
    await sleep(50);
  }
}

/** What GETs take while `work` runs, and the most memory meanwhile. */
async function during(service: ServingService, { token }: Api, victim: string, work: () => Promise<unknown>) {
  const asking = startAsking(victim, token);
  let most = service.rss();
  const timer = setInterval(() => {
    most = Math.max(most, service.rss());
  }, 50);
  const from = performance.now();
  await work();
  const seconds = (performance.now() - from) / 1000;
  clearInterval(timer);
  return { times: await asking.stop(), most, seconds };
}
