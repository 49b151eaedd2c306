/** Time-series of many points: pages, the latest, rollups, a month as CSV while devices publish. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { MessageStore, type Point } from '../db/messages/store.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { logIn } from './api.ts';
import { type Equipped, equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import { flood } from './flood.ts';
import { getBytes, HttpLine } from './http-load.ts';
import { openLink } from './link.ts';
import type { ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';

const day = 86_400_000;
const month = 31;
/** A month of one-second data, for one of so many devices; the others share what is left. */
const longSeries = month * 86_400;
const deviceCount = 100;
const end = Date.UTC(2026, 1, 1);
/** Points in one call to the store. */
const atOnce = 5000;
/** Publishing devices, what each has on its way, and milliseconds until they run smoothly. */
const publishers = 20;
const window = 50;
const warmUp = 3000;
/** Asks before the first that counts. */
const warmUpAsks = 3;
/** How many times as often the page is asked for whose CPU time is measured: the kernel counts it in steps of 10 ms. */
const thousandTimes = 5;
const served = Buffer.from('HTTP/1.1 200');
/** How often what takes seconds is asked. */
const slowAsks = 5;

export async function measureSeries({ size, directory: lend, serve }: Bench): Promise<Row[]> {
  const directory = await lend(1000);
  const devices = await equip(directory, deviceCount);
  const [long] = devices;
  if (!long) throw new Error('no device');
  const { start, count } = await fill(directory, devices, size.points);
  const service = await serve(directory, { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' });
  try {
    const { token } = await logIn(service, long.accountId);
    const port = Number(new URL(service.url).port);
    const path = `/api/v4/data/${long.topic('temperature')}`;
    const iso = (time: number) => new Date(time).toISOString();
    const all = `startDateTime=${iso(start)}&endDateTime=${iso(end)}`;
    const somewhere = () => {
      const from = start + Math.floor((Math.random() * Math.max(0, end - start - day)) / 60_000) * 60_000;
      return `startDateTime=${iso(from)}&endDateTime=${iso(from + day)}`;
    };
    const rows: Row[] = [];
    const line = new HttpLine(port);
    const measure = async (what: string, figure: number | undefined, next: () => string, asks = size.asks) => {
      const times: number[] = [];
      let cpu = 0;
      for (let n = -warmUpAsks; n < asks; n += 1) {
        if (n === 0) cpu = service.cpu();
        const from = performance.now();
        const answer = await line.ask(getBytes(next(), token));
        if (n >= 0) times.push(performance.now() - from);
        if (!answer.subarray(0, 12).equals(served)) throw new Error(answer.toString('utf8', 0, 500));
      }
      const perAsk = ((service.cpu() - cpu) / asks) * 1000;
      console.log(`  ${described(times)}  ${perAsk.toFixed(2)} ms of CPU  ${what}`);
      const below = figure !== undefined && { figure: { below: figure } };
      rows.push({ what: `${what}, p95`, ours: at(times, 0.95), unit: 'ms', ...below });
      return { median: median(times), perAsk };
    };
    const thousand = `1,000 points out of ${count.toLocaleString('en')}`;
    const next = () => `${path}?${somewhere()}&pageSize=1000`;
    const { median: p50, perAsk } = await measure(thousand, 3, next, size.asks * thousandTimes);
    rows.push({ what: `${thousand}, p50`, ours: p50, unit: 'ms' });
    rows.push({ what: 'CPU time of the server for it', ours: perAsk, unit: 'ms' });
    await measure('Latest point of a series', 2, () => `${path}/latest?pageSize=1`);
    await measure('Latest of a rare category', 2, () => `${path}/latest?pageSize=1&category=rare`);
    await measure('Latest 10 of a rare category', 2, () => `${path}/latest?pageSize=10&category=rare`);
    await measure('Latest of a category long gone', 2, () => `${path}/latest?pageSize=1&category=first`);
    await measure('A day by minute', 50, () => `${path}?${somewhere()}&rollup=1m&category=t`);
    await measure('A day by minute, three categories', 50, () => `${path}?${somewhere()}&rollup=1m`);
    const monthly = () => `${path}?${all}&rollup=1h&timezone=Europe/Berlin`;
    await measure('A month by hour, Berlin', undefined, monthly, slowAsks);
    line.end();
    const csv = `${new URL(service.url).origin}${path}?${all}&format=csv`;
    rows.push(...(await measureExport(service, devices.slice(1, 1 + publishers), csv, token, size.duration)));
    return rows;
  } finally {
    await service.stop();
  }
}

/** The long series, one point a second in a handful of categories, and as many points in the others as are left. */
async function fill(
  directory: string,
  devices: readonly Equipped[],
  points: number,
): Promise<{ start: number; count: number }> {
  const file = openSqlite(join(directory, 'registry.db'), { readonly: true });
  const channelOf = file
    .prepare<[string], string>(
      `SELECT "id" FROM "channelTemplates" WHERE "name" = 'temperature'
       AND "entityId" = (SELECT "deviceTemplateId" FROM "devices" WHERE "id" = ?)`,
    )
    .pluck();
  const keys = devices.map(({ accountId, id }) => ({
    accountId,
    deviceId: id,
    channelTemplateId: channelOf.get(id) ?? '',
  }));
  file.close();
  const began = performance.now();
  const messages = await MessageStore.open(directory, { log: console });
  const longCount = Math.min(longSeries, points);
  const perOther = Math.ceil((points - longCount) / (devices.length - 1));
  const start = end - longCount * 1000;
  const write = (key: (typeof keys)[number], batch: Point[]) =>
    new Promise<void>((resolve, reject) => messages.append(key, batch, (error) => (error ? reject(error) : resolve())));
  const categoryAt = (n: number) => (n < 10 ? 'first' : n % 100_000 === 0 ? 'rare' : n % 10 === 0 ? 'u' : 't');
  const series = async (key: (typeof keys)[number] | undefined, length: number, pace: number) => {
    if (!key) return;
    for (let done = 0; done < length; done += atOnce) {
      const batch = Array.from({ length: Math.min(atOnce, length - done) }, (_, n) => ({
        time: start + (done + n) * pace,
        category: categoryAt(done + n),
        numericValue: Math.round(2000 * Math.sin((done + n) / 5000) + Math.random() * 50) / 100,
        stringValue: null,
      }));
      await write(key, batch);
    }
  };
  const [long, ...others] = keys;
  await series(long, longCount, 1000);
  await Promise.all(others.map((key) => series(key, perOther, 30_000)));
  await messages.close();
  const count = longCount + perOther * others.length;
  const seconds = (performance.now() - began) / 1000;
  const bytes = statSync(join(directory, 'messages.db')).size;
  console.log(`  ${count} points in ${seconds.toFixed(0)} s, ${(bytes / count).toFixed(1)} bytes a point\n`);
  return { start, count };
}

/** The rate of acknowledged messages alone, and while a month is read as CSV; the memory meanwhile. */
async function measureExport(
  service: ServingService,
  devices: readonly Equipped[],
  url: string,
  token: string,
  duration: number,
): Promise<Row[]> {
  const floods = await Promise.all(
    devices.map(async ({ id, secret, topic }) => {
      const link = await openLink({ port: service.mqttPort }, { username: id, password: secret, clientId: id });
      return { link, ...flood(link, topic('temperature'), window) };
    }),
  );
  const acknowledged = () => floods.reduce((sum, { count }) => sum + count(), 0);
  const during = async <T>(work: Promise<T>) => {
    const [before, from] = [acknowledged(), performance.now()];
    const done = await work;
    const seconds = (performance.now() - from) / 1000;
    return { done, seconds, perSecond: (acknowledged() - before) / seconds };
  };
  await pause(warmUp);
  const alone = await during(pause(duration));
  const memory = service.rss();
  let highest = memory;
  const looking = setInterval(() => {
    highest = Math.max(highest, service.rss());
  }, 100);
  const meanwhile = await during(read(url, token));
  clearInterval(looking);
  for (const { link } of floods) link.socket.destroy();
  console.log(
    `\n  a month as CSV: ${Math.round(meanwhile.done / 2 ** 20)} MB in ${meanwhile.seconds.toFixed(1)} s; memory ${memory} MB before, ${highest} MB at most`,
  );
  return [
    {
      what: 'QoS 1 stored while a month is read as CSV',
      ours: meanwhile.perSecond,
      unit: 'msg/s',
      peer: { name: 'alone', value: alone.perSecond },
      figure: { ofPeer: 0.8 },
    },
    { what: 'Memory that this adds', ours: highest - memory, unit: 'MB' },
  ];
}

/** Bytes. */
async function read(url: string, token: string): Promise<number> {
  const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
  let bytes = 0;
  for await (const chunk of answer.body ?? []) bytes += chunk.length;
  return bytes;
}
