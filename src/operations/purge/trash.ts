/** Entities that have been in the trash for 30 days, with all that belongs to them. */
import { type Kysely, sql } from 'kysely';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Tx } from '../../../db/registry/index.ts';
import { dependents, type EntityTable, entityTables, keepersOf } from '../../../db/registry/records/by-table.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { FieldKind } from '../../entity/values.ts';
import { recoveryWindow } from '../../entity/verbs.ts';
import { type PurgeContext, type Step, stepSize } from './step.ts';

/** They have a step of their own. */
const apart: ReadonlySet<EntityTable> = new Set(['devices', 'channelTemplates', 'customFields']);
/** Rows that are no entities, and must be purged before what they name. */
const keptBesides: Partial<Record<EntityTable, Array<{ table: string; column: string }>>> = {
  firmwarePackages: [{ table: 'firmwareDeliveries', column: 'firmwarePackageId' }],
};
/** All others; a row stays while another one names it, also one in the trash. */
const others = entityTables
  .filter((table) => !apart.has(table))
  .map((table) => ({ table, keepers: [...keepersOf(table), ...(keptBesides[table] ?? [])] }));

/** The entities whose values a purged custom field leaves behind, by kind of field. */
const holders: Record<FieldKind, { table: FieldKind; column: string }> = {
  devices: { table: 'devices', column: 'deviceTemplateId' },
  endUsers: { table: 'endUsers', column: 'endUserTemplateId' },
  organizations: { table: 'organizations', column: 'organizationTemplateId' },
  deviceTemplates: { table: 'deviceTemplates', column: 'accountId' },
};

/** When a deletion is too old to be undone. */
function due({ clock }: PurgeContext): string {
  return new Date(clock.now() - recoveryWindow).toISOString();
}

function dueIds(ctx: PurgeContext, table: EntityTable, limit = stepSize): Promise<Array<{ id: string }>> {
  return (ctx.registry.query as unknown as Kysely<Record<string, { id: string; deleted: string | null }>>)
    .selectFrom(table)
    .select('id')
    .where('deleted', 'is not', null)
    .where('deleted', '<', due(ctx))
    .limit(limit)
    .execute();
}

export async function purgeDevices(ctx: PurgeContext): Promise<boolean> {
  const ids = (await dueIds(ctx, 'devices')).map(({ id }) => id);
  // The other store first: a crash in between leaves the device to be purged again.
  for (const id of ids) await ctx.messages.deleteDevice(id);
  if (ids.length > 0) await ctx.bridges.kept.forgetDevices(ids, Date.parse(due(ctx)));
  if (ids.length > 0)
    await ctx.registry.transaction(async (tx) => {
      await tx.deleteFrom('idempotentAnswers').where('secretOf', 'in', ids).execute();
      await tx.deleteFrom('associationCodes').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('supportRequests').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('refusals').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('publications').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('enrollments').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('verifications').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('firmwareDeliveries').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('firmwareTargets').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('commands').where('deviceId', 'in', ids).execute();
      await removeEntities(tx, 'devices', ids);
    });
  for (const id of ids) ctx.access.deviceChanged(id);
  return ids.length > 0;
}

/** Removes rows with all that goes with them; how many. */
async function removeEntities(tx: Tx, table: EntityTable, ids: readonly string[]): Promise<bigint> {
  const any = tx as unknown as Kysely<Record<string, Record<string, string>>>;
  await any.deleteFrom('credentials').where('entityId', 'in', ids).execute();
  for (const { table: child, column } of dependents) await any.deleteFrom(child).where(column, 'in', ids).execute();
  return (await any.deleteFrom(table).where('id', 'in', ids).executeTakeFirst()).numDeletedRows;
}

export async function purgeChannels(ctx: PurgeContext): Promise<boolean> {
  const [channel] = await dueIds(ctx, 'channelTemplates', 1);
  if (!channel) return false;
  await ctx.messages.deleteChannel(channel.id);
  await ctx.registry.query.deleteFrom('channelTemplates').where('id', '=', channel.id).execute();
  return true;
}

/** Purges one field after the other: its values, going through the entities in the order of their ids, and then itself. */
export function fieldPurge(): Step {
  let current: { field: Row<'customFields'>; after: string } | undefined;
  return async (ctx) => {
    const { field, after } = current ?? { field: await dueField(ctx), after: '' };
    if (!field) return false;
    const last = await ctx.registry.transaction(async (tx) => {
      const last = await stripValues(tx, field, after);
      if (last === undefined) await tx.deleteFrom('customFields').where('id', '=', field.id).execute();
      return last;
    });
    current = last === undefined ? undefined : { field, after: last };
    return true;
  };
}

async function dueField(ctx: PurgeContext): Promise<Row<'customFields'> | undefined> {
  const [due] = await dueIds(ctx, 'customFields', 1);
  return due && findEntity(ctx.registry.query, 'customFields', due.id);
}

/**
 * Removes a field's values from the entities of the next ids after `after`; the last of these ids, undefined at the end.
 * Asking for the next that have a value would go through all before them each time: hours for a million.
 */
async function stripValues(tx: Tx, { id: key, kind, templateId }: Row<'customFields'>, after: string) {
  const holder = holders[kind as FieldKind];
  const rows = await (tx as unknown as Kysely<Record<string, { id: string; template: string; fields: string }>>)
    .selectFrom(holder.table)
    .select(['id', sql.ref<string>(holder.column).as('template'), 'fields'])
    .where('id', '>', after)
    .orderBy('id')
    .limit(stepSize)
    .execute();
  for (const { id, template, fields } of rows) {
    if (template !== templateId || !fields.includes(`"${key}":`)) continue;
    const { [key]: _, ...rest } = JSON.parse(fields) as Record<string, unknown>;
    await tx
      .updateTable(holder.table as 'devices')
      .set({ fields: JSON.stringify(rest) })
      .where('id', '=', id)
      .execute();
  }
  return rows.length < stepSize ? undefined : rows.at(-1)?.id;
}

/** What groups in the trash know of their devices, which stay: the groups themselves go after it. */
export async function purgeEnrollments(ctx: PurgeContext): Promise<boolean> {
  const groups = (await dueIds(ctx, 'enrollmentGroups')).map(({ id }) => id);
  if (groups.length === 0) return false;
  const { query } = ctx.registry;
  const some = query.selectFrom('enrollments').select('deviceId').where('groupId', 'in', groups).limit(stepSize);
  const gone = await query.deleteFrom('enrollments').where('deviceId', 'in', some).executeTakeFirst();
  return gone.numDeletedRows > 0n;
}

/** Entities to which nothing points any more; what belongs to a template goes with it. */
export async function purgeUnreferenced(ctx: PurgeContext): Promise<boolean> {
  let purged = 0n;
  for (const { table, keepers } of others) {
    const free = sql.join(
      [
        sql`1 = 1`,
        ...keepers.map(
          ({ table: child, column }) =>
            sql`not exists (select 1 from ${sql.table(child)} as "child" where "child".${sql.ref(column)} = "dead"."id")`,
        ),
      ],
      sql` and `,
    );
    const ids = sql`select "id" from ${sql.table(table)} as "dead" where "deleted" is not null and "deleted" < ${due(ctx)} and ${free} limit ${stepSize}`;
    const { rows } = await sql<{ id: string }>`${ids}`.execute(ctx.registry.query);
    if (rows.length === 0) continue;
    const dead = rows.map(({ id }) => id);
    const channels = table === 'deviceTemplates' ? await channelsOf(ctx, dead) : [];
    for (const id of channels) await ctx.messages.deleteChannel(id);
    await ctx.registry.transaction(async (tx) => {
      purged += await removeEntities(tx, table, dead);
    });
    for (const id of dead) {
      ctx.access.organizationPurged(id);
      ctx.access.channelsChanged(id);
      ctx.fields.changed(id);
    }
  }
  return purged > 0n;
}

async function channelsOf({ registry }: PurgeContext, templateIds: string[]): Promise<string[]> {
  const rows = await registry.query
    .selectFrom('channelTemplates')
    .select('id')
    .where('entityId', 'in', templateIds)
    .execute();
  return rows.map(({ id }) => id);
}
