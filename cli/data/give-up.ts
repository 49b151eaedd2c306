/** `slipway data give-up FILE`: goes on without a file of the data directory that is lost for good. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { databaseNames } from '../../db/files/copies.ts';
import { firmwareName } from '../../db/files/firmware.ts';
import { gather, isUnfinished, replaceBy } from '../../db/files/incoming.ts';
import { snapshotsName, versionName } from '../../db/files/snapshots.ts';
import { forgetMark, lostWith, missingPart } from '../../src/process/used-directory.ts';
import { UsageError } from '../usage.ts';
import { directoryOf, holdForCommand, type OnDirectory, print } from './files.ts';

export function giveUp(given: OnDirectory, file: string): void {
  const dataDir = directoryOf(given);
  const missing = missingPart(dataDir);
  if (missing?.name !== file)
    throw new UsageError(
      missing
        ? `${file} cannot be given up: what is missing in ${dataDir} is ${missing.name}.`
        : `Nothing is missing in ${dataDir}: a file that is there is never given up.`,
    );
  const lock = holdForCommand(dataDir);
  try {
    if (isUnfinished(dataDir))
      throw new UsageError('A restore or rollback was broken off: run slipway rollback, which ends it.');
    const { name } = missing;
    let replaced: string | undefined;
    if (name === 'registry.db') {
      const going = [...databaseNames, 'keys', firmwareName, snapshotsName, versionName];
      replaced = replaceBy(dataDir, gather(dataDir), { going, coming: [], time: Date.now() });
    } else {
      if (name === 'messages.db')
        for (const end of ['', '-wal', '-shm']) rmSync(join(dataDir, name + end), { force: true });
      else if (missing.fault === 'is empty') rmSync(join(dataDir, name));
      forgetMark(dataDir, name);
    }
    process.stderr.write(`Lost: ${lostWith[name]}.\n`);
    print({ gaveUp: name, lost: lostWith[name], ...(replaced && { replaced }) });
  } finally {
    lock.release();
  }
}
