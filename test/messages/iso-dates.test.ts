import { strictEqual } from 'node:assert';
import fc from 'fast-check';
import { timeLimit } from '../../db/messages/store.ts';
import { isoDates } from '../../src/formats/iso-dates.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const day = 86_400_000;

t.test('dates are written as Date writes them, whatever was written before', async () => {
  const anywhere = fc.integer({ min: -timeLimit, max: timeLimit });
  const step = fc.oneof(fc.integer({ min: -2 * day, max: 2 * day }), fc.constantFrom(0, 1, 999, 1000, -1, day));
  fc.assert(
    fc.property(anywhere, fc.array(fc.oneof(step, anywhere), { maxLength: 20 }), (start, steps) => {
      const date = isoDates();
      let time = start;
      for (const by of [0, ...steps]) {
        time = Math.min(timeLimit, Math.max(-timeLimit, time + by));
        strictEqual(date(time), new Date(time).toISOString());
      }
    }),
    { numRuns: 2000 },
  );
  const date = isoDates();
  for (const time of [
    0,
    -1,
    1,
    day,
    day - 1,
    -day,
    -day - 1,
    timeLimit,
    -timeLimit,
    Date.UTC(10_000, 0),
    Date.UTC(-1, 5),
  ])
    strictEqual(date(time), new Date(time).toISOString());
});

t.end();
