/** The clock, as far as it can be judged without asking anybody. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { doubtedSince, lastWritten } from '../../src/core/trusted-clock.ts';
import { type Finding, findings } from './finding.ts';

const { ok, warning, error } = findings('clock');
/** Milliseconds by which the times of files may be ahead: those of network disks are another machine's. */
const tolerance = 60_000;
/** Of systemd-timesyncd: made when the clock has been set by the network. */
const timesync = '/run/systemd/timesync';

/** `now` in milliseconds: certificates, tokens and the times of points go by it. */
export function lookAtClock(dataDir: string, now: number, system = timesync): Finding[] {
  const doubted = doubtedSince(dataDir);
  if (doubted !== undefined)
    return [
      warning(
        `The clock has jumped ahead, from ${new Date(doubted).toISOString()}: nothing is deleted for its age. Set it back, or run slipway clock confirm.`,
      ),
    ];
  const ahead = lastWritten(dataDir) - now;
  if (ahead > tolerance)
    return [
      error(
        `The clock is ${Math.round(ahead / 1000)} seconds behind the data that was written last: it has been set back.`,
      ),
    ];
  const built = statSync(fileURLToPath(import.meta.url)).mtimeMs;
  if (built - now > tolerance) return [error('The clock shows a time before this version was installed.')];
  if (!existsSync(system)) return [ok('not behind what was written; whether the network sets it is not known here')];
  return existsSync(join(system, 'synchronized'))
    ? [ok('set by the network')]
    : [warning('systemd-timesyncd has not set the clock: timedatectl says why.')];
}
