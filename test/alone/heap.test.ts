/** How much memory V8 may hold for garbage. */
import { once } from 'node:events';
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { startThread } from '../../db/threads/thread.ts';
import { boundHeap, newCapacity } from '../../src/core/threads/heap.ts';

const mebibyte = 1024 * 1024;

const medianOf = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

/** Makes objects that live for a while. Returns the usual megabytes of a half of the space of new objects, and how often old ones were collected. */
async function churn(): Promise<{ young: number; collections: number }> {
  const kept: object[] = [];
  const young: number[] = [];
  let collections = 0;
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as unknown as Array<{ detail: { kind: number } }>)
      if (entry.detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) collections += 1;
  });
  observer.observe({ entryTypes: ['gc'] });
  for (let round = 0; round < 400; round += 1) {
    for (let n = 0; n < 20_000; n += 1) kept.push({ n, next: [n] });
    if (kept.length > 1_200_000) kept.splice(0, 1_000_000);
    young.push(newCapacity() / mebibyte);
    await nextTurn();
  }
  observer.disconnect();
  return { young: medianOf(young), collections };
}

t.test('a thread has 8 MB for new objects, twice', async (t) => {
  const code = `data:text/javascript,${encodeURIComponent(`
    import { parentPort } from 'node:worker_threads';
    import { getHeapSpaceStatistics } from 'node:v8';
    const [kept, young] = [[], []];
    for (let round = 0; round < 200; round += 1) {
      for (let n = 0; n < 20_000; n += 1) kept.push({ n, next: [n] });
      if (kept.length > 600_000) kept.splice(0, 500_000);
      const space = getHeapSpaceStatistics().find((space) => space.space_name === 'new_space');
      young.push((space.space_used_size + space.space_available_size) / 1024 / 1024);
    }
    parentPort.postMessage(young);`)}`;
  const usual = async (worker: Worker) => medianOf(((await once(worker, 'message')) as [number[]])[0]);
  const [ours, plain] = [await usual(startThread(new URL(code), {})), await usual(new Worker(new URL(code)))];
  t.ok(ours <= 12, `${ours} MB`);
  t.comment(`a thread of Node's own has ${plain} MB`);
});

t.test('the main thread has 16 MB for new objects, twice, and collects old ones before they are many', async (t) => {
  boundHeap();
  const { young, collections } = await churn();
  // For a moment, V8 goes over it on a busy machine. By itself it has 32 MB, and collects old objects three times.
  t.ok(young <= 24, `${young} MB for new objects`);
  t.ok(collections > 4, `old objects were collected ${collections} times`);
});
