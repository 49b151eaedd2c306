/** A data directory that was in use is never a first start: what is gone of it is named before anything is made anew. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { firmwareName } from '../../db/files/firmware.ts';
import { snapshotsName, versionName } from '../../db/files/snapshots.ts';
import type { Registry } from '../../db/registry/index.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { Sealing } from '../identity/secrets/sealing.ts';

/** Parts of a data directory without which the others are not whole, and what is lost with each. */
export const lostWith = {
  'registry.db': 'all accounts, people, devices and their credentials; the rest is set aside with it',
  'messages.db': 'all points and logs, stored MQTT sessions, and what waited for bridges',
  'keys/sealing.key':
    'second factors, secrets of bridges and identity providers, derived keys, issuing CAs and codes of labels: each must be set up again',
} as const;
export type PartName = keyof typeof lostWith;

/** A part that was there, and is not, or is another one. */
export interface MissingPart {
  name: PartName;
  /** Follows the name in a sentence. */
  fault: string;
}

/** What a directory has lost since a server, or a command, has made it; nothing of one that was never in use. */
export function missingPart(directory: string): MissingPart | undefined {
  if (isEmpty(directory, 'registry.db')) {
    // Not the keys: a new cell begins with a copy of them. The others are made once the registry is there, however a start ends.
    const used = [versionName, snapshotsName, firmwareName].some((name) => existsSync(join(directory, name)));
    return used || !isEmpty(directory, 'messages.db')
      ? { name: 'registry.db', fault: gone(directory, 'registry.db') }
      : undefined;
  }
  const marks = readMarks(directory);
  if (marks.has('messages.db') && isEmpty(directory, 'messages.db'))
    return { name: 'messages.db', fault: gone(directory, 'messages.db') };
  const key = 'keys/sealing.key';
  const expected = marks.get(key);
  if (expected === undefined) return undefined;
  if (isEmpty(directory, key)) return { name: key, fault: gone(directory, key) };
  return fingerprintIn(directory) === expected ? undefined : { name: key, fault: 'is not the key of this registry' };
}

/** One sentence with the ways out; undefined when nothing is missing. */
export function describeMissing(directory: string): string | undefined {
  const missing = missingPart(directory);
  if (!missing) return undefined;
  const { name, fault } = missing;
  return `${join(directory, name)} ${fault}, and the directory was in use: put the file back or restore a backup, or run slipway data give-up ${name}, which says what is lost and goes on without it.`;
}

/** Notes what is there, once all of it has been opened. */
export async function markParts(registry: Registry, sealing: Sealing): Promise<void> {
  await registry.query
    .insertInto('directoryMarks')
    .values([
      { name: 'messages.db', fingerprint: '' },
      { name: 'keys/sealing.key', fingerprint: sealing.fingerprint },
    ])
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** The next start makes the part anew, or takes the one that is there. */
export function forgetMark(directory: string, name: PartName): void {
  const file = openSqlite(join(directory, 'registry.db'));
  try {
    file.prepare('DELETE FROM "directoryMarks" WHERE "name" = ?').run(name);
  } finally {
    file.close();
  }
}

function isEmpty(directory: string, name: PartName): boolean {
  return (statSync(join(directory, name), { throwIfNoEntry: false })?.size ?? 0) === 0;
}

function gone(directory: string, name: PartName): string {
  return existsSync(join(directory, name)) ? 'is empty' : 'is missing';
}

function fingerprintIn(directory: string): string | undefined {
  try {
    return Sealing.open(join(directory, 'keys')).fingerprint;
  } catch {
    return undefined;
  }
}

/** Empty before the registry has had the step that makes them. */
function readMarks(directory: string): Map<string, string> {
  const file = openSqlite(join(directory, 'registry.db'), { readonly: true });
  try {
    if (!file.prepare(`SELECT 1 FROM "sqlite_schema" WHERE "name" = 'directoryMarks'`).get()) return new Map();
    const rows = file.prepare<[], { name: string; fingerprint: string }>('SELECT * FROM "directoryMarks"').all();
    return new Map(rows.map(({ name, fingerprint }) => [name, fingerprint]));
  } finally {
    file.close();
  }
}
