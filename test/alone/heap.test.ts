/** How much memory V8 may hold for garbage. */
import { once } from 'node:events';
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { startThread } from '../../db/sqlite/threads.ts';
import { boundHeap } from '../../src/threads/heap.ts';

const mebibyte = 1024 * 1024;

/** Makes objects that live for a while. Returns megabytes of new objects at the most, and how often old ones were collected. */
async function churn(): Promise<{ young: number; collections: number }> {
  const kept: object[] = [];
  const most = { young: 0, collections: 0 };
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as unknown as Array<{ detail: { kind: number } }>)
      if (entry.detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) most.collections += 1;
  });
  observer.observe({ entryTypes: ['gc'] });
  for (let round = 0; round < 400; round += 1) {
    for (let n = 0; n < 20_000; n += 1) kept.push({ n, next: [n] });
    if (kept.length > 1_200_000) kept.splice(0, 1_000_000);
    const newSpace = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
    most.young = Math.max(most.young, (newSpace?.space_size ?? 0) / mebibyte);
    await nextTurn();
  }
  observer.disconnect();
  return most;
}

t.test('a thread takes 16 MB for new objects', async (t) => {
  const code = `data:text/javascript,${encodeURIComponent(`
    import { parentPort } from 'node:worker_threads';
    import { getHeapSpaceStatistics } from 'node:v8';
    const kept = [];
    let most = 0;
    for (let round = 0; round < 200; round += 1) {
      for (let n = 0; n < 20_000; n += 1) kept.push({ n, next: [n] });
      if (kept.length > 600_000) kept.splice(0, 500_000);
      most = Math.max(most, getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').space_size);
    }
    parentPort.postMessage(most / 1024 / 1024);`)}`;
  const most = async (worker: Worker) => ((await once(worker, 'message')) as [number])[0];
  const [ours, plain] = [await most(startThread(new URL(code), {})), await most(new Worker(new URL(code)))];
  t.ok(ours <= 24, `${ours} MB`);
  t.comment(`a thread of Node's own takes ${plain} MB`);
});

t.test('the main thread takes 32 MB for new objects, and collects old ones before they are many', async (t) => {
  boundHeap();
  const { young, collections } = await churn();
  // V8 may hold a little more for a moment. By itself it takes 64 MB or more, and collects old objects three times.
  t.ok(young <= 48, `${young} MB for new objects`);
  t.ok(collections > 4, `old objects were collected ${collections} times`);
});
