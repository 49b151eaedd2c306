/** Loaded into the service by the soak: says what only the process itself knows, when it is asked. */
import { monitorEventLoopDelay } from 'node:perf_hooks';

/** What a probe sends: bytes after a collection, and milliseconds since the last answer. */
export interface Inside {
  heap: number;
  external: number;
  lag: number;
  longest: number;
}

const delay = monitorEventLoopDelay({ resolution: 10 });
delay.enable();
process.on('message', () => {
  const [lag, longest] = [delay.percentile(99) / 1e6, delay.max / 1e6];
  globalThis.gc?.();
  const { heapUsed: heap, external } = process.memoryUsage();
  process.send?.({ heap, external, lag, longest } satisfies Inside);
  // The pause of the collection is ours, not the service's.
  setImmediate(() => delay.reset());
});
process.channel?.unref();
