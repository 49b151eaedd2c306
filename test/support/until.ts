import { setImmediate as nextTurn } from 'node:timers/promises';

/** Waits for a state that no event reports: looks at each turn of the event loop, until the test's own timeout. */
export async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await nextTurn();
}
