/** Makes a large registry in a data directory: one account, templates, trees of organizations, devices with all fields. */
import { join } from 'node:path';
import { accountKey } from '../db/registry/account-key.ts';
import { Registry } from '../db/registry/index.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { allSlots, newId } from '../src/core/ids.ts';
import { Passwords } from '../src/identity/secrets/passwords.ts';
import { createAccount, serviceChannelRows } from '../src/registry/accounts.ts';

// As the service does: it refuses data that other users can open.
process.umask(0o077);

export const seedAdmin = { email: 'admin@bench.example', password: 'a password for the bench' };

const templateCount = 20;
const treeCount = 200;
const perTransaction = 20_000;
const states = ['defined', 'activated', 'activated', 'associated', 'associated', 'associated'];

/** The same numbers in every run, so that two runs measure the same. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Fills `directory`, which must hold no account yet. @returns the account's id. */
export async function seed(directory: string, deviceCount: number, say: (line: string) => void): Promise<string> {
  const started = performance.now();
  const clock = { now: () => Date.now() };
  const registry = await Registry.open(directory);
  const account = { name: 'Bench', adminEmail: seedAdmin.email, adminPassword: seedAdmin.password };
  const { accountId } = await createAccount(
    { registry, clock, passwords: new Passwords(), config: { slots: allSlots } },
    account,
  );
  await registry.close();

  const file = openSqlite(join(directory, 'registry.db'));
  file.pragma('synchronous = OFF');
  // The indexes of a large registry are written at random places.
  file.pragma('cache_size = -400000');
  const dice = random(7);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(dice() * values.length)] as T;
  const created = Date.now() - 365 * 86_400_000;
  const date = (offset: number) => new Date(created + offset).toISOString();
  const common = (offset: number) => {
    const at = date(offset);
    const by = 'bench';
    return {
      id: newId(accountId),
      accountId,
      created: at,
      createdById: by,
      lastModified: at,
      lastModifiedById: by,
      version: 1,
      deleted: null,
    };
  };
  const insert = (table: string, row: object) => {
    const names = Object.keys(row);
    return file.prepare(
      `INSERT INTO "${table}" (${names.map((name) => `"${name}"`)}) VALUES (${names.map((name) => `@${name}`)})`,
    );
  };

  const templates: string[] = [];
  const organizations: string[] = [];
  file.transaction(() => {
    for (let n = 0; n < templateCount; n += 1) {
      const template = { ...common(n), name: `Template ${n}`, default: 0, fields: '{}' };
      insert('deviceTemplates', template).run(template);
      for (const channel of serviceChannelRows(common(n), template.id))
        insert('channelTemplates', channel).run(channel);
      templates.push(template.id);
    }
    const organizationTemplateId = file
      .prepare('SELECT "id" FROM "organizationTemplates" LIMIT 1')
      .pluck()
      .get() as string;
    for (let tree = 0; tree < treeCount; tree += 1) {
      let parentId: string | null = null;
      for (let level = 1; level <= 5; level += 1) {
        const row: { id: string } = {
          ...common(tree),
          organizationTemplateId,
          parentId,
          name: `Organization ${tree}.${level}`,
          fields: '{}',
        } as never;
        insert('organizations', row).run(row);
        organizations.push(row.id);
        parentId = row.id;
      }
    }
  })();

  let insertDevice: ReturnType<typeof insert> | undefined;
  let insertPresence: ReturnType<typeof insert> | undefined;
  for (let done = 0; done < deviceCount; ) {
    const until = Math.min(done + perTransaction, deviceCount);
    file.transaction(() => {
      for (; done < until; done += 1) {
        const offset = Math.floor((done / deviceCount) * 360 * 86_400_000);
        const placed = dice() < 0.9;
        const seen = dice() < 0.8;
        const row = {
          ...common(offset),
          lastModified: date(offset + Math.floor(dice() * 86_400_000)),
          deviceTemplateId: pick(templates),
          organizationId: placed ? pick(organizations) : null,
          serialNumber: `SN${Math.floor(dice() * 36 ** 6)
            .toString(36)
            .toUpperCase()
            .padStart(6, '0')}-${done.toString(36).toUpperCase().padStart(5, '0')}`,
          provisioningState: pick(states),
          firmwareVersion:
            dice() < 0.9 ? `${1 + Math.floor(dice() * 4)}.${Math.floor(dice() * 10)}.${Math.floor(dice() * 10)}` : null,
          latitude: dice() < 0.3 ? String(Math.round(dice() * 18_000 - 9000) / 100) : null,
          longitude: dice() < 0.3 ? String(Math.round(dice() * 36_000 - 18_000) / 100) : null,
          fields: '{}',
        };
        insertDevice ??= insert('devices', row);
        const { lastInsertRowid } = insertDevice.run(row);
        if (!seen) continue;
        const presence = {
          row: lastInsertRowid,
          account: accountKey(accountId),
          connected: dice() < 0.0125 ? 1 : 0,
          lastConnected: date(offset + Math.floor(dice() * 4 * 86_400_000)),
          externalIp: `10.${Math.floor(dice() * 256)}.${Math.floor(dice() * 256)}.${Math.floor(dice() * 256)}`,
          geoIpLatitude: dice() < 0.5 ? String(Math.round(dice() * 18_000 - 9000) / 100) : null,
          geoIpLongitude: dice() < 0.5 ? String(Math.round(dice() * 36_000 - 18_000) / 100) : null,
          reverseDns: dice() < 0.5 ? `host-${Math.floor(dice() * 10_000)}.example.net` : null,
        };
        insertPresence ??= insert('devicePresence', presence);
        insertPresence.run(presence);
      }
    })();
    if (done % 200_000 === 0) say(`${done} devices, ${Math.round((performance.now() - started) / 1000)} s`);
  }
  file.exec('ANALYZE');
  file.pragma('wal_checkpoint(TRUNCATE)');
  file.close();
  say(`${deviceCount} devices in ${Math.round((performance.now() - started) / 1000)} s`);
  return accountId;
}
