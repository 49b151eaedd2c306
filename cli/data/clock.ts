/** `slipway clock confirm`: the clock is right, and what is old by it may be deleted. */

import { believeClock, doubtedSince, lastWritten } from '../../src/core/trusted-clock.ts';
import { announceChange } from '../../src/process/changes.ts';
import { directoryOf, type OnDirectory, print } from './files.ts';

export function confirmClock(given: OnDirectory): void {
  const dataDir = directoryOf(given);
  const before = doubtedSince(dataDir) ?? lastWritten(dataDir);
  believeClock(dataDir);
  // The next start finds that something has been written now.
  announceChange(dataDir);
  print({ confirmed: new Date().toISOString(), before: before > 0 ? new Date(before).toISOString() : null });
}
