/** Loaded into the service: says how long one turn of its event loop has taken at most since the last question, and its memory. */

/** Milliseconds of work; megabytes of the process, and of its heap after a collection. */
export interface Felt {
  held: number;
  rss: number;
  heap: number;
}

const every = 5;
const work = () => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};
let [at, worked, held] = [performance.now(), work(), 0];

/** A late timer was held up by work, as far as this thread has worked; the rest was other processes. */
function look(): void {
  const [now, done] = [performance.now(), work()];
  held = Math.max(held, Math.min(now - at - every, done - worked));
  [at, worked] = [now, done];
}

setInterval(look, every).unref();
process.on('message', () => {
  look();
  const rss = process.memoryUsage.rss() / 1e6;
  globalThis.gc?.();
  process.send?.({ held, rss, heap: process.memoryUsage().heapUsed / 1e6 } satisfies Felt);
  setImmediate(() => {
    look();
    held = 0;
  });
});
process.channel?.unref();
