/** `slipway backup FILE`: everything that a machine must not take with it, in one file, while the server runs. */
import { existsSync, linkSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { copyDatabases, sync } from '../../db/files/copies.ts';
import { firmwareName } from '../../db/files/firmware.ts';
import { stepsHad } from '../../db/files/schema.ts';
import { dataVersion } from '../../db/files/snapshots.ts';
import { UsageError } from '../usage.ts';
import { writeArchive } from './archive.ts';
import { demandRegistry, demandWhole, directoryOf, type OnDirectory, print } from './files.ts';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export async function backup(given: OnDirectory, target: string): Promise<void> {
  const [dataDir, file] = [directoryOf(given), resolve(target)];
  demandRegistry(dataDir);
  demandWhole(dataDir);
  if (!existsSync(dirname(file))) throw new UsageError(`There is no directory ${dirname(file)}.`);
  const prefix = `${file}.partial-`;
  clearLeftovers(prefix);
  if (existsSync(file)) throw new UsageError(`${file} exists already. A backup never overwrites a file.`);
  // A server next to it goes first, also for the threads that compress.
  lowerPriority();

  // Next to the file: the copies take the room of the disk that it is for, and renaming is all that is left to do.
  const work = `${prefix}${process.pid}`;
  const clear = () => rmSync(work, { recursive: true, force: true });
  for (const signal of signals)
    process.once(signal, () => {
      clear();
      process.exit(128 + constants.signals[signal]);
    });
  try {
    mkdirSync(work, { mode: 0o700 });
    const time = new Date().toISOString();
    const databases = await copyDatabases(dataDir, work);
    const schema = Object.fromEntries(databases.map((name) => [name, stepsHad(join(work, name)).at(-1) ?? '']));
    const about = { slipway: dataVersion(dataDir), time, schema };
    const archive = join(work, 'archive');
    const { files } = await writeArchive(
      archive,
      { directory: work, databases, keys: join(dataDir, 'keys'), firmware: join(dataDir, firmwareName) },
      about,
    );
    publish(archive, file);
    print({ backup: file, ...about, files: files.map(({ name, bytes }) => ({ name, bytes })) });
  } finally {
    clear();
  }
}

/** Some containers forbid it: the backup goes on as it is. */
function lowerPriority(): void {
  try {
    setPriority(constants.priority.PRIORITY_LOW);
  } catch (error) {
    process.stderr.write(`The backup runs with the usual priority: ${(error as Error).message}.\n`);
  }
}

/** Removes files of killed processes only, never files with similar names. */
function clearLeftovers(prefix: string): void {
  const directory = dirname(prefix);
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    const pid = path.startsWith(prefix) ? path.slice(prefix.length) : '';
    if (/^[1-9]\d{0,9}$/.test(pid) && !isRunning(Number(pid))) rmSync(path, { recursive: true, force: true });
  }
}

/** In a container that was started again numbers come back: this one's own was another's. */
function isRunning(pid: number): boolean {
  if (pid === process.pid) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** The whole file appears under its name at once, and takes the place of none. */
function publish(archive: string, file: string): void {
  try {
    linkSync(archive, file);
  } catch (error) {
    // Not every file system has links.
    if ((error as NodeJS.ErrnoException).code === 'EEXIST' || existsSync(file))
      throw new UsageError(`${file} exists already. A backup never overwrites a file.`);
    renameSync(archive, file);
  }
  sync(dirname(file));
}
