/** Accounts: a hard wall around everything of one customer of the service. */

import { sql } from 'kysely';
import { Type } from 'typebox';
import type { Db, Registry } from '../../db/registry/index.ts';
import { DateText, Id, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import { type Config, ConfigError } from '../core/config.ts';
import { PlatformError } from '../core/errors.ts';
import { readPasswordFile } from '../core/formats/password-file.ts';
import { newAccountId, newId } from '../core/ids.ts';
import { serviceChannelNames, serviceChannels } from '../core/topics.ts';
import { insert, stamp } from '../entity/verbs.ts';
import { demandEmail, insertIdentity, newIdentity } from '../identity/identities.ts';
import { demandPassword, type Passwords } from '../identity/secrets/passwords.ts';

type Services = { registry: Registry; clock: Clock; passwords: Passwords; config: Pick<Config, 'slots'> };

/** What `expand=account` adds. */
export const expandedAccount = Type.Object({ id: Id, name: Type.String(), created: DateText });

/** The caller's account, for `expand=account`. */
export async function accountOf(db: Db, caller: Caller) {
  const { id, name, created } = await db
    .selectFrom('accounts')
    .selectAll()
    .where('id', '=', caller.accountId)
    .executeTakeFirstOrThrow();
  return { id, name, created };
}

interface NewAccount {
  id?: string | undefined;
  name: string;
  adminEmail: string;
  /** Made when absent. */
  adminPassword?: string | undefined;
}

export interface CreatedAccount {
  accountId: string;
  adminEmail: string;
  adminPassword: string;
}

/**
 * Makes an account with its three default templates and its first admin. The password is in the answer and nowhere else.
 * @throws PlatformError 400 with 106 for an email or password that cannot be, or an id that is taken.
 */
export async function createAccount(
  { registry, clock, passwords, config }: Services,
  account: NewAccount,
): Promise<CreatedAccount> {
  const { name, adminEmail } = account;
  const chosen = await passwords.choose('adminPassword', account.adminPassword, adminEmail);
  const { password: adminPassword, passwordHash } = chosen;
  const accountId = account.id ?? newAccountId(await countSlots(registry), config.slots);
  const identity = newIdentity(clock, 'adminEmail', {
    accountId,
    email: adminEmail,
    passwordHash,
    passwordChosenBy: 'operator',
  });
  const by = { id: identity.id, accountId };

  await registry.transaction(async (tx) => {
    const existing = await tx.selectFrom('accounts').select('id').where('id', '=', accountId).executeTakeFirst();
    if (existing)
      throw new PlatformError('notUnique', {
        details: [{ path: 'accountId', message: 'Another account already has this id.' }],
      });
    await tx
      .insertInto('accounts')
      .values({ id: accountId, name, created: timestamp(clock), retentionDays: null, signUp: 1, customersMayRemove: 1 })
      .execute();
    await insertIdentity(tx, 'adminEmail', identity);
    await insert(tx, 'accountUsers', {
      ...stamp(clock, by),
      userId: identity.id,
      roleId: null,
      identityProviderId: null,
    });
    for (const table of ['deviceTemplates', 'endUserTemplates', 'organizationTemplates'] as const) {
      const template = await insert(tx, table, {
        ...stamp(clock, by),
        name: 'Default',
        default: 1,
        fields: '{}',
        ...(table === 'deviceTemplates' && { skipSameVersion: 1, commands: '[]', commandsOnly: 0 }),
      });
      if (table !== 'deviceTemplates') continue;
      for (const channel of serviceChannelRows(stamp(clock, by), template.id))
        await insert(tx, 'channelTemplates', channel);
    }
  });
  return { accountId, adminEmail, adminPassword };
}

/** The admin of the first account, as configured. */
interface FirstAdmin {
  adminEmail: string;
  adminPassword: string | undefined;
}

/** Creates the first account if there is none. Its password is in the answer and nowhere else. @throws ConfigError */
export async function createFirstAccount(
  services: Services & { config: Config },
  admin?: FirstAdmin,
): Promise<CreatedAccount | undefined> {
  const { config } = services;
  const existing = await services.registry.query.selectFrom('accounts').select('id').limit(1).executeTakeFirst();
  if (existing) return undefined;
  const { id, name } = config.firstAccount;
  return createAccount(services, { id, name, ...(admin ?? readFirstAdmin(config)) });
}

/** Reads a password file once: it may be a pipe. @throws ConfigError when the email address or the password breaks the rules. */
export function readFirstAdmin({ firstAccount }: Pick<Config, 'firstAccount'>): FirstAdmin {
  const { adminEmail = 'admin@slipway.local', adminPasswordFile } = firstAccount;
  const adminPassword = readFirstPassword({ firstAccount });
  try {
    demandEmail('SLIPWAY_ADMIN_EMAIL', adminEmail);
    const variable = adminPasswordFile === undefined ? 'SLIPWAY_ADMIN_PASSWORD' : passwordFileVariable;
    if (adminPassword !== undefined) demandPassword(variable, adminPassword, adminEmail);
  } catch (error) {
    const [detail] = error instanceof PlatformError ? error.details : [];
    if (!detail) throw error;
    throw new ConfigError(`${detail.path} ${detail.message}.`);
  }
  return { adminEmail, adminPassword };
}

const passwordFileVariable = 'SLIPWAY_ADMIN_PASSWORD_FILE';

/** The configured password of the first admin. @throws ConfigError for a file without one. */
function readFirstPassword({ firstAccount }: Pick<Config, 'firstAccount'>): string | undefined {
  const { adminPassword, adminPasswordFile } = firstAccount;
  if (adminPasswordFile === undefined) return adminPassword;
  if (adminPassword !== undefined)
    throw new ConfigError(`${passwordFileVariable} and SLIPWAY_ADMIN_PASSWORD are both set: set one of them.`);
  try {
    return readPasswordFile(adminPasswordFile);
  } catch (error) {
    throw new ConfigError(`${passwordFileVariable} ${(error as Error).message}`);
  }
}

/** How many accounts there are in each slot that has any. */
async function countSlots({ query }: Registry): Promise<Map<string, number>> {
  const slot = sql<string>`substr("id", 27, 3)`;
  const counts = query.selectFrom('accounts').select((eb) => [slot.as('slot'), eb.fn.countAll<number>().as('count')]);
  const rows = await counts.groupBy(slot).execute();
  return new Map(rows.map((row) => [row.slot, row.count]));
}

/** The internal channels of a new device template: they are made with it and cannot be deleted. */
export function serviceChannelRows(stamped: ReturnType<typeof stamp>, templateId: string): Row<'channelTemplates'>[] {
  return serviceChannelNames
    .filter((name) => serviceChannels[name].listed)
    .map((name) => ({
      ...stamped,
      id: newId(stamped.accountId),
      entityId: templateId,
      entityType: 'deviceTemplate',
      name,
      streamBridgeDelivery: 0,
      persistenceType: 'simple',
      retentionDays: null,
      payload: 'auto',
      categories: '[]',
    }));
}
