/** What waits: whose turn it is, how much goes on at once, and how much in one turn of the event loop. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { holderLane, lastRank, rankOf, strangerLane } from '../../src/core/limits/lanes.ts';
import { Lanes } from '../../src/core/scheduler/lanes.ts';
import { LongWork } from '../../src/core/scheduler/long-work.ts';
import { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const lane = (name: string) => ({ accountId: name, callerId: name });

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
      const longWork = new LongWork();
      await nextTurn();
      longWork.beginSlice();
      work();
      await longWork.giveWay();
      for (let n = 0; n < 4; n += 1) {
        step();
        await longWork.giveWay();
      }
    });
    await Promise.all(begun);
  });
  t.equal(most, 1);
});

t.test('a queue of work on the event loop lets others go first between two pieces', async (t) => {
  const queue = new Scheduler({ atOnce: 1, isLong: true });
  const most = await stepsInOneTurn((step) =>
    Promise.all(
      Array.from({ length: 12 }, (_, n) =>
        queue.run({ accountId: `${n % 3}`, callerId: `${n}` }, 1, async () => step()),
      ),
    ),
  );
  t.equal(most, 1);
});

t.test('those who go last get every fifth turn', async (t) => {
  const queue = new Scheduler({ atOnce: 1, rankOf, lastRank });
  const leave = await queue.enter(lane('busy'), 1);
  const order: string[] = [];
  const run = (name: string, { accountId, callerId }: { accountId: string; callerId: string }) =>
    queue.run({ accountId, callerId }, 1, async () => void order.push(name));
  const strangers = ['2001:db8:1:1::1', '2001:db8:1:2::1', '192.0.2.1'];
  const waiting = strangers.map((address) => run('stranger', strangerLane(address)));
  for (let n = 0; n < 9; n += 1) waiting.push(run('owner', lane('a')));
  leave();
  await Promise.all(waiting);
  const turns = order.map((name) => name.charAt(0)).join('');
  t.equal(turns, 'oooosoooosos');
});

t.test(
  'those who hold a device go before strangers, and networks that have failed after those that have not',
  async (t) => {
    const queue = new Scheduler({ atOnce: 1, rankOf, lastRank });
    const leave = await queue.enter(lane('busy'), 1);
    const order: string[] = [];
    const run = (name: string, of: { accountId: string; callerId: string }) =>
      queue.run(of, 1, async () => void order.push(name));
    const waiting: Promise<void>[] = [];
    for (let n = 0; n < 40; n += 1) waiting.push(run('f', strangerLane(`198.51.100.${n}`, true)));
    for (let n = 0; n < 6; n += 1) waiting.push(run('s', strangerLane(`192.0.2.${n}`)));
    for (let n = 0; n < 6; n += 1) waiting.push(run('h', holderLane('device', `192.0.2.${n}`)));
    waiting.push(run('h', holderLane('other', '192.0.2.9')));
    leave();
    await Promise.all(waiting);
    t.equal(order.join('').replace(/f+$/, ''), 'hhhhshhhsssfss');
  },
);

t.test('networks of 64 bits share the turn of their network of 48 bits', async (t) => {
  const queue = new Scheduler({ atOnce: 1 });
  const leave = await queue.enter(lane('busy'), 1);
  const order: string[] = [];
  const run = (name: string, address: string) => queue.run(strangerLane(address), 1, async () => void order.push(name));
  const attack = Array.from({ length: 20 }, (_, n) => run('attacker', `2001:db8:bad:${n}::1`));
  const honest = [run('honest', '192.0.2.1'), run('honest', '2001:db8:600d:1::1')];
  leave();
  await Promise.all([...attack, ...honest]);
  t.ok(order.lastIndexOf('honest') <= 3, order.join(' '));
});

t.test('lanes take turns, and one that is too long is refused', async (t) => {
  const queue = new Scheduler({ atOnce: 1 });
  const done: string[] = [];
  const open: Array<() => void> = [];
  const work = (name: string) => () =>
    new Promise<void>((resolve) => {
      done.push(name);
      open.push(resolve);
    });
  const all = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((name) => queue.run(lane(name.charAt(0)), 1, work(name)));
  await new Promise(setImmediate);
  for (let n = 0; n < all.length; n += 1) {
    open.shift()?.();
    await all.at(0);
    await new Promise(setImmediate);
  }
  await Promise.all(all);
  t.strictSame(done, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']);
  const blocked = queue.run(lane('a'), 1, work('first'));
  const waiting = Array.from({ length: 200 }, () => queue.run(lane('a'), 1, async () => {}));
  await t.rejects(
    queue.run(lane('a'), 1, async () => {}),
    /Too many requests/,
  );
  t.equal(await Promise.race([queue.run(lane('b'), 1, async () => 'b'), Promise.resolve('not yet')]), 'not yet');
  open.shift()?.();
  await Promise.all([blocked, ...waiting]);
});

t.test('accounts take turns by what their work costs, then the callers of each', async (t) => {
  const lanes = new Lanes<string>(10);
  const push = (accountId: string, callerId: string, cost: number, items: string[]) => {
    for (const item of items) lanes.add({ accountId, callerId }, cost, item);
  };
  push('greedy', 'one', 50, ['G1', 'G2', 'G3']);
  push('modest', 'a', 5, ['a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8']);
  push('modest', 'b', 5, ['b1', 'b2']);
  const order = Array.from({ length: 13 }, () => lanes.takeNext());
  t.equal(lanes.takeNext(), undefined);
  const ofGreedy = order.flatMap((item, at) => (item?.startsWith('G') ? at : []));
  t.equal(ofGreedy[0], 0, 'who came first is first');
  t.equal(ofGreedy[1], 11, 'and pays for what it took: the others have their 50 in turn');
  t.ok(order.indexOf('b1') < order.indexOf('a4'), 'callers of one account take turns');
  t.strictSame(
    order.filter((item) => item?.startsWith('a')),
    ['a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8'],
    'those of one caller stay in order',
  );
});

t.test('one account has only its part of the places, however slow its work is', async (t) => {
  const queue = new Scheduler({ atOnce: 4, perAccount: 2 });
  const open: Array<() => void> = [];
  const begun: string[] = [];
  const work = (name: string) => () =>
    new Promise<void>((resolve) => {
      begun.push(name);
      open.push(resolve);
    });
  const slow = ['s1', 's2', 's3'].map((name) => queue.run(lane('slow'), 1, work(name)));
  const other = queue.run(lane('other'), 1, work('o1'));
  await new Promise(setImmediate);
  t.strictSame(begun, ['s1', 's2', 'o1']);
  open.shift()?.();
  await slow[0];
  await new Promise(setImmediate);
  t.strictSame(begun, ['s1', 's2', 'o1', 's3']);
  for (const end of open) end();
  await Promise.all([...slow, other]);
});

t.test('a place that is held over many turns of the event loop lets it rest, though others wait', async (t) => {
  const planned: Array<() => void> = [];
  const slice = { time: 1, least: 0, perLook: 0, later: (work: () => void) => planned.push(work) };
  const queue = new Scheduler({ atOnce: 1, slice });
  const leave = await queue.enter(lane('holds'), 1);
  const waits = queue.enter(lane('waits'), 1);
  const turn = () => {
    for (const work of planned.splice(0)) work();
  };
  for (let n = 0; n < 3; n += 1) turn();
  t.equal(planned.length, 0, 'nothing is done until the place is free');
  leave();
  await waits;
});

t.end();
