import { setTimeout as delay } from 'node:timers/promises';

/** Waits for a state that no event reports: looks often at first, then every 50 ms, until the test's own timeout. */
export async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (let pause = 1; !(await isTrue()); pause = Math.min(2 * pause, 50)) await delay(pause);
}
