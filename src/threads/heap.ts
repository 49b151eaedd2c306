/**
 * How much memory V8 may hold for what it has not collected yet. By itself it takes up to 128 MB for new objects on a
 * large machine, and lets old ones grow to four times what lives before it looks. docs/performance.md has the figures.
 */
import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from 'node:v8';

const mebibyte = 1024 * 1024;
/** Bytes of the space of new objects of the main thread: two halves, which V8 doubles from one of 1 MiB. */
const newSpaceBytes = 2 * 16 * mebibyte;
/** Bytes that old objects may grow between two collections, when the heap is as large as this; less when it is larger. */
const growthBytes = 100 * mebibyte;
/** Percents are set in steps, so that the flags change rarely. */
const growthStep = 10;

/**
 * Keeps the main thread within these bounds from now on. V8 reads both flags when it has collected: the space of new
 * objects keeps its size with a factor of 1, and old objects may grow by so many percent until the next look.
 */
export function boundHeap(): void {
  let factor = 0;
  let percent = 0;
  const adapt = () => {
    const newSpace = getHeapSpaceStatistics().find((space) => space.space_name === 'new_space');
    const nextFactor = (newSpace?.space_size ?? 0) < newSpaceBytes ? 2 : 1;
    if (nextFactor !== factor) setFlagsFromString(`--semi-space-growth-factor=${nextFactor}`);
    factor = nextFactor;
    const share = (growthBytes / getHeapStatistics().used_heap_size) * 100;
    const nextPercent = Math.max(growthStep, Math.round(share / growthStep) * growthStep);
    if (nextPercent !== percent) setFlagsFromString(`--heap-growing-percent=${nextPercent}`);
    percent = nextPercent;
  };
  new PerformanceObserver(adapt).observe({ entryTypes: ['gc'] });
  adapt();
}
