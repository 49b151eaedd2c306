/** Values that are gathered before they are written: how long they wait, and in which order they go. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Entry, Gathered } from '../../src/core/limits/gathered.ts';
import { part } from '../support/part.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

/** Longer than any test. */
const never = 3_600_000;

/** Gathers, and notes each batch as it is written; `written` is called at the end of each. */
function gathering(atOnce: number, written: (batches: number) => void = () => {}) {
  const batches: Array<Array<Entry<number>>> = [];
  const gathered = new Gathered<number>({
    ...{ interval: never, atOnce },
    write: async (entries) => {
      batches.push([...entries]);
      await nextTurn();
      written(batches.length);
    },
  });
  const keys = () => batches.map((entries) => entries.map(({ key }) => key));
  return { gathered, batches, keys };
}

t.test('everything that waits is written at once, in batches; what comes afterwards waits for its time', async (t) => {
  const { gathered, keys } = gathering(10, (batches) => {
    if (batches === 3) gathered.putValue('a', '0', 1);
  });
  const all = Array.from({ length: 25 }, (_, n) => `${n}`);
  for (const key of all) gathered.putValue('a', key, 0);
  await until(() => keys().flat().length === 25);
  t.same(keys(), [all.slice(0, 10), all.slice(10, 20), all.slice(20)]);
  await until(() => gathered.size === 1);
  for (let turns = 0; turns < 5; turns += 1) await nextTurn();
  t.equal(gathered.size, 1, 'not before the next gathering');
  await gathered.flush();
  t.same(keys().at(-1), ['0']);
});

t.test('a key keeps its place when it gets another value', async (t) => {
  const { gathered, batches } = gathering(1);
  for (const key of ['fast', 'slow', 'slower']) gathered.putValue('a', key, 0);
  gathered.putValue('a', 'fast', 1);
  await gathered.flush();
  t.same(
    batches.flat().map(({ key, value }) => [key, value]),
    [
      ['fast', 1],
      ['slow', 0],
      ['slower', 0],
    ],
  );
});

t.test('accounts take turns, and the next batch goes on where the one before has ended', async (t) => {
  const { gathered, keys } = gathering(3);
  for (const account of ['a', 'b', 'c']) for (const n of [1, 2, 3, 4]) gathered.putValue(account, `${account}${n}`, 0);
  gathered.putValue('d', 'd1', 0);
  await gathered.flush();
  t.same(keys(), [['a1', 'b1', 'c1'], ['d1', 'a2', 'b2'], ['c2', 'a3', 'b3'], ['c3', 'a4', 'b4'], ['c4']]);
});

t.test('a write that another caller has begun is waited for until its end', async (t) => {
  let ended = 0;
  const seen: Array<Promise<number>> = [];
  const { gathered } = gathering(10, (batches) => {
    ended = batches;
    if (batches > 1) return;
    gathered.putValue('a', '2', 0);
    const waits = [gathered.flush(), gathered.flush(), gathered.written('a', '2')];
    seen.push(...waits.map((wait) => wait.then(() => ended)));
  });
  gathered.putValue('a', '1', 0);
  await gathered.flush();
  t.same(await Promise.all(seen), [2, 2, 2]);
});

t.end();
