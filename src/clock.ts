/** The time, replaceable in tests. Milliseconds since 1970. */
export interface Clock {
  now(): number;
}

/** The time as the platform writes it: ISO 8601, UTC, milliseconds. */
export function timestamp(clock: Clock): string {
  return new Date(clock.now()).toISOString();
}
