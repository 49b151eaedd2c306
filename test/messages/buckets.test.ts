import { deepStrictEqual, ok } from 'node:assert';
import fc from 'fast-check';
import { LongWork } from '../../src/core/scheduler/long-work.ts';
import { bucketEdges, bucketsIn, parseBucketSize, TimeZone } from '../../src/messages/series/buckets.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const hour = 3_600_000;

/** Edges as ISO 8601, of a range in UTC. */
async function edges(from: string, to: string, size: string, zone = 'UTC'): Promise<string[]> {
  const range = { from: Date.parse(from), to: Date.parse(to) };
  const found = await bucketEdges(range, sizeOf(size), zoneOf(zone), new LongWork());
  return found.map((edge) => new Date(edge).toISOString().replace(':00.000Z', 'Z'));
}

function sizeOf(text: string) {
  const size = parseBucketSize(text);
  if (!size) throw new Error(`${text} is no size`);
  return size;
}

function zoneOf(name: string) {
  const zone = TimeZone.named(name);
  if (!zone) throw new Error(`${name} is no zone`);
  return zone;
}

t.test('sizes are a number and a unit, and short ones divide a day', async (t) => {
  for (const size of ['1s', '30s', '5m', '15m', '1h', '6h', '24h', '1d', '10d', '2w', '3M', '12M'])
    t.ok(parseBucketSize(size), size);
  for (const size of ['', '0m', '7m', '5h', '36h', '1', 'm', '1y', '-1h', '1.5h', '1 h', '1H', '100000s', '１m'])
    t.notOk(parseBucketSize(size), size);
  for (const name of ['Europe/Berlin', 'UTC', 'Etc/UTC', 'Asia/Kolkata', 'America/St_Johns'])
    t.ok(TimeZone.named(name), name);
  for (const name of ['', 'Mars/Olympus', '+02:00', 'Europe/Berlin;x', 'UTC+1']) t.notOk(TimeZone.named(name), name);
});

t.test('buckets hold the range, and begin where the clock says so', async (t) => {
  t.strictSame(await edges('2026-03-01T12:07Z', '2026-03-01T12:20Z', '5m'), [
    '2026-03-01T12:05Z',
    '2026-03-01T12:10Z',
    '2026-03-01T12:15Z',
    ...(await edges('2026-03-02T00:00Z', '2026-03-02T00:00Z', '1d')),
  ]);
  t.strictSame((await edges('2026-03-01T12:00Z', '2026-03-01T13:00Z', '1h', 'Asia/Kolkata')).slice(0, 2), [
    '2026-03-01T11:30Z',
    '2026-03-01T12:30Z',
  ]);
  t.strictSame(await edges('2026-03-01T12:00Z', '2026-03-09T00:00Z', '1w'), [
    '2026-02-23T00:00Z',
    '2026-03-02T00:00Z',
    '2026-03-09T00:00Z',
  ]);
  t.strictSame(await edges('2026-02-28T23:30Z', '2026-07-01T00:00Z', '3M', 'Europe/Berlin'), [
    '2025-12-31T23:00Z',
    '2026-03-31T22:00Z',
    '2026-06-30T22:00Z',
    '2026-09-30T22:00Z',
  ]);
});

t.test('the days on which clocks change have 23 and 25 hours', async (t) => {
  t.strictSame(await edges('2026-03-28T12:00Z', '2026-03-30T00:00Z', '1d', 'Europe/Berlin'), [
    '2026-03-27T23:00Z',
    '2026-03-28T23:00Z',
    '2026-03-29T22:00Z',
    '2026-03-30T22:00Z',
  ]);
  const hours = async (day: string, size: string) =>
    (await edges(`${day}T00:00Z`, `${day}T20:00Z`, size, 'Europe/Berlin')).slice(1, -1);
  t.strictSame(await hours('2026-10-25', '6h'), ['2026-10-25T04:00Z', '2026-10-25T10:00Z', '2026-10-25T16:00Z']);
  t.strictSame(await hours('2026-03-29', '6h'), ['2026-03-29T05:00Z', '2026-03-29T11:00Z', '2026-03-29T17:00Z']);
  const autumn = await edges('2026-10-24T22:00Z', '2026-10-25T23:00Z', '1h', 'Europe/Berlin');
  t.equal(autumn.length - 1, 25);
  const spring = await edges('2026-03-28T23:00Z', '2026-03-29T22:00Z', '1h', 'Europe/Berlin');
  t.equal(spring.length - 1, 23);
});

t.test('a day without midnight begins when it begins, and a day that was left out does not count', async (t) => {
  // The clock went from 24:00 to 01:00.
  t.strictSame(await edges('2018-11-03T12:00Z', '2018-11-05T12:00Z', '1d', 'America/Sao_Paulo'), [
    '2018-11-03T03:00Z',
    '2018-11-04T03:00Z',
    '2018-11-05T02:00Z',
    '2018-11-06T02:00Z',
  ]);
  // Samoa had no 30 December 2011.
  t.strictSame(await edges('2011-12-29T12:00Z', '2011-12-31T12:00Z', '1d', 'Pacific/Apia'), [
    '2011-12-29T10:00Z',
    '2011-12-30T10:00Z',
    '2011-12-31T10:00Z',
    '2012-01-01T10:00Z',
  ]);
});

t.test('in every zone at any time, edges ascend, hold the range and are at most a bucket apart', async () => {
  const zones = [
    'UTC',
    'Europe/Berlin',
    'America/Havana',
    'Asia/Kathmandu',
    'Australia/Lord_Howe',
    'Africa/Casablanca',
  ];
  const lengths = {
    '15m': hour / 4,
    '6h': 6 * hour,
    '1d': 25 * hour,
    '3d': 73 * hour,
    '1w': 169 * hour,
    '1M': 745 * hour,
  };
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...zones),
      fc.constantFrom(...(Object.keys(lengths) as Array<keyof typeof lengths>)),
      fc.date({ min: new Date('1900-01-01'), max: new Date('2100-01-01'), noInvalidDate: true }),
      fc.nat({ max: 100 * 24 * hour }),
      async (name, size, date, span) => {
        const zone = zoneOf(name);
        const [from, to] = [date.getTime(), date.getTime() + span];
        const found = await bucketEdges({ from, to }, sizeOf(size), zone, new LongWork());
        const [first = Number.NaN, second = to] = found;
        ok(first <= from && (second > from || span === 0), 'the first bucket holds the start');
        ok((found.at(-1) ?? 0) >= to, 'the last one ends behind the end');
        ok(found.length <= bucketsIn(span, sizeOf(size)) + 2, `${found.length} edges`);
        for (const [at, edge] of found.slice(1, -1).entries()) {
          const length = edge - (found[at] ?? 0);
          // A clock of the past may have changed by any number of seconds.
          ok(length > 0 && length <= lengths[size] + 2 * hour, `${length} ms`);
        }
        if (size.endsWith('M'))
          for (const edge of found) deepStrictEqual(new Date(edge + zone.offset(edge)).getUTCDate(), 1);
      },
    ),
    { numRuns: 300 },
  );
});

t.end();
