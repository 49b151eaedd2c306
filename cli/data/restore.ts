/** `slipway restore FILE [--force]`: a backup becomes the data directory, whole or not at all. */
import { existsSync, readdirSync, statfsSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type DatabaseName, databaseNames, databasesIn, sync } from '../../db/files/copies.ts';
import { firmwareName, usedContents } from '../../db/files/firmware.ts';
import { abandon, finishReplacement, gather, replaceBy } from '../../db/files/incoming.ts';
import { unknownSteps } from '../../db/files/schema.ts';
import { snapshotsName, versionName } from '../../db/files/snapshots.ts';
import { missingPart } from '../../src/process/used-directory.ts';
import { UsageError } from '../usage.ts';
import { damaged, type ManifestFile, openArchive } from './archive.ts';
import { directoryOf, holdForCommand, type OnDirectory, print } from './files.ts';

export async function restore(given: OnDirectory & { force: boolean }, source: string): Promise<void> {
  const [dataDir, file] = [directoryOf(given), resolve(source)];
  const archive = await openArchive(file);
  try {
    const lock = holdForCommand(dataDir);
    try {
      finishReplacement(dataDir);
      if (holdsData(dataDir) && !given.force)
        throw new UsageError(
          `${dataDir} holds data. With --force the backup takes its place, and what is there now is kept next to it.`,
        );
      const { slipway, time, files } = archive.manifest;
      demandRoom(dataDir, files);
      const staged = gather(dataDir);
      await archive.extract(staged);
      for (const name of databasesIn(staged)) {
        const [unknown] = readUnknownSteps(staged, name);
        if (unknown)
          throw new UsageError(`This backup is of a newer version of Slipway, ${slipway}: ${name} has had ${unknown}.`);
      }
      const missing = missingPart(staged);
      if (missing) throw damaged(`${missing.name} ${missing.fault}`);
      const gone = usedContents(join(staged, 'registry.db')).find(
        (name) => !existsSync(join(staged, firmwareName, name)),
      );
      if (gone) throw damaged(`${firmwareName}/${gone} is missing, and the registry names it`);
      writeFileSync(join(staged, versionName), slipway, { mode: 0o600, flush: true });
      const keys = ['keys', firmwareName].filter((name) => existsSync(join(staged, name)));
      for (const name of keys) sync(join(staged, name));
      const coming = [...databasesIn(staged), ...keys, versionName];
      // A snapshot is of the data that was there: rolling back to it would mix the two.
      const going = [...databaseNames, 'keys', firmwareName, snapshotsName];
      const replaced = replaceBy(dataDir, staged, { going, coming, time: Date.now() });
      print({ restored: file, dataDir, slipway, time, files: files.length, ...(replaced && { replaced }) });
    } finally {
      abandon(dataDir);
      lock.release();
    }
  } finally {
    archive.close();
  }
}

/** @throws UsageError when the files do not fit on the disk: others may need the rest of it. */
function demandRoom(directory: string, files: readonly ManifestFile[]): void {
  const { bavail, bsize } = statfsSync(directory);
  const needed = files.reduce((sum, { bytes }) => sum + bytes, 0);
  if (needed > bavail * bsize)
    throw new UsageError(`There is no room in ${directory}: it takes ${needed} bytes, and ${bavail * bsize} are free.`);
}

/** @throws UsageError when it is no database. */
function readUnknownSteps(directory: string, name: DatabaseName): string[] {
  try {
    return unknownSteps(directory, name);
  } catch (error) {
    throw damaged(`${name}: ${(error as Error).message}`);
  }
}

function holdsData(directory: string): boolean {
  const keys = join(directory, 'keys');
  return databasesIn(directory).length > 0 || (existsSync(keys) && readdirSync(keys).length > 0);
}
