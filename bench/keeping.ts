/** What it costs the writer to stay below the cap: the same points into a store without one, and into one that is full. */
import { join } from 'node:path';
import { pino } from 'pino';
import { MessageStore, type Point } from '../db/messages/store.ts';
import { Registry } from '../db/registry/index.ts';
import { readConfig } from '../src/config.ts';
import { Keeping } from '../src/messages/keeping.ts';
import { Readers } from '../src/threads/readers.ts';
import { at, type Row } from './figures.ts';
import type { Bench } from './sizes.ts';

const batch = 500;
/** Batches on their way at once, as of so many publishers. */
const lanes = 8;
const mebibyte = 1024 * 1024;
/** Series, and how far apart their points are in milliseconds: few long ones, many short ones. */
const shapes = [
  { series: 100, apart: 1 },
  { series: 20_000, apart: 60_000 },
];

interface Shape {
  series: number;
  apart: number;
  cap: number;
  /** Milliseconds. */
  duration: number;
}

interface Result {
  pointsPerSecond: number;
  p99: number;
  bytes: number;
}

/** Points a second that were on disk, the 99th percentile of waiting for that, what is in use. */
export async function measureKeeping({ size, directory }: Bench): Promise<Row[]> {
  const empty = await directory(0);
  const rows: Row[] = [];
  for (const [index, { series, apart }] of shapes.entries()) {
    const common = { series, apart, duration: 2 * size.duration };
    const free = await run(join(empty, `free-${index}`), { ...common, cap: 0 });
    // A quarter of what came in without a cap: it is reached early, and all that follows has room made for it.
    const cap = Math.max(4 * mebibyte, Math.round(free.bytes / 4));
    const full = await run(join(empty, `full-${index}`), { ...common, cap });
    console.log(`${series} series`);
    console.log(`  without a cap        ${show(free)}`);
    console.log(`  cap of ${(cap / mebibyte).toFixed(1).padStart(5)} MiB     ${show(full)}`);
    rows.push({
      what: `Points stored while the cap is reached, ${series} series`,
      ours: full.pointsPerSecond,
      unit: '/s',
      peer: { name: 'without a cap', value: free.pointsPerSecond },
    });
  }
  return rows;
}

function show({ pointsPerSecond, p99, bytes }: Result): string {
  const figures = [`${Math.round(pointsPerSecond)} points/s`, `p99 ${p99.toFixed(1)} ms`];
  return [...figures, `${(bytes / mebibyte).toFixed(1)} MiB in use`].join('   ');
}

async function run(directory: string, shape: Shape): Promise<Result> {
  const { series, apart, cap, duration } = shape;
  const log = pino({ level: 'warn' });
  const config = readConfig({ SLIPWAY_DATA_DIR: directory, SLIPWAY_MESSAGES_MAX_BYTES: String(cap) });
  const messages = await MessageStore.open(directory, { log });
  const registry = await Registry.open(directory);
  const readers = new Readers(join(directory, 'registry.db'));
  const keeping = await Keeping.start({ config, messages, registry, readers, log });
  const waits: number[] = [];
  const begun = performance.now();
  const end = begun + duration;
  let next = 0;
  let stored = 0;
  const publish = async () => {
    while (performance.now() < end) {
      const deviceId = `device ${next % series}`;
      const first = Math.floor(next / series) * apart;
      next += 1;
      const size = series > 1000 ? 1 : batch;
      const points = Array.from({ length: size }, (_, n): Point => {
        const time = Date.now() - 1_000_000_000 + (first * size + n * apart);
        return { time, category: 'temperature', numericValue: n / 10, stringValue: null };
      });
      const sent = performance.now();
      await append(messages, deviceId, points);
      waits.push(performance.now() - sent);
      stored += size;
    }
  };
  await Promise.all(Array.from({ length: series > 1000 ? lanes * 200 : lanes }, publish));
  const taken = (performance.now() - begun) / 1000;
  const bytes = messages.size;
  await keeping.stop();
  await readers.close();
  await messages.close();
  await registry.close();
  return { pointsPerSecond: stored / taken, p99: at(waits, 0.99), bytes };
}

function append(messages: MessageStore, deviceId: string, points: Point[]): Promise<void> {
  const key = { accountId: 'account', deviceId, channelTemplateId: 'channel' };
  return new Promise((resolve, reject) => messages.append(key, points, (error) => (error ? reject(error) : resolve())));
}
