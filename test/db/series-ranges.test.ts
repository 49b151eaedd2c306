import { deepStrictEqual } from 'node:assert';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import type { Test } from 'tap';
import { SeriesMarks } from '../../db/messages/series/marks.ts';
import { aggregates, type Sum } from '../../db/messages/series/sums.ts';
import {
  everything,
  MessageStore,
  type Point,
  type Range,
  type SeriesKey,
  type StoredPoint,
} from '../../db/messages/store.ts';
import { migrate } from '../../db/migrations/index.ts';
import { messageMigrations } from '../../db/migrations/messages.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T12:00:00.000Z');
const day = 86_400_000;

let store: MessageStore;
let directory: string;
const reopen = async () => {
  await store?.close();
  store = await MessageStore.open(directory, { log: { error() {} } });
};
t.before(async () => {
  directory = t.testdir();
  await reopen();
});
t.teardown(() => store.close());

let device = 0;
function newKey(): SeriesKey {
  device += 1;
  return { accountId: 'account', deviceId: `device ${device}`, channelTemplateId: 'channel' };
}

function append(key: SeriesKey, points: Point[]): Promise<void> {
  return new Promise((resolve, reject) => store.append(key, points, (error) => (error ? reject(error) : resolve())));
}

const pointOf = (time: number, category: string, numericValue: number | null = 1): Point => ({
  time,
  category,
  numericValue,
  stringValue: numericValue === null ? 'text' : null,
});

/** Every page of a category, each asked for behind the last point of the one before. */
async function pages(key: SeriesKey, range: Omit<Range, 'after'>, category: string): Promise<StoredPoint[]> {
  const all: StoredPoint[] = [];
  for (let after: StoredPoint | undefined; ; after = all.at(-1)) {
    const page = await store.series.page(key, { ...range, ...(after && { after }) }, category);
    all.push(...page);
    if (page.length < range.limit) return all;
  }
}

/** Points as devices send them: at a pace, in bursts, with pauses, some of them late. */
const history = fc
  .array(
    fc.record({
      pause: fc.oneof(fc.constantFrom(0, 1000, 60_000, 30 * day), fc.integer({ min: -5 * day, max: 5 * day })),
      pace: fc.constantFrom(0, 1, 1000, 3_600_000),
      count: fc.integer({ min: 1, max: 150 }),
      categories: fc.integer({ min: 1, max: 5 }),
      value: fc.option(fc.integer({ min: -100, max: 100 })),
    }),
    { minLength: 1, maxLength: 8 },
  )
  .map((parts) => {
    let time = start;
    return parts.map(({ pause, pace, count, categories, value }) => {
      time += pause;
      return Array.from({ length: count }, (_, n) => {
        time += pace;
        return pointOf(time, `c${n % categories}`, value === null ? null : value + n / 4);
      });
    });
  });

const byTime = (points: Point[]) => points.toSorted((a, b) => a.time - b.time);

t.test('a category is read as if all points were gone through, whatever came when', async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(
      history,
      fc.integer({ min: 0, max: 5 }),
      fc.integer({ min: 1, max: 40 }),
      fc.tuple(fc.integer({ min: -40, max: 40 }), fc.integer({ min: 0, max: 40 })),
      async (batches, at, limit, [offset, span]) => {
        const key = newKey();
        for (const batch of batches) await append(key, batch);
        run += 1;
        if (run % 20 === 0) await reopen();
        const category = `c${at}`;
        for (const { from, to } of [everything, { from: start + offset * day, to: start + (offset + span) * day }]) {
          const expected = byTime(batches.flat()).filter(
            (point) => point.category === category && point.time >= from && point.time < to,
          );
          const strip = (points: StoredPoint[]) => points.map(({ sequence: _, ...point }) => point);
          deepStrictEqual(strip(await pages(key, { from, to, order: 'asc', limit }, category)), expected);
          const descending = await pages(key, { from, to, order: 'desc', limit }, category);
          deepStrictEqual(strip(descending.toReversed()), expected);
        }
      },
    ),
    { numRuns: 20 },
  );
});

/** What SQL is to find, found in the plain way. */
function sumsOf(points: Point[], edges: number[]): Sum[] {
  const sums = new Map<string, Sum>();
  let bucket = 0;
  for (const { time, category, numericValue } of byTime(points)) {
    while ((edges[bucket + 1] ?? Number.POSITIVE_INFINITY) <= time) bucket += 1;
    const name = `${bucket}/${category}`;
    const none = { count: 0, numbers: 0, sum: null, min: null, max: null, first: null, last: null };
    const sum: Sum = sums.get(name) ?? { bucket, category, ...none };
    sums.set(name, sum);
    sum.count += 1;
    if (numericValue === null) continue;
    sum.numbers += 1;
    sum.sum = (sum.sum ?? 0) + numericValue;
    sum.min = Math.min(sum.min ?? numericValue, numericValue);
    sum.max = Math.max(sum.max ?? numericValue, numericValue);
    sum.first ??= numericValue;
    sum.last = numericValue;
  }
  return [...sums.values()];
}
const inOrder = (sums: Sum[] = []) =>
  sums.toSorted((a, b) => a.bucket - b.bucket || (a.category < b.category ? -1 : 1));

t.test('sums are those of the points of each bucket and category', async () => {
  await fc.assert(
    fc.asyncProperty(
      history,
      fc.uniqueArray(fc.integer({ min: -40 * 24, max: 40 * 24 }), { minLength: 2, maxLength: 60 }),
      fc.option(fc.integer({ min: 0, max: 4 })),
      async (batches, hours, at) => {
        const key = newKey();
        for (const batch of batches) await append(key, batch);
        const edges = hours.map((hour) => start + hour * 3_600_000).toSorted((a, b) => a - b);
        const [from, to] = [(edges[0] ?? 0) + 7, (edges.at(-1) ?? 0) - 7];
        const category = at === null ? undefined : `c${at}`;
        const within = batches
          .flat()
          .filter(({ time, ...point }) => time >= from && time < to && (category ?? point.category) === point.category);
        const query = { from, to, edges, wanted: aggregates, limit: 10_000, ...(category && { category }) };
        deepStrictEqual(inOrder(await store.series.sums(key, query)), inOrder(sumsOf(within, edges)));
      },
    ),
    { numRuns: 20 },
  );
});

/** The last part has one category, and more than are asked for come before it. */
const manyCategories = [
  { count: 3000, first: 0, categories: 6 },
  { count: 3000, first: 6, categories: 6 },
  { count: 3000, first: 11, categories: 1 },
];

/** Long stretches, each with categories of its own: few of them, or many. */
const stretches = fc.array(
  fc.record({
    count: fc.integer({ min: 500, max: 5000 }),
    first: fc.nat(9),
    categories: fc.integer({ min: 1, max: 6 }),
  }),
  { minLength: 1, maxLength: 4 },
);

t.test(
  'sums of a long series are those of its points, however many categories it has and wherever they are',
  async () => {
    await fc.assert(
      fc.asyncProperty(stretches, fc.integer({ min: 1, max: 3600 }), async (parts, width) => {
        const key = newKey();
        const points = parts
          .flatMap(({ count, first, categories }) => Array.from({ length: count }, (_, n) => first + (n % categories)))
          .map((category, n) => pointOf(start + n * 1000, `c${category}`, n % 7 ? n / 4 : null));
        await append(key, points);
        const to = start + points.length * 1000;
        const edges = [start];
        while ((edges.at(-1) ?? to) < to) edges.push((edges.at(-1) ?? to) + width * 1000);
        const query = { from: start, to, edges, wanted: aggregates, limit: 100_000 };
        deepStrictEqual(inOrder(await store.series.sums(key, query)), inOrder(sumsOf(points, edges)));
      }),
      { numRuns: 6, examples: [[manyCategories, 60]] },
    );
  },
);

t.test('a bucket sums up to the same, to the last bit, wherever the range begins', async (t) => {
  const key = newKey();
  const points = Array.from({ length: 20_000 }, (_, n) => pointOf(start + n * 1000, `c${n % 2}`, Math.sin(n)));
  await append(key, points);
  const to = start + 20_000_000;
  const edges = Array.from({ length: 287 }, (_, n) => start + n * 70_000);
  const from = async (first: number) => {
    const query = { from: edges[first] ?? to, to, edges, wanted: aggregates, limit: 1000 };
    return inOrder(await store.series.sums(key, query)).filter(({ bucket }) => bucket >= 90);
  };
  const expected = await from(0);
  t.equal(expected.length, 2 * 196);
  for (const first of [1, 7, 33, 89]) t.strictSame(await from(first), expected);
});

t.test('sums of many points of one bucket, or of one moment, hold them all', async (t) => {
  const key = newKey();
  const points = Array.from({ length: 15_000 }, (_, n) =>
    pointOf(start + Math.min(n, 9000), n % 3 ? 'a' : 'b', n % 100),
  );
  await append(key, points);
  const edges = [start - day, start + day];
  const query = { from: start - 1, to: start + day, edges, wanted: aggregates };
  t.strictSame(inOrder(await store.series.sums(key, { ...query, limit: 2 })), inOrder(sumsOf(points, edges)));
  t.equal(await store.series.sums(key, { ...query, limit: 1 }), undefined, 'more than the limit are refused');
  t.strictSame(await store.series.sums(newKey(), { ...query, limit: 1 }), []);
});

t.test('many categories of one moment are summed up in their turn, each point looked at once', async (t) => {
  const key = newKey();
  for (let part = 0; part < 5; part += 1)
    await append(
      key,
      Array.from({ length: 5000 }, (_, n) => pointOf(start, `c${n % 4000}`, n % 7 ? part * 5000 + n : null)),
    );
  await append(key, [pointOf(start + 1, 'c1', 5), pointOf(start - 1, 'c2', 6)]);
  const points = [
    pointOf(start - 1, 'c2', 6),
    ...Array.from({ length: 25_000 }, (_, n) => pointOf(start, `c${(n % 5000) % 4000}`, (n % 5000) % 7 ? n : null)),
    pointOf(start + 1, 'c1', 5),
  ];
  const edges = [start - day, start + day];
  let turns = 0;
  let over = false;
  const others = () => {
    turns += 1;
    if (!over) setImmediate(others);
  };
  setImmediate(others);
  const sums = await store.series.sums(key, {
    from: start - 1,
    to: start + day,
    edges,
    wanted: aggregates,
    limit: 5000,
  });
  over = true;
  t.strictSame(inOrder(sums), inOrder(sumsOf(points, edges)));
  t.ok(turns > 1, `${turns} turns`);
});

t.test('somebody else has a turn while a long series is summed up', async (t) => {
  const key = newKey();
  const points = Array.from({ length: 60_000 }, (_, n) => pointOf(start + n * 1000, `c${n % 3}`));
  await append(key, points);
  let turns = 0;
  const others = setInterval(() => {
    turns += 1;
  }, 1);
  const edges = [start, start + 60_000_000];
  await store.series.sums(key, { from: start, to: start + 60_000_000, edges, wanted: ['avg'], limit: 10 });
  clearInterval(others);
  t.ok(turns > 1, `${turns} turns`);
});

/** What the marks of a series make a reader of a category go through. */
function storedMarks(t: Test, { deviceId }: SeriesKey) {
  const file = new Sqlite(join(directory, 'messages.db'), { readonly: true });
  t.teardown(() => file.close());
  const one = (sql: string, ...values: unknown[]) =>
    file
      .prepare<unknown[], number>(sql)
      .pluck()
      .get(...values) ?? 0;
  const series = one('SELECT "id" FROM "series" WHERE "deviceId" = ?', deviceId);
  const inMarks = `"points" p JOIN "categoryMarks" m ON m."series" = p."series" AND p."time" >= m."from" AND p."time" < m."to"`;
  return {
    marks: one('SELECT count(*) FROM "categoryMarks" WHERE "series" = ?', series),
    throughPoints: (category: string) =>
      one(
        `SELECT count(*) FROM ${inMarks} JOIN "categories" c ON c."id" = m."category" WHERE p."series" = ? AND c."text" = ?`,
        series,
        category,
      ),
    outside: one(
      `SELECT count(*) FROM "points" p WHERE p."series" = ? AND NOT EXISTS (SELECT 1 FROM "categoryMarks" m
       WHERE m."series" = p."series" AND m."category" = p."category" AND m."from" <= p."time" AND m."to" > p."time")`,
      series,
    ),
    overlaps: one(
      `SELECT count(*) FROM "categoryMarks" a JOIN "categoryMarks" b
       ON b."series" = a."series" AND b."category" = a."category" AND b."from" > a."from" AND b."from" < a."to"
       WHERE a."series" = ?`,
      series,
    ),
  };
}

t.test('a rare category is found among few points, and most points need no mark', async (t) => {
  const key = newKey();
  const each = (count: number, from: number, pace: number) =>
    Array.from({ length: count }, (_, n) => pointOf(from + n * pace, n % 5000 === 4999 ? 'rare' : `c${n % 3}`));
  // Slow, then fast, then after a pause as fast: the first marks must not reach far into what follows.
  await append(key, each(6000, start, day / 24));
  await append(key, each(20_000, start + 251 * day, 1000));
  await append(key, each(20_000, start + 260 * day, 1000));
  const { marks, throughPoints, outside, overlaps } = storedMarks(t, key);
  t.equal(outside, 0);
  t.equal(overlaps, 0);
  t.ok(marks < 46_000 * 0.06, `${marks} marks of 46,000 points`);
  t.ok(throughPoints('rare') < 9 * 300, `${throughPoints('rare')} points to find 9`);
});

/** Statements that a series' marks have cost, by message, each of thousands of points of one moment. */
function markCosts(t: Test, messages: Array<Array<{ category: number; time: number }>>): number[] {
  let statements = 0;
  const file = new Sqlite(join(directory, 'messages.db'), { verbose: () => (statements += 1) });
  t.teardown(() => file.close());
  const marks = new SeriesMarks(file);
  device += 1;
  const series = 2_000_000 + device;
  file.exec('BEGIN');
  const costs = messages.map((points) => {
    statements = 0;
    for (const { category, time } of points) marks.add(series, category, time);
    return statements;
  });
  file.exec('ROLLBACK');
  return costs;
}

t.test('messages of thousands of categories cost few statements for their marks', (t) => {
  const messages = Array.from({ length: 25 }, (_, n) =>
    Array.from({ length: 4900 }, (_, category) => ({ category, time: start + n * 100 })),
  );
  const costs = markCosts(t, messages);
  t.ok((costs[0] ?? 0) < 5000, `${costs[0]} statements for the first, all of whose categories are new`);
  const most = Math.max(...costs.slice(10));
  t.ok(most < 4000, `${most} statements for a later one, at most`);
  t.end();
});

t.test('the points of a message get marks in the order of time, whatever order they came in', async (t) => {
  const key = newKey();
  const descending = Array.from({ length: 3000 }, (_, n) => pointOf(start - (n >> 1) * 1000, `c${n % 2}`, n));
  await append(key, descending);
  const { marks, outside } = storedMarks(t, key);
  t.equal(outside, 0);
  t.ok(marks < 300, `${marks} marks of 3,000 points`);
  const stored = await store.series.page(key, { ...everything, order: 'asc', limit: 3000 });
  t.strictSame(
    stored.map(({ numericValue }) => numericValue),
    byTime(descending).map(({ numericValue }) => numericValue),
  );
  const first = (stored[0]?.sequence ?? 0) - 2998;
  t.strictSame(
    stored.map(({ sequence }) => sequence),
    byTime(descending).map(({ numericValue }) => first + Number(numericValue)),
    'their sequences are those in which they came',
  );
});

t.test('marks go with the points, and are there after a transaction that failed', async (t) => {
  const key = newKey();
  await append(
    key,
    Array.from({ length: 30_000 }, (_, n) => pointOf(start + n * 1000, `c${n % 3}`)),
  );
  const file = new Sqlite(join(directory, 'messages.db'));
  t.teardown(() => file.close());
  file.exec(`CREATE TRIGGER "poison" BEFORE INSERT ON "points" WHEN NEW."number" = 13
    BEGIN SELECT RAISE(ABORT, 'poison'); END`);
  const later = start + 100 * day;
  await t.rejects(append(key, [pointOf(later, 'new'), pointOf(later, 'c0'), pointOf(later, 'new', 13)]));
  file.exec('DROP TRIGGER "poison"');
  await append(key, [pointOf(later, 'new'), pointOf(later, 'c0')]);
  t.equal((await pages(key, { ...everything, order: 'asc', limit: 10 }, 'new')).length, 1);
  t.equal(storedMarks(t, key).outside, 0);

  const count = file.prepare('SELECT count(*) FROM "categoryMarks"').pluck();
  const others = Number(count.get()) - storedMarks(t, key).marks;
  await store.deleteDevice(key.deviceId);
  t.equal(count.get(), others, 'the marks of a purged device are gone');
  await append(key, [pointOf(start, 'c1')]);
  t.equal((await pages(key, { ...everything, order: 'desc', limit: 10 }, 'c1')).length, 1);
});

t.test('what expires takes its marks along, and what comes later is marked again', async (t) => {
  const file = new Sqlite(join(directory, 'messages.db'));
  t.teardown(() => file.close());
  const [series, middle] = [1_000_000, start + 500_000];
  const marks = new SeriesMarks(file);
  const count = (where: string) =>
    file
      .prepare<[number], number>(`SELECT count(*) FROM "categoryMarks" WHERE "series" = ? AND ${where}`)
      .pluck()
      .get(series);
  for (let n = 0; n < 1000; n += 1) marks.add(series, 1 + (n % 3), start + n * 1000);
  marks.forgetBefore(series, middle);
  t.equal(count(`"to" <= ${middle}`), 0);
  t.ok(Number(count(`"from" >= ${middle}`)) >= 3);
  marks.add(series, 1, start);
  t.equal(count(`"category" = 1 AND "from" <= ${start} AND "to" > ${start}`), 1);
});

t.test('points that were there before there were marks are found by category', async (t) => {
  const old = t.testdir();
  const path = join(old, 'messages.db');
  const earlier = messageMigrations.filter(({ name }) => name < 'messages-0006');
  await migrate(path, earlier);
  const file = new Sqlite(path);
  file.exec(`INSERT INTO "series" ("id", "accountId", "deviceId", "channelTemplateId") VALUES (7, 'account', 'old', 'channel');
    INSERT INTO "categories" VALUES (1, 'a'), (2, 'b')`);
  const add = file.prepare(`INSERT INTO "points" VALUES (7, ?, ?, ?, 1, NULL)`);
  const times = Array.from({ length: 500 }, (_, n) => (n - 250) * 50_000);
  for (const [n, time] of times.entries()) add.run(time, n + 1, n % 50 ? 1 : 2);
  file.close();
  const opened = await MessageStore.open(old, { log: { error() {} } });
  t.teardown(() => opened.close());
  const key = { accountId: 'account', deviceId: 'old', channelTemplateId: 'channel' };
  for (const [category, at] of [
    ['a', (n: number) => n % 50 > 0] as const,
    ['b', (n: number) => n % 50 === 0] as const,
  ]) {
    const found = await opened.series.page(key, { ...everything, order: 'asc', limit: 1000 }, category);
    t.strictSame(
      found.map((point) => point.time),
      times.filter((_, n) => at(n)),
    );
  }
});

t.end();
