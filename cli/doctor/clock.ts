/** The clock, as far as it can be judged without asking anybody. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Finding, findings } from './finding.ts';

const { ok, warning, error } = findings('clock');
/** Milliseconds by which the times of files may be ahead: those of network disks are another machine's. */
const tolerance = 60_000;
const written = ['registry.db', 'registry.db-wal', 'messages.db', 'messages.db-wal', 'changed', 'version'];
/** Of systemd-timesyncd: made when the clock has been set by the network. */
const timesync = '/run/systemd/timesync';

/** `now` in milliseconds: certificates, tokens and the times of points go by it. */
export function lookAtClock(dataDir: string, now: number, system = timesync): Finding[] {
  const times = written.flatMap((name) => statSync(join(dataDir, name), { throwIfNoEntry: false })?.mtimeMs ?? []);
  const ahead = Math.max(0, ...times) - now;
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
