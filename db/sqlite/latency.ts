/** Upper bounds of the buckets in which times are counted, in seconds; what takes longer is beyond the last. */
export const latencyBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;
const boundsInMilliseconds = latencyBounds.map((bound) => bound * 1000);

/** How long something took, each time since the start: cheap enough for every message. */
export class Latency {
  /** How many ended within each bound and not within the one before; the last is beyond all. */
  readonly counts: number[] = new Array(latencyBounds.length + 1).fill(0);
  count = 0;
  /** Seconds. */
  sum = 0;

  observe(milliseconds: number): void {
    let bucket = 0;
    while (bucket < boundsInMilliseconds.length && milliseconds > (boundsInMilliseconds[bucket] as number)) bucket += 1;
    (this.counts[bucket] as number) += 1;
    this.count += 1;
    this.sum += milliseconds / 1000;
  }
}
