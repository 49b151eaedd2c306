/** The end of what has been in the trash for 30 days, in small steps, with all that belongs to it. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Kysely, sql } from 'kysely';
import type { Logger } from 'pino';
import type { MessageStore } from '../db/messages/store.js';
import type { Registry, Tx } from '../db/registry/index.js';
import type { EntityTable, Row } from '../db/registry/records.js';
import type { Access } from './access.js';
import type { Bridges } from './bridges/index.js';
import { type Clock, timestamp } from './clock.js';
import type { Collector } from './downlink/packages/contents.js';
import type { Fields } from './entity/fields.js';
import { answerLifetime } from './entity/kept-answers.js';
import { find, recoveryWindow } from './entity/verbs.js';
import type { Retention } from './messages/retention.js';
import { expireMessages } from './messages/retention.js';

/** Rows that one transaction looks at, so that other writers and the event loop get their turn in between. */
const stepSize = 100;
/** Milliseconds from one run to the next, and from the start to the first. */
const interval = 60 * 60_000;
const firstRun = 60_000;
const day = 24 * 60 * 60_000;
/** How long commands that have ended, and rollouts, can be read; milliseconds. */
const commandsKept = 30 * day;
const rolloutsKept = 180 * day;

type PurgeContext = {
  registry: Registry;
  messages: MessageStore;
  bridges: Bridges;
  retention: Retention;
  clock: Clock;
  log: Logger;
  access: Access;
  fields: Fields;
  collector: Collector;
};

/** References to a row of a table; while one exists, the row stays. Children in the trash count too. */
const references: ReadonlyArray<{ table: EntityTable; by: ReadonlyArray<[EntityTable, string]> }> = [
  { table: 'endUsers', by: [] },
  { table: 'accountUsers', by: [] },
  { table: 'applications', by: [] },
  { table: 'identityProviders', by: [] },
  { table: 'bridges', by: [] },
  { table: 'certificates', by: [] },
  { table: 'certificateAuthorities', by: [] },
  { table: 'firmwareRollouts', by: [] },
  { table: 'firmwarePackages', by: [['firmwareRollouts', 'firmwarePackageId']] },
  {
    table: 'organizations',
    by: [
      ['devices', 'organizationId'],
      ['endUsers', 'organizationId'],
      ['organizations', 'parentId'],
    ],
  },
  {
    table: 'deviceTemplates',
    by: [
      ['devices', 'deviceTemplateId'],
      ['firmwarePackages', 'deviceTemplateId'],
    ],
  },
  { table: 'endUserTemplates', by: [['endUsers', 'endUserTemplateId']] },
  { table: 'organizationTemplates', by: [['organizations', 'organizationTemplateId']] },
];

/** The entities whose values a purged custom field leaves behind, by kind of field. */
const holders: Record<string, { table: 'devices' | 'endUsers' | 'organizations' | 'deviceTemplates'; column: string }> =
  {
    devices: { table: 'devices', column: 'deviceTemplateId' },
    endUsers: { table: 'endUsers', column: 'endUserTemplateId' },
    organizations: { table: 'organizations', column: 'organizationTemplateId' },
    deviceTemplates: { table: 'deviceTemplates', column: 'accountId' },
  };

/** Purges now and then until `stop`, which waits for the step under way. */
export function startPurge(ctx: PurgeContext): { stop(): Promise<void> } {
  let stopped = false;
  let running: Promise<void> | undefined;
  const run = () => {
    running ??= purge(ctx, () => stopped).finally(() => {
      running = undefined;
    });
  };
  const first = setTimeout(run, firstRun);
  const timer = setInterval(run, interval);
  first.unref();
  timer.unref();
  return {
    stop: async () => {
      stopped = true;
      clearTimeout(first);
      clearInterval(timer);
      await running;
    },
  };
}

/** Does a little of the work; whether there may be more. */
type Step = (ctx: PurgeContext) => Promise<boolean>;

/** Purges all that is due; `isStopped` is asked between the steps. What fails is in the log and holds up nothing else. */
export async function purge(ctx: PurgeContext, isStopped: () => boolean = () => false): Promise<void> {
  const steps: Step[] = [
    purgeDevices,
    purgeChannels,
    fieldPurge(),
    purgeUnreferenced,
    purgeSessions,
    purgeExpired,
    purgeAnswers,
    purgeCommands,
    purgeRollouts,
  ];
  const parts = steps.map((step) => async () => {
    while (!isStopped() && (await step(ctx))) await nextTurn();
  });
  for (const part of [...parts, () => expireMessages(ctx, isStopped), () => ctx.collector.collect()])
    await part().catch((error) => ctx.log.error({ err: error }, 'a part of the purge has failed'));
}

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

async function purgeDevices(ctx: PurgeContext): Promise<boolean> {
  const ids = (await dueIds(ctx, 'devices')).map(({ id }) => id);
  // The other store first: a crash in between leaves the device to be purged again.
  for (const id of ids) await ctx.messages.deleteDevice(id);
  if (ids.length > 0) await ctx.bridges.kept.forgetDevices(ids, Date.parse(due(ctx)));
  if (ids.length > 0)
    await ctx.registry.transaction(async (tx) => {
      await tx.deleteFrom('credentials').where('entityId', 'in', ids).execute();
      await tx.deleteFrom('certificates').where('entityId', 'in', ids).execute();
      await tx.deleteFrom('idempotentAnswers').where('secretOf', 'in', ids).execute();
      await tx.deleteFrom('associationCodes').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('refusals').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('publications').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('verifications').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('firmwareDeliveries').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('firmwareTargets').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('commands').where('deviceId', 'in', ids).execute();
      await tx.deleteFrom('devices').where('id', 'in', ids).execute();
    });
  for (const id of ids) {
    ctx.access.deviceChanged(id);
    ctx.registry.credentialChanged(id);
  }
  return ids.length > 0;
}

async function purgeChannels(ctx: PurgeContext): Promise<boolean> {
  const [channel] = await dueIds(ctx, 'channelTemplates', 1);
  if (!channel) return false;
  await ctx.messages.deleteChannel(channel.id);
  await ctx.registry.query.deleteFrom('channelTemplates').where('id', '=', channel.id).execute();
  return true;
}

/** Purges one field after the other: its values, going through the entities in the order of their ids, and then itself. */
function fieldPurge(): Step {
  let walk: { field: Row<'customFields'>; after: string } | undefined;
  return async (ctx) => {
    const { field, after } = walk ?? { field: await dueField(ctx), after: '' };
    if (!field) return false;
    const last = await ctx.registry.transaction(async (tx) => {
      const last = await stripValues(tx, field, after);
      if (last === undefined) await tx.deleteFrom('customFields').where('id', '=', field.id).execute();
      return last;
    });
    walk = last === undefined ? undefined : { field, after: last };
    return true;
  };
}

async function dueField(ctx: PurgeContext): Promise<Row<'customFields'> | undefined> {
  const [due] = await dueIds(ctx, 'customFields', 1);
  return due && find(ctx.registry.query, 'customFields', due.id);
}

/**
 * Removes a field's values from the entities of the next ids after `after`; the last of these ids, undefined at the end.
 * Asking for the next that have a value would go through all before them each time: hours for a million.
 */
async function stripValues(tx: Tx, { id: key, kind, templateId }: Row<'customFields'>, after: string) {
  const holder = holders[kind];
  if (!holder) return undefined;
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

/** Entities to which nothing points any more; what belongs to a template goes with it. */
async function purgeUnreferenced(ctx: PurgeContext): Promise<boolean> {
  let purged = 0n;
  for (const { table, by } of references) {
    const free = sql.join(
      [
        sql`1 = 1`,
        ...by.map(
          ([child, column]) =>
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
      await tx.deleteFrom('channelTemplates').where('entityId', 'in', dead).execute();
      await tx.deleteFrom('customFields').where('templateId', 'in', dead).execute();
      await tx.deleteFrom('credentials').where('entityId', 'in', dead).execute();
      const { numDeletedRows } = await tx
        .deleteFrom(table as 'devices')
        .where('id', 'in', dead)
        .executeTakeFirst();
      purged += numDeletedRows;
    });
    for (const id of dead) {
      ctx.access.organizationPurged(id);
      ctx.access.channelsChanged(id);
      ctx.registry.credentialChanged(id);
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

/** Login sessions that are over for a day: validate-jwt says the same of one that is gone. */
async function purgeSessions({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - day).toISOString();
  const over = registry.query.selectFrom('sessions').select('id').where('expires', '<', before).limit(stepSize);
  const { numDeletedRows } = await registry.query.deleteFrom('sessions').where('id', 'in', over).executeTakeFirst();
  return numDeletedRows > 0n;
}

/** Rows that end by themselves: tokens sent by mail, and logins that nobody went on with in time. */
async function purgeExpired({ registry, clock }: PurgeContext): Promise<boolean> {
  let purged = 0n;
  for (const table of ['federatedLogins', 'mailedTokens', 'mfaLogins'] as const) {
    const gone = sql`delete from ${sql.table(table)} where rowid in
      (select rowid from ${sql.table(table)} where "expires" <= ${timestamp(clock)} limit ${stepSize})`;
    purged += (await gone.execute(registry.query)).numAffectedRows ?? 0n;
  }
  return purged > 0n;
}

async function purgeCommands({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - commandsKept).toISOString();
  const old = registry.query.selectFrom('commands').select('id').where('finished', '<', before).limit(stepSize);
  return (await registry.query.deleteFrom('commands').where('id', 'in', old).executeTakeFirst()).numDeletedRows > 0n;
}

/** The devices of a rollout first, a few at a time. */
async function purgeRollouts({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - rolloutsKept).toISOString();
  const old = registry.query.selectFrom('firmwareRollouts').select('id').where('finished', '<', before);
  const rollout = await old.limit(1).executeTakeFirst();
  if (!rollout) return false;
  const { id } = rollout;
  await registry.transaction(async (tx) => {
    const batch = tx.selectFrom('firmwareDeliveries').select('deviceId').where('rolloutId', '=', id).limit(stepSize);
    const gone = tx.deleteFrom('firmwareDeliveries').where('rolloutId', '=', id).where('deviceId', 'in', batch);
    if ((await gone.executeTakeFirst()).numDeletedRows > 0n) return;
    await tx.deleteFrom('firmwareCounts').where('rolloutId', '=', id).execute();
    await tx.deleteFrom('firmwareRollouts').where('id', '=', id).execute();
  });
  return true;
}

async function purgeAnswers({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - answerLifetime).toISOString();
  const old = registry.query.selectFrom('idempotentAnswers').select('keyHash').where('created', '<', before);
  const gone = registry.query.deleteFrom('idempotentAnswers').where('keyHash', 'in', old.limit(stepSize));
  return (await gone.executeTakeFirst()).numDeletedRows > 0n;
}
