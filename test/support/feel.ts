/** How long work holds the event loop of this process, in which the service runs. */

/** Runs `work`. @returns what it gives, and milliseconds of work in the longest turn of the event loop meanwhile. */
export async function feel<R>(work: () => Promise<R>): Promise<{ result: R; held: number }> {
  const spent = () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  let [held, before, at] = [0, spent(), performance.now()];
  const look = () => {
    const [now, time] = [spent(), performance.now()];
    // Of a late timer only what this thread has worked: other programs may have had the processor.
    held = Math.max(held, Math.min(now - before, time - at));
    [before, at] = [now, time];
  };
  const timer = setInterval(look, 1);
  try {
    const result = await work();
    look();
    return { result, held };
  } finally {
    clearInterval(timer);
  }
}
