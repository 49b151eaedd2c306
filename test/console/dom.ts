/** How much a page holds: nodes and listeners, in and out of its tree. */
import type { Page } from 'playwright-core';

/** Counts them once the browser has collected what nobody holds. Pages of one browser share a process, and are counted together. */
export async function domOf(page: Page): Promise<{ nodes: number; listeners: number }> {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  // What the first collection finds to end is collected by the next.
  for (let n = 0; n < 3; n += 1) await devtools.send('HeapProfiler.collectGarbage');
  const { metrics } = await devtools.send('Performance.getMetrics');
  await devtools.detach();
  const count = (wanted: string) => metrics.find(({ name }) => name === wanted)?.value ?? Number.NaN;
  return { nodes: count('Nodes'), listeners: count('JSEventListeners') };
}
