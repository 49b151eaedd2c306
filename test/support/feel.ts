/** How long work holds the event loop of this process, in which the service runs. */

const milliseconds = ({ user, system }: NodeJS.CpuUsage) => (user + system) / 1000;

/** Runs `work`. @returns what it gives, and milliseconds of work in the longest turn of the event loop meanwhile. */
export async function feel<R>(work: () => Promise<R>): Promise<{ result: R; held: number }> {
  const spent = () => milliseconds(process.threadCpuUsage());
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

/** Runs `work`. @returns what it gives, and the share of the event loop's thread in all work of this process meanwhile. */
export async function shareOfLoop<R>(work: () => Promise<R>): Promise<{ result: R; share: number }> {
  const [thread, all] = [process.threadCpuUsage(), process.cpuUsage()];
  const result = await work();
  // Of processor time, not of time: when others have the processor the loop is not longer at work.
  return { result, share: milliseconds(process.threadCpuUsage(thread)) / milliseconds(process.cpuUsage(all)) };
}
