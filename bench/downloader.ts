/** A thread that downloads many files at once. */
import { get } from 'node:http';
import { fileURLToPath } from 'node:url';
import { isMainThread, Worker, workerData } from 'node:worker_threads';

type Kind = 'quick' | 'slow';

/** Downloads all of the URLs at once, in a thread: to their ends so many times, or a byte a second for so many milliseconds. */
export function download(urls: string[], kind: Kind, amount: number): Promise<void> {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { urls, kind, amount } });
  return new Promise((resolve, reject) => {
    worker.once('error', reject);
    worker.once('exit', () => resolve());
  });
}

/** Reads a URL to its end, keeping nothing. */
function drain(url: string): Promise<void> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`a download answered ${response.statusCode}`));
      response.resume().on('end', resolve).on('error', reject);
    }).on('error', reject);
  });
}

/** Reads a byte a second for so many milliseconds. */
function sip(url: string, duration: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent: false }, (response) => {
      response.on('readable', () => {});
      const timer = setInterval(() => response.read(1), 1000);
      setTimeout(() => {
        clearInterval(timer);
        request.destroy();
        resolve();
      }, duration);
    }).once('error', reject);
  });
}

async function work({ urls, kind, amount }: { urls: string[]; kind: Kind; amount: number }): Promise<void> {
  if (kind === 'slow') await Promise.all(urls.map((url) => sip(url, amount)));
  else for (let n = 0; n < amount; n += 1) await Promise.all(urls.map(drain));
}

if (!isMainThread) await work(workerData);
