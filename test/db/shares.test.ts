/** Who makes room in messages.db: who takes it, and nobody else. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import { bringUpToDate } from '../../db/files/schema.ts';
import { OutboxWriter } from '../../db/messages/outbox/writer.ts';
import { Arrivals } from '../../db/messages/series/arrivals.ts';
import { SeriesCounts } from '../../db/messages/series/counts.ts';
import { SeriesRemoval } from '../../db/messages/series/removal.ts';
import { aboveShare } from '../../db/messages/series/shares.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const held = (...bytes: number[]) => bytes.map((bytes, n) => ({ accountId: `${n}`, bytes }));
const names = (above: Array<{ accountId: string }>) => above.map(({ accountId }) => accountId);

t.test(
  'one account that takes too much is above its share, and a thousand others that need little are not',
  async (t) => {
    const others = Array.from({ length: 1000 }, (_, n) => 400 + n * 50);
    const rest = others.reduce((sum, bytes) => sum + bytes, 0);
    const accounts = held(40_000_000, ...others);
    t.same(aboveShare(accounts, { size: 0, room: 35_000_000 }), [{ accountId: '0', bytes: rest + 5_000_000 }]);
    const half = { size: 2 * (rest + 40_000_000), room: 70_000_000 };
    t.same(names(aboveShare(accounts, half)), ['0'], 'also where half of what is in use has been counted');
    t.same(
      names(aboveShare(held(10, 500, 900, 20, 900), { size: 0, room: 1500 })),
      ['2', '4', '1'],
      'furthest above first',
    );
  },
);

t.test(
  'the room is used up when all above their share are down to it, and nobody is above it while all fit',
  async () => {
    const bytes = fc.array(fc.integer({ min: 1, max: 1_000_000 }), { minLength: 1, maxLength: 50 });
    fc.assert(
      fc.property(bytes, fc.double({ min: 0, max: 1.5, noNaN: true }), (all, part) => {
        const counted = all.reduce((sum, one) => sum + one, 0);
        const room = counted * part;
        const above = aboveShare(held(...all), { size: counted, room });
        const left = counted - above.reduce((sum, { bytes }) => sum + bytes, 0);
        return Math.abs(left - Math.min(room, counted)) < 1;
      }),
    );
  },
);

t.test('what bridges have delivered makes room without a sum of all accounts for every few rows', async (t) => {
  const directory = temporaryDirectory(t);
  await bringUpToDate(directory, 'messages.db');
  let sums = 0;
  let deletions = 0;
  const verbose = (sql: unknown) => {
    if (/sum\("bytes"\)/.test(`${sql}`)) sums += 1;
    if (/DELETE FROM "outbox"/.test(`${sql}`)) deletions += 1;
  };
  const file = new Sqlite(join(directory, 'messages.db'), { verbose });
  t.teardown(() => file.close());
  const outbox = new OutboxWriter(file);
  const arrivals = new Arrivals(file);
  const removal = new SeriesRemoval(file, {
    arrivals,
    counts: new SeriesCounts(file, arrivals),
    outbox,
    size: () => 1_000_000,
    sequence: () => 0,
    changed: () => {},
  });
  let sequence = 0;
  const next = () => {
    sequence += 1;
    return sequence;
  };
  const message = {
    id: 'm',
    deviceId: 'd',
    organizationId: null,
    deviceTemplateId: 't',
    channel: 'c',
    qos: 1,
    time: 1,
    properties: null,
    expires: null,
  };
  for (let n = 1; n <= 2000; n += 1) {
    const accountId = n % 2 === 0 ? 'a' : 'b';
    const bridgeIds = [`bridge of ${accountId}`];
    outbox.write({ kind: 'add', accountId, bridgeIds, message: { ...message, payload: Buffer.alloc(100) } }, next);
  }
  const delivered = { kind: 'move', from: 'pending', to: 'delivered', time: 1, reason: null } as const;
  outbox.write({ ...delivered, sequences: Array.from({ length: 2000 }, (_, n) => n + 1) }, next);
  const bytes = () => file.prepare<[], number>('SELECT total("bytes") FROM "heldBytes"').pluck().get();
  t.equal(outbox.pendingBytes, 0);
  while (removal.evictSome({ bytes: 0, accountBytes: 0 }));
  t.equal(bytes(), 0, 'all has gone');
  t.ok(deletions > 30, `in ${deletions} parts`);
  t.ok(sums <= 4, `${sums} sums of all accounts`);
});

t.end();
