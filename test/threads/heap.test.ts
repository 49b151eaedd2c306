/** How much memory V8 may hold for garbage of a thread. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { startThread } from '../../db/sqlite/threads.ts';

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
