/** Time-series of many points: pages, the latest, rollups, a month as CSV while devices publish. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import type { Point, SeriesKey } from '../db/series.js';
import { readConfig } from '../src/config.js';
import { type Server, startServer } from '../src/server.js';

const password = 'a password for the bench';
const rounds = 100;
const day = 86_400_000;
const month = 31;
/** Publishing devices, and how long a rate is measured, in milliseconds. */
const publishers = 20;
const measured = 10_000;
/** Points in one call to the store. */
const atOnce = 5000;

/** How many points the long series has: a month of one-second data. */
const longSeries = month * 86_400;

export async function measureSeries(directory: string, pointCount: number): Promise<void> {
  const env = {
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: '0',
    SLIPWAY_MQTT_PORT: '0',
    SLIPWAY_LOG_LEVEL: 'warn',
    SLIPWAY_ADMIN_EMAIL: 'admin@bench.example',
    SLIPWAY_ADMIN_PASSWORD: password,
  };
  const server = await startServer(readConfig(env));
  try {
    const account = await newAccount(server);
    const end = Date.UTC(2026, 0, 1) + month * day;
    const start = end - month * day;
    await fill(server, account, start, pointCount);
    const topic = account.topicOf(account.devices[0]?.id ?? '');
    const path = `/api/v4/data/${topic}`;

    const iso = (time: number) => new Date(time).toISOString();
    const somewhere = (span: number) => start + Math.floor((Math.random() * (end - start - span)) / 60_000) * 60_000;
    const range = (span: number) => {
      const from = somewhere(span);
      return `startDateTime=${iso(from)}&endDateTime=${iso(from + span)}`;
    };
    const all = `startDateTime=${iso(start)}&endDateTime=${iso(end)}`;
    const get = account.get;
    await measure('1,000 points of one series', 5, () => get(`${path}?${range(day)}&pageSize=1000`));
    await measure('latest, one point', 2, () => get(`${path}/latest?pageSize=1`));
    await measure('latest of a rare category', 2, () => get(`${path}/latest?pageSize=1&category=rare`));
    await measure('latest 10 of a rare category', 2, () => get(`${path}/latest?pageSize=10&category=rare`));
    await measure('latest of a category long gone', 2, () => get(`${path}/latest?pageSize=1&category=first`));
    await measure('a day by minute', 50, () => get(`${path}?${range(day)}&rollup=1m&category=t`));
    await measure('a day by minute, three categories', 50, () => get(`${path}?${range(day)}&rollup=1m`));
    await measure(
      'a month by hour, Berlin',
      undefined,
      () => get(`${path}?${all}&rollup=1h&timezone=Europe/Berlin`),
      5,
    );
    await measureExport(server, account, `${path}?${all}&format=csv`);
  } finally {
    await server.close();
  }
}

type Account = Awaited<ReturnType<typeof newAccount>>;

/** A hundred devices with a stored channel; the first one's series is the long one. */
async function newAccount(server: Server) {
  const { id: accountId } = await server.ctx.registry.query
    .selectFrom('accounts')
    .select('id')
    .executeTakeFirstOrThrow();
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${server.url}/api/v1${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ accountId, ...body }),
    });
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    return (await answer.json()) as Record<string, Record<string, string> & string>;
  };
  const { jwt } = await post('/auth/login-user', { emailAddress: 'admin@bench.example', password });
  headers.authorization = `Bearer ${jwt}`;
  const { deviceTemplate } = await post('/devices/templates', { name: 'Bench' });
  const channel = { entityId: deviceTemplate?.id, entityType: 'deviceTemplate', name: 'data' };
  const { channelTemplate } = await post('/channels/templates', { ...channel, persistenceType: 'timeSeries' });
  const devices: Array<{ id: string; secret: string }> = [];
  for (let n = 0; n < 100; n += 1) {
    const { device } = await post('/devices', { serialNumber: `${n}`, deviceTemplateId: deviceTemplate?.id });
    const id = device?.id ?? '';
    const { mqttCredential } = await post('/access/mqtt-credentials', { entityId: id, entityType: 'device' });
    devices.push({ id, secret: mqttCredential?.secret ?? '' });
  }
  const get = async (path: string) => {
    const answer = await fetch(server.url + path, { headers });
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    await answer.arrayBuffer();
  };
  const keyOf = (deviceId: string): SeriesKey => ({
    accountId,
    deviceId,
    channelTemplateId: channelTemplate?.id ?? '',
  });
  const topicOf = (id: string) => `${server.ctx.config.topicRoot}/${accountId}/d/${id}/data`;
  return { devices, get, keyOf, topicOf, authorization: headers.authorization };
}

/** The long series, one point a second in a handful of categories, and as many points in the others as are left. */
async function fill({ ctx }: Server, { devices, keyOf }: Account, start: number, pointCount: number): Promise<void> {
  const began = performance.now();
  const [long, ...others] = devices;
  const perOther = Math.max(0, Math.ceil((pointCount - longSeries) / others.length));
  const categoryAt = (n: number) => (n < 10 ? 'first' : n % 100_000 === 0 ? 'rare' : n % 10 === 0 ? 'u' : 't');
  const write = (deviceId: string, points: Point[]) =>
    new Promise<void>((resolve, reject) =>
      ctx.messages.append(keyOf(deviceId), points, (error) => (error ? reject(error) : resolve())),
    );
  const series = async (deviceId: string, count: number, pace: number) => {
    for (let at = 0; at < count; at += atOnce) {
      const points = Array.from({ length: Math.min(atOnce, count - at) }, (_, n) => ({
        time: start + (at + n) * pace,
        category: categoryAt(at + n),
        numericValue: Math.round(2000 * Math.sin((at + n) / 5000) + Math.random() * 50) / 100,
        stringValue: null,
      }));
      await write(deviceId, points);
    }
  };
  await series(long?.id ?? '', longSeries, 1000);
  await Promise.all(others.map(({ id }) => series(id, perOther, 30_000)));
  const points = longSeries + perOther * others.length;
  const seconds = (performance.now() - began) / 1000;
  const bytes = statSync(join(ctx.config.dataDir, 'messages.db')).size;
  console.log(`${points} points in ${seconds.toFixed(0)} s, ${Math.round(points / seconds)} a second`);
  console.log(`${(bytes / points).toFixed(1)} bytes a point (figure: about 30)\n`);
}

async function measure(title: string, figure: number | undefined, work: () => Promise<void>, times = rounds) {
  const taken: number[] = [];
  const delay = monitorEventLoopDelay({ resolution: 1 });
  for (let round = -3; round < times; round += 1) {
    if (round === 0) delay.enable();
    const from = performance.now();
    await work();
    if (round >= 0) taken.push(performance.now() - from);
  }
  delay.disable();
  taken.sort((a, b) => a - b);
  const at = (share: number) => taken[Math.min(taken.length - 1, Math.floor(taken.length * share))] ?? 0;
  const verdict = figure === undefined || at(0.95) < figure ? '  ' : '! ';
  const wanted = figure === undefined ? '' : `  (figure: p95 < ${figure} ms)`;
  const blocked = (delay.max / 1e6).toFixed(0);
  console.log(
    `${verdict}p50 ${at(0.5).toFixed(1).padStart(8)}  p95 ${at(0.95).toFixed(1).padStart(8)}  loop held ${blocked.padStart(4)} ms  ${title}${wanted}`,
  );
}

/** The rate of acknowledged messages alone, and while a month is read as CSV; the memory meanwhile. */
async function measureExport(server: Server, { devices, topicOf, authorization }: Account, path: string) {
  const load = new URL('./series-load.js', import.meta.url);
  const publishing = fork(load, ['publish'], { execArgv: [] });
  const reading = fork(load, ['read'], { execArgv: [] });
  try {
    const clients = devices.slice(1, 1 + publishers).map(({ id, secret }) => ({ id, secret, topic: topicOf(id) }));
    publishing.send({ url: `mqtt://127.0.0.1:${server.mqttPort}`, clients });
    await once(publishing, 'message');
    await pause(3000);
    const alone = await rateOf(publishing, measured);
    const memory = process.memoryUsage().rss;
    let highest = memory;
    const looking = setInterval(() => {
      highest = Math.max(highest, process.memoryUsage().rss);
    }, 100);
    const began = performance.now();
    reading.send({ url: server.url + path, authorization });
    const done = once(reading, 'message') as Promise<[{ bytes: number }]>;
    const before = await acknowledged(publishing);
    const [{ bytes }] = await done;
    const seconds = (performance.now() - began) / 1000;
    const beside = ((await acknowledged(publishing)) - before) / seconds;
    clearInterval(looking);
    const megabytes = (number: number) => Math.round(number / 1024 / 1024);
    console.log(`\nA month as CSV: ${megabytes(bytes)} MB in ${seconds.toFixed(1)} s`);
    console.log(`memory ${megabytes(memory)} MB before, ${megabytes(highest)} MB at most`);
    const fall = Math.round((1 - beside / alone) * 100);
    console.log(
      `${fall < 20 ? '  ' : '! '}${Math.round(alone)} acknowledged messages a second alone, ${Math.round(beside)} meanwhile: ${fall} % less (figure: < 20 %)`,
    );
  } finally {
    publishing.kill();
    reading.kill();
  }
}

async function rateOf(publishing: ChildProcess, time: number): Promise<number> {
  const before = await acknowledged(publishing);
  await pause(time);
  return ((await acknowledged(publishing)) - before) / (time / 1000);
}

async function acknowledged(publishing: ChildProcess): Promise<number> {
  publishing.send('count');
  const [count] = (await once(publishing, 'message')) as [number];
  return count;
}
