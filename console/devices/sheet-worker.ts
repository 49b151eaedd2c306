/** Reads a file in a worker, which has this module as its program: a hostile file holds neither the page nor the browser. */
import type { Sheet } from './sheet.ts';

/** Milliseconds for a file. */
const patience = 60_000;

/** As `readSheet` of `sheet.ts`. */
export function readApart(source: Blob | string, foreign: boolean): Promise<Sheet> {
  const worker = new Worker(import.meta.url, { type: 'module' });
  const answer = new Promise<Sheet>((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = () => resolve({ fault: 'damaged' });
    setTimeout(() => resolve({ fault: 'tooLarge' }), patience);
  });
  worker.postMessage({ source, foreign });
  return answer.finally(() => worker.terminate());
}

if (typeof document === 'undefined')
  self.onmessage = async ({ data: { source, foreign } }) => {
    const { readSheet } = await import('./sheet.ts');
    self.postMessage(await readSheet(source, foreign));
  };
