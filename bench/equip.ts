/** Gives devices of a seeded registry what they need to speak: secrets, and channels on their templates. */
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { openSqlite } from '../db/sqlite/open.ts';
import { newId } from '../src/core/ids.ts';
import { makeSecret, Secrets } from '../src/identity/secrets/secrets.ts';

export interface Equipped {
  accountId: string;
  id: string;
  secret: string;
  /** What its topics begin with. */
  root: string;
  topic(channel: 'temperature' | 'chat'): string;
}

/** Equips the first `count` devices of `directory`, where no service may run: `temperature` is stored, `chat` is not. */
export async function equip(directory: string, count: number): Promise<Equipped[]> {
  const file = openSqlite(join(directory, 'registry.db'));
  const accountId = file.prepare('SELECT "id" FROM "accounts" LIMIT 1').pluck().get() as string;
  const ids = file.prepare('SELECT "id" FROM "devices" LIMIT ?').pluck().all(count) as string[];
  file.transaction(() => {
    for (const row of file.prepare(`SELECT * FROM "channelTemplates" WHERE "name" = '_log'`).all() as object[]) {
      const add = (more: object) => insertRow(file, 'channelTemplates', { ...row, id: newId(accountId), ...more });
      add({ name: 'temperature', persistenceType: 'timeSeries' });
      add({ name: 'chat', persistenceType: 'simple' });
    }
  })();
  file.close();
  return giveSecrets(directory, accountId, ids);
}

/** Gives devices of an account secrets, in place of those that they have. */
export async function giveSecrets(directory: string, accountId: string, ids: readonly string[]): Promise<Equipped[]> {
  const secrets = new Secrets();
  const made = ids.map((id) => ({ id, secret: makeSecret() }));
  const hashes = await Promise.all(made.map(({ secret }) => secrets.hash(secret)));
  const stamp = { created: now(), createdById: 'bench', lastModified: now(), lastModifiedById: 'bench', version: 1 };
  const file = openSqlite(join(directory, 'registry.db'));
  file.transaction(() => {
    for (const [at, { id }] of made.entries())
      insertRow(file, 'credentials', {
        ...stamp,
        id: newId(accountId),
        accountId,
        entityId: id,
        entityType: 'device',
        secretHash: hashes[at],
        generation: 1,
      });
  })();
  file.close();
  return made.map((device) => {
    const root = `slipway/v1/${accountId}/d/${device.id}`;
    return { ...device, accountId, root, topic: (channel) => `${root}/${channel}` };
  });
}

/** Writes a row as it is, in place of the one with its key. */
export function insertRow(file: Database.Database, table: string, row: object): void {
  const names = Object.keys(row);
  const columns = names.map((name) => `"${name}"`);
  file.prepare(`INSERT OR REPLACE INTO "${table}" (${columns}) VALUES (${names.map((name) => `@${name}`)})`).run(row);
}

function now(): string {
  return new Date().toISOString();
}
