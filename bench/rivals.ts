/** Two accounts that share the service: one that minds its own business, and one that has as much of everything as limits allow. */
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { MessageStore, type Point } from '../db/messages/store.ts';
import { Registry } from '../db/registry/index.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { allSlots, newId } from '../src/core/ids.ts';
import { Passwords } from '../src/identity/secrets/passwords.ts';
import { createAccount } from '../src/registry/accounts.ts';
import { type Equipped, equip, giveSecrets, insertRow } from './equip.ts';
import { seedAdmin } from './seed.ts';

/** Devices of the attacker: as many as a page may have. Some of them have secrets. */
const devicesOfAttacker = 1000;
const withSecrets = 200;
/** The defaults of SLIPWAY_MAX_CHANNEL_TEMPLATES, SLIPWAY_MAX_CUSTOM_FIELDS and SLIPWAY_MAX_VALUE_BYTES. */
const maxChannels = 100;
const maxFields = 100;
const maxValueBytes = 65_536;
const organizationLevels = 5;
/** Points of one series of the attacker, one a second. */
const pointsStored = 300_000;
const pointsAtOnce = 5000;
const devicesOfVictim = 40;

export interface Party {
  accountId: string;
  admin: { email: string; password: string };
  devices: Equipped[];
}

export interface Rivals {
  victim: Party;
  attacker: Party & { deviceTemplateId: string; organizationId: string; series: { from: string; to: string } };
}

/** Fills `directory`, which holds one seeded account: that one is the victim. */
export async function prepareRivals(directory: string): Promise<Rivals> {
  const devices = await equip(directory, devicesOfVictim);
  const victim = { accountId: devices[0]?.accountId ?? '', admin: seedAdmin, devices };
  const admin = { email: 'attacker@bench.example', password: 'a password of the attacker' };
  const registry = await Registry.open(directory);
  const { accountId } = await createAccount(
    { registry, clock: { now: () => Date.now() }, passwords: new Passwords(), config: { slots: allSlots } },
    { name: 'Attacker', adminEmail: admin.email, adminPassword: admin.password },
  );
  await registry.close();
  const made = makeMaxima(directory, accountId);
  const attacking = await giveSecrets(directory, accountId, made.deviceIds.slice(0, withSecrets));
  const series = await fillSeries(directory, {
    accountId,
    deviceId: attacking[0]?.id ?? '',
    channelTemplateId: made.channelTemplateId,
  });
  const { deviceTemplateId, organizationId } = made;
  return { victim, attacker: { accountId, admin, devices: attacking, deviceTemplateId, organizationId, series } };
}

/** Channels, custom fields, organizations and devices of the attacker, all of them as large as they may be. */
function makeMaxima(directory: string, accountId: string) {
  const file = openSqlite(join(directory, 'registry.db'));
  const insert = (table: string, row: object) => insertRow(file, table, row);
  const one = (table: string) =>
    file.prepare(`SELECT * FROM "${table}" WHERE "accountId" = ?`).get(accountId) as Record<string, string>;
  const common = () => {
    const now = new Date().toISOString();
    return {
      id: newId(accountId),
      accountId,
      created: now,
      createdById: 'bench',
      lastModified: now,
      lastModifiedById: 'bench',
      version: 1,
      deleted: null,
    };
  };
  const [deviceTemplate, organizationTemplate] = [one('deviceTemplates'), one('organizationTemplates')];
  const channelTemplateId = newId(accountId);
  const deviceIds: string[] = [];
  let organizationId = '';
  const fieldsOf = (templateId: string, kind: string) => {
    const values: Record<string, string> = {};
    for (let n = 0; n < maxFields; n += 1) {
      const id = newId(accountId);
      const field = { kind, templateId, name: `field${n}`, fieldType: 'text', description: null, required: 0 };
      insert('customFields', { ...common(), id, ...field, default: null });
      values[id] = 'x'.repeat(Math.floor(maxValueBytes / maxFields) - 50);
    }
    return JSON.stringify(values);
  };
  file.transaction(() => {
    const model = one('channelTemplates');
    for (let n = 0; n < maxChannels; n += 1) {
      const name = n === 0 ? 'temperature' : n === 1 ? 'chat' : `channel${n}`;
      const persistenceType = n === 0 ? 'timeSeries' : 'simple';
      insert('channelTemplates', {
        ...model,
        ...common(),
        id: n === 0 ? channelTemplateId : newId(accountId),
        entityId: deviceTemplate.id,
        name,
        persistenceType,
      });
    }
    const ofOrganization = fieldsOf(organizationTemplate.id ?? '', 'organization');
    let parentId: string | null = null;
    for (let level = 1; level <= organizationLevels; level += 1) {
      organizationId = newId(accountId);
      const named = { parentId, name: `Organization ${level}`, fields: ofOrganization };
      insert('organizations', {
        ...common(),
        id: organizationId,
        organizationTemplateId: organizationTemplate.id,
        ...named,
      });
      parentId = organizationId;
    }
    const ofDevice = fieldsOf(deviceTemplate.id ?? '', 'device');
    for (let n = 0; n < devicesOfAttacker; n += 1) {
      const row = { ...common(), deviceTemplateId: deviceTemplate.id, organizationId, serialNumber: `ATTACK-${n}` };
      insert('devices', { ...row, provisioningState: 'activated', fields: ofDevice });
      deviceIds.push(row.id);
    }
  })();
  file.close();
  return { deviceIds, channelTemplateId, organizationId, deviceTemplateId: deviceTemplate.id ?? '' };
}

async function fillSeries(directory: string, key: { accountId: string; deviceId: string; channelTemplateId: string }) {
  const messages = await MessageStore.open(directory, { log: console });
  const start = Date.now() - pointsStored * 1000;
  for (let done = 0; done < pointsStored; done += pointsAtOnce) {
    const points = Array.from({ length: pointsAtOnce }, (_, n): Point => {
      const place = done + n;
      return { time: start + place * 1000, category: `c${place % 10}`, numericValue: place / 7, stringValue: null };
    });
    await new Promise<void>((resolve, reject) =>
      messages.append(key, points, (error) => (error ? reject(error) : resolve())),
    );
    await nextTurn();
  }
  await messages.close();
  return { from: new Date(start).toISOString(), to: new Date().toISOString() };
}
