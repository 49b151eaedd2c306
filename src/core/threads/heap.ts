/**
 * How much memory V8 may hold for what it has not collected yet. By itself it takes up to 128 MB for new objects on a
 * large machine, and lets old ones grow to four times what lives before it looks. docs/performance.md has the figures.
 */
import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from 'node:v8';

const mebibyte = 1024 * 1024;
/** Bytes of one half of the space of new objects of the main thread. V8 doubles it from 1 MiB. */
const halfBytes = 16 * mebibyte;
/** Bytes that old objects may grow between two collections, when the heap is as large as this; less when it is larger. */
const growthBytes = 100 * mebibyte;
/** Percents are set in steps, so that the flags change rarely. */
const growthStep = 10;

/** Bytes of one half of the space of new objects, without the heads of its pages. Its `space_size` is less: V8 gives pages back after each collection. */
export function newCapacity(): number {
  const newSpace = getHeapSpaceStatistics().find((space) => space.space_name === 'new_space');
  return newSpace ? newSpace.space_used_size + newSpace.space_available_size : 0;
}

/**
 * Keeps the main thread within these bounds from now on. V8 reads both flags when it has collected: the space of new
 * objects keeps its size with a factor of 1, and old objects may grow by so many percent until the next look.
 */
export function boundHeap(): void {
  let factor = 0;
  let percent = 0;
  const adapt = () => {
    const nextFactor = newCapacity() > halfBytes / 2 ? 1 : 2;
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
