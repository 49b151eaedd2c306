/** Long work on the event loop: however much of it there is at once, one piece goes on in each turn of the loop. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Slices } from '../../db/sqlite/slices.ts';
import { FairQueue } from '../../src/limits/fair-queue.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

/** Longer than a slice. */
function work(): void {
  const until = performance.now() + 4;
  while (performance.now() < until);
}

/** The most steps that were made in one turn of the event loop while `run` goes on. */
async function stepsInOneTurn(run: (step: () => void) => Promise<unknown>): Promise<number> {
  let [most, inThisTurn] = [0, 0];
  let isOver = false;
  const counting = (async () => {
    while (!isOver) {
      inThisTurn = 0;
      await nextTurn();
      most = Math.max(most, inThisTurn);
    }
  })();
  await run(() => {
    work();
    inThisTurn += 1;
  });
  isOver = true;
  await counting;
  return most;
}

t.test('work that is cut into slices takes turns, however many pieces there are', async (t) => {
  const most = await stepsInOneTurn(async (step) => {
    const begun = Array.from({ length: 8 }, async () => {
      const slices = new Slices();
      await nextTurn();
      slices.begin();
      work();
      await slices.step();
      for (let n = 0; n < 4; n += 1) {
        step();
        await slices.step();
      }
    });
    await Promise.all(begun);
  });
  t.equal(most, 1);
});

t.test('a queue of work on the event loop lets others go first between two pieces', async (t) => {
  const queue = new FairQueue(1, { slices: new Slices() });
  const most = await stepsInOneTurn((step) =>
    Promise.all(
      Array.from({ length: 12 }, (_, n) =>
        queue.run({ accountId: `${n % 3}`, callerId: `${n}` }, 1, async () => step()),
      ),
    ),
  );
  t.equal(most, 1);
});

t.end();
