/** When the process is killed, and what the files say of that moment. */
import type { ChildProcess } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, watch } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openSqlite } from '../../db/sqlite/open.ts';

export const databases = ['registry.db', 'messages.db'] as const;

/** Milliseconds to wait for a checkpoint under load. */
const checkpointPatience = 10_000;
/** Places in the index of a write-ahead log, `-shm` (sqlite.org/walformat.html, 2.2): how far a checkpoint is, and wants to go. */
const backfilled = 96;
const backfillAttempted = 128;

/**
 * Stops a process in the middle of a checkpoint: only then is a database file itself written, and each write is looked
 * at while the process stands still. Gives up, with the process running, when no checkpoint could be caught in time.
 */
export async function stopInCheckpoint(directory: string, { pid = 0 }: ChildProcess): Promise<void> {
  const over = new AbortController();
  const { signal } = over;
  const caught = new Promise<void>((resolve) => {
    const look = () => {
      if (signal.aborted) return;
      process.kill(pid, 'SIGSTOP');
      if (openCheckpoints(directory).length === 0) process.kill(pid, 'SIGCONT');
      else resolve();
    };
    for (const name of databases) watch(join(directory, name), { signal }, look);
  });
  await Promise.race([caught, sleep(checkpointPatience, undefined, { signal })]);
  over.abort();
}

/** Names of the databases whose checkpoint had begun and not ended when the process died. */
export function openCheckpoints(directory: string): string[] {
  return databases.filter((name) => {
    const index = join(directory, `${name}-shm`);
    if (!existsSync(index)) return false;
    const bytes = readFileSync(index);
    return bytes.length > backfillAttempted + 4 && read(bytes, backfillAttempted) > read(bytes, backfilled);
  });
}

/** The index is in the byte order of the machine, which is little-endian wherever Node runs. */
function read(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at);
}

/** What `integrity_check` and `foreign_key_check` say of copies of the files as they lie there. */
export function checkFiles(directory: string): string[] {
  const copies = mkdtempSync(join(directory, 'copy-'));
  try {
    return databases.flatMap((name) => {
      for (const file of [name, `${name}-wal`])
        if (existsSync(join(directory, file))) copyFileSync(join(directory, file), join(copies, file));
      const database = openSqlite(join(copies, name));
      const found = database.pragma('integrity_check') as Array<{ integrity_check: string }>;
      const orphans = database.pragma('foreign_key_check') as object[];
      database.close();
      const faults = found.map((row) => row.integrity_check).filter((text) => text !== 'ok');
      return [...faults, ...orphans.map((row) => JSON.stringify(row))].map((fault) => `${name}: ${fault}`);
    });
  } finally {
    rmSync(copies, { recursive: true, force: true });
  }
}
