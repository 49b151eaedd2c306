/** All that a running server has of accounts that count in another one. */
import { join } from 'node:path';
import { CompiledQuery } from 'kysely';
import type { Registry } from '../../../db/registry/index.ts';
import { slotOf } from '../../../src/core/ids.ts';
import type { CellsContext } from '../../context.ts';
import { recordsGuard } from '../account-contents.ts';
import { MessagesOut } from './messages-out.ts';
import { removalOf } from './pages.ts';

type RemovalServices = Pick<
  CellsContext,
  'access' | 'bridges' | 'broker' | 'config' | 'fields' | 'messages' | 'registry'
>;

/** Devices whose messages are being removed at a time. */
const devicesAtOnce = 20;

/** The accounts of a slot, in order. */
export async function accountsOfSlot({ query }: Pick<Registry, 'query'>, slot: string): Promise<string[]> {
  const rows = await query.selectFrom('accounts').select('id').orderBy('id').execute();
  return rows.flatMap(({ id }) => (slotOf(id) === slot ? [id] : []));
}

/** Removes the accounts in shares, so that others go on meanwhile. Broken off, it is called again. */
export async function removeAccounts(ctx: RemovalServices, accounts: readonly string[]): Promise<void> {
  const { access, bridges, broker, config, messages, registry } = ctx;
  for (const accountId of accounts) bridges.endOf(accountId);
  await broker.handover.depart(new Set(accounts));
  const rows = await registry.query.selectFrom('bridges').select('id').where('accountId', 'in', accounts).execute();
  const bridgeIds = rows.map(({ id }) => id);
  if (bridgeIds.length > 0)
    await new Promise<void>((resolve, reject) =>
      messages.recordOutbox([{ kind: 'forget', bridgeIds }], (error) => (error ? reject(error) : resolve())),
    );
  // The id of a device may be that of another account's, where a move was refused because of it.
  const devices = devicesIn(join(config.dataDir, 'messages.db'), accounts, bridgeIds).filter((id) => {
    const owner = registry.placement(id)?.accountId;
    return owner === undefined || accounts.includes(owner);
  });
  for (let from = 0; from < devices.length; from += devicesAtOnce)
    await Promise.all(devices.slice(from, from + devicesAtOnce).map((id) => messages.deleteDevice(id)));
  for (const accountId of accounts) await messages.forgetAccount(accountId);
  const organizations = [...registry.organizations()].filter(({ accountId }) => accounts.includes(accountId));
  for (const { table, sql, isRepeated } of removalOf(accounts))
    for (let more = true; more; ) more = (await removeRows(registry, table, sql)) && isRepeated;
  for (const { id } of organizations) access.organizationPurged(id);
  forgetCaches(ctx);
}

/** What is kept in memory of rows is read again. */
export function forgetCaches({ access, fields }: Pick<RemovalServices, 'access' | 'fields'>): void {
  access.accountsChanged();
  fields.accountsChanged();
}

/** Whether rows were removed. */
function removeRows(registry: Registry, table: string, sql: string): Promise<boolean> {
  return registry.longTransaction(async (tx) => {
    const run = (text: string) => tx.executeQuery<{ sql: string }>(CompiledQuery.raw(text));
    await run('PRAGMA defer_foreign_keys = ON');
    const guarded = table === 'auditRecords' ? await run(recordsGuard.read) : undefined;
    const trigger = guarded?.rows[0]?.sql;
    if (trigger !== undefined) await run(recordsGuard.drop);
    const { numAffectedRows = 0n } = await run(sql);
    if (trigger !== undefined) await run(trigger);
    return numAffectedRows > 0n;
  });
}

function devicesIn(path: string, accounts: readonly string[], bridges: readonly string[]): string[] {
  const out = new MessagesOut(path, accounts, bridges);
  try {
    return out.devices();
  } finally {
    out.close();
  }
}
