/** Room on the disk, and how long it will do. */
import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import { databasesIn } from '../../db/files/copies.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import type { Config } from '../../src/core/config.ts';
import { type Finding, findings, size } from './finding.ts';

const { ok, warning, error } = findings('disk');
const day = 24 * 60 * 60_000;
/** Days that are enough to do something about it, and those that are not. */
const enough = 30;
const tooFew = 3;
/** Growth is not told from less: the first minutes of a service say nothing of its months. Milliseconds. */
const minAge = 60 * 60_000;
/** What statfs says on Linux of what another machine serves. FUSE is left out: it does not tell where the bytes are. */
const networks: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'SMB'],
  [0xfe534d42, 'SMB'],
  [0x01021997, '9P'],
  [0x00c36400, 'CephFS'],
  [0x0bd00bd0, 'Lustre'],
  [0x5346414f, 'AFS'],
  [0x6b414653, 'AFS'],
]);

type Settings = Pick<Config, 'dataDir' | 'messages'>;

interface Disk {
  /** Bytes. */
  free: number;
  whole: number;
  /** Of its file system, as statfs has it. */
  type?: number;
}

/** `now` in milliseconds. */
export function lookAtDisk({ dataDir, messages }: Settings, now: number, disk: Disk = measure(dataDir)): Finding[] {
  const { free, whole, type = 0 } = disk;
  const network = networks.get(type);
  const found: Finding[] = [];
  if (network !== undefined)
    found.push(
      warning(
        `${dataDir} is on a network file system (${network}): the locks of SQLite are not safe there, and databases may be damaged. Move it to a local disk or a network block device.`,
      ),
    );
  const room = free - messages.diskReserveBytes;
  const said = `${size(free)} of ${size(whole)} are free, SLIPWAY_DISK_RESERVE_BYTES keeps ${size(messages.diskReserveBytes)}`;
  if (room <= 0)
    return [
      ...found,
      error(
        `${said}: messages are refused. Make room on the disk; a retention or a cap makes none, it only ends the growth.`,
      ),
    ];
  if (messages.maxBytes > whole - messages.diskReserveBytes)
    found.push(
      warning('SLIPWAY_MESSAGES_MAX_BYTES is more than the disk has without its reserve, so the cap has no effect.'),
    );
  const held = databasesIn(dataDir).includes('messages.db') ? readHeld(dataDir) : undefined;
  if (!held) return [...found, ok(`${said}; nothing is stored yet`)];

  const { used, spare, since } = held;
  // With a retention what is there has come within it, however old the file is.
  const kept = messages.retentionDays === 0 ? Number.POSITIVE_INFINITY : messages.retentionDays * day;
  const age = now - since;
  const growth = `messages.db holds ${size(used)}`;
  if (age < minAge) return [...found, ok(`${said}; ${growth}, and is too young for a forecast`)];
  const aDay = (used / Math.min(age, kept)) * day;
  const rate = `${growth}, ${size(aDay)} for each day`;
  const most = Math.min(
    messages.maxBytes === 0 ? Number.POSITIVE_INFINITY : messages.maxBytes,
    kept === Number.POSITIVE_INFINITY ? kept : (aDay * kept) / day,
  );
  if (most - used <= room + spare)
    return [...found, ok(`${said}; ${rate}, and stays below ${size(most)} by its cap or retention`)];
  const days = Math.floor((room + spare) / aDay);
  const forecast = `${said}; ${rate}: that does for ${days} days`;
  if (days < tooFew) return [...found, error(forecast)];
  return [...found, days < enough ? warning(forecast) : ok(forecast)];
}

function measure(dataDir: string): Disk {
  const { bavail, bsize, blocks, type } = statfsSync(dataDir);
  return { free: bavail * bsize, whole: blocks * bsize, type };
}

/** Bytes in use of messages.db, those that are free in it, and when it was made (milliseconds); undefined when that is not known. */
function readHeld(dataDir: string): { used: number; spare: number; since: number } | undefined {
  const file = openSqlite(join(dataDir, 'messages.db'), { readonly: true });
  try {
    const number = (name: string) => Number(file.pragma(name, { simple: true }));
    const made = file.prepare<[], string | null>('SELECT min("applied") FROM "migrations"').pluck().get();
    const since = Date.parse(made ?? '');
    const spare = number('freelist_count') * number('page_size');
    const used = number('page_count') * number('page_size') - spare;
    return Number.isNaN(since) ? undefined : { used, spare, since };
  } finally {
    file.close();
  }
}
