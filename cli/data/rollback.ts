/** `slipway rollback`: the data as it was before the last upgrade, for the version that ran on it. */
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { databaseNames } from '../../db/files/copies.ts';
import { firmwareName, usedContents } from '../../db/files/firmware.ts';
import { finishReplacement, isUnfinished, replaceBy } from '../../db/files/incoming.ts';
import { stepsHad } from '../../db/files/schema.ts';
import { dataVersion, filesOf, snapshotsOf } from '../../db/files/snapshots.ts';
import { UsageError } from '../usage.ts';
import { demandRegistry, directoryOf, holdForCommand, type OnDirectory, print } from './files.ts';

export async function rollback(given: OnDirectory): Promise<void> {
  const dataDir = directoryOf(given);
  if (!isUnfinished(dataDir)) demandRegistry(dataDir);
  const lock = holdForCommand(dataDir);
  try {
    // Anyone who calls it again after it was broken off means that one, not the upgrade before.
    if (isUnfinished(dataDir)) return finishRollback(dataDir);
    const [snapshot] = snapshotsOf(dataDir);
    if (!snapshot)
      throw new UsageError(
        `There is no snapshot in ${dataDir}: no upgrade has changed the databases since they were made or put back.`,
      );
    const { path, version, time } = snapshot;
    const coming = filesOf(snapshot);
    const last = coming.filter(isDatabase).map((name) => stepsHad(join(path, name)).at(-1));
    // Opened to be read: what SQLite has put next to them is of this reading.
    for (const name of coming) for (const end of ['-wal', '-shm']) rmSync(join(path, name + end), { force: true });
    const replaced = replaceBy(dataDir, path, { going: databaseNames, coming, time: Date.now() });
    const needs = version || `the version that ran before ${time} (last steps ${last.join(', ')})`;
    const lost = `everything written since ${time}`;
    process.stderr.write(
      `The data is that of ${time} again, and needs Slipway ${needs}: a newer one upgrades it once more.\n` +
        `Not in it: ${lost}. That lies in ${replaced}, until you delete it.\n`,
    );
    const registry = join(dataDir, 'registry.db');
    const used = existsSync(registry) ? usedContents(registry) : [];
    const missing = used.filter((name) => !existsSync(join(dataDir, firmwareName, name)));
    if (missing.length > 0)
      process.stderr.write(
        `Snapshots do not hold firmware. Upload again what the data names and has been deleted since: ${missing.length === 1 ? '1 file' : `${missing.length} files`}.\n`,
      );
    print({ rolledBackTo: time, needs, lost, replaced, missingFirmware: missing });
  } finally {
    lock.release();
  }
}

function finishRollback(dataDir: string): void {
  finishReplacement(dataDir);
  const needs = dataVersion(dataDir);
  process.stderr.write(
    `A rollback or restore that was broken off has come to its end: the data needs Slipway ${needs || 'of an unknown version'}.\n` +
      'Nothing else was rolled back.\n',
  );
  print({ finished: true, needs });
}

function isDatabase(name: string): boolean {
  return databaseNames.some((one) => one === name);
}
