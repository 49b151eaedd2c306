/** The time, replaceable in tests. Milliseconds since 1970. */
export interface Clock {
  now(): number;
  /** Milliseconds that pass whatever is done to the date; without it, they are those of `now`. */
  monotonic?(): number;
}

/** Milliseconds of the monotonic clock, for what lasts: pauses and windows. */
export function monotonic(clock: Clock): number {
  return clock.monotonic?.() ?? clock.now();
}

/** The time as the platform writes it: ISO 8601, UTC, milliseconds. */
export function timestamp(clock: Clock): string {
  return new Date(clock.now()).toISOString();
}
