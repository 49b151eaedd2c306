/** A thread that asks the API for one thing again and again, so that the load generator's own delays are not in its times. */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

/** Milliseconds between an answer and the next request: it looks on, and is no load of its own. */
const pause = 10;

/** Begins to ask; the answer's `stop` resolves to what each request took, in milliseconds. */
export function startAsking(url: string, token: string): { stop(): Promise<number[]> } {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { url, token } });
  return {
    stop: () =>
      new Promise((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
        worker.postMessage('stop');
      }),
  };
}

async function ask({ url, token }: { url: string; token: string }): Promise<void> {
  const times: number[] = [];
  let open = true;
  parentPort?.once('message', () => {
    open = false;
  });
  while (open) {
    const from = performance.now();
    const response = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`${url} answered ${response.status}`);
    times.push(performance.now() - from);
    await sleep(pause);
  }
  parentPort?.postMessage(times);
}

if (!isMainThread) await ask(workerData);
