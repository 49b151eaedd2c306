/** Channel templates: a channel on a device template is a channel on each of its devices, at once. */

import { type SqlBool, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { type Category, channelTemplateColumns } from '../../db/registry/records/templates.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { demandWithin, type Limits } from '../core/limits/table.ts';
import { changeProperties, createProperties, listingOf, readChanges, readNew } from '../entity/columns.ts';
import { entityRoutes } from '../entity/kind.ts';
import { change, demandReference, insert, recover, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { channelTemplateShape, showChannelTemplate } from './channel.ts';
import type { RegistryContext } from './context.ts';

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(channelTemplateColumns) });
const updateBody = Type.Object(changeProperties(channelTemplateColumns));

const listing = listingOf('channelTemplates', channelTemplateColumns);

/** @throws PlatformError 400 with 106 for a name that no topic may end with. */
function checkName(name: string): void {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be in a topic
  if (/[/+#\u0000-\u001f\u007f-\u009f]/.test(name))
    throw invalid('name', 'must not hold /, +, # or control characters');
  if (name.startsWith('_')) throw invalid('name', 'must not start with an underscore');
  if (name === 'latest') throw invalid('name', 'must not be latest: reading its data would be ambiguous');
}

/**
 * Checks that the template has no more channels than the limit; inside the transaction that has added one.
 * @throws PlatformError 400 with 106.
 */
async function demandRoom(tx: Tx, limits: Limits, entityId: string): Promise<void> {
  const { count } = await tx
    .selectFrom('channelTemplates')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('entityId', '=', entityId)
    .where('deleted', 'is', null)
    .where(sql<SqlBool>`substr("name", 1, 1) <> '_'`)
    .executeTakeFirstOrThrow();
  demandWithin(limits, 'channelTemplates', Number(count), 'entityId');
}

/** @throws PlatformError 400 with 106 for a retention on a channel that stores no points. */
function checkRetention(retentionDays: number | null | undefined, persistenceType: string): void {
  if (typeof retentionDays === 'number' && persistenceType !== 'timeSeries')
    throw invalid('retentionDays', 'is for timeSeries channels only');
}

/** @throws PlatformError 400 with 106 for two categories of one name. */
function checkCategories(categories: readonly Category[] = []): void {
  const names = new Set<string>();
  for (const [index, { name }] of categories.entries()) {
    if (names.has(name)) throw invalid(`categories.${index}.name`, 'is the name of another category');
    names.add(name);
  }
}

export function channelTemplateRoutes(app: App, ctx: RegistryContext): void {
  const { clock, access } = ctx;

  async function create(caller: Caller, body: Static<typeof createBody>) {
    const { persistenceType, retentionDays } = readNew(channelTemplateColumns, body);
    checkName(body.name);
    checkRetention(retentionDays, persistenceType);
    checkCategories(body.categories);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const template = await demandReference(tx, 'deviceTemplates', caller.accountId, body.entityId, 'entityId');
      const made = await insert(tx, 'channelTemplates', {
        ...stamp(clock, caller),
        ...readNew(channelTemplateColumns, body),
        entityId: template.id,
      });
      await demandRoom(tx, ctx.config.limits, template.id);
      return made;
    });
    access.channelsChanged(row.entityId);
    return showChannelTemplate(row);
  }

  async function update(
    caller: Caller,
    before: Row<'channelTemplates'>,
    version: number,
    body: Static<typeof updateBody>,
  ) {
    const changes = readChanges(channelTemplateColumns, body);
    checkRetention(changes.retentionDays, before.persistenceType);
    checkCategories(body.categories);
    const row = await writeAs(ctx, caller, undefined, (tx) =>
      change(tx, 'channelTemplates', before.id, version, { caller, clock }, changes),
    );
    access.channelsChanged(before.entityId);
    return showChannelTemplate(row);
  }

  async function remove(caller: Caller, before: Row<'channelTemplates'>, version: number) {
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const trashed = await trash(tx, 'channelTemplates', before.id, version, clock);
      if (trashed.name.startsWith('_'))
        throw new PlatformError('constraint', { message: 'Service channels cannot be deleted.' });
      return trashed;
    });
    access.channelsChanged(before.entityId);
    ctx.revoked.noteRevoked(caller, await ctx.revocations.channelDeleted(row));
    return showChannelTemplate(row);
  }

  async function recoverOne(caller: Caller, before: Row<'channelTemplates'>, version: number) {
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      await demandReference(tx, 'deviceTemplates', caller.accountId, before.entityId, 'entityId');
      const recovered = await recover(tx, 'channelTemplates', before.id, version, { caller, clock });
      await demandRoom(tx, ctx.config.limits, recovered.entityId);
      return recovered;
    });
    access.channelsChanged(row.entityId);
    return showChannelTemplate(row);
  }

  entityRoutes(app, ctx, {
    path: '/channels/templates',
    tag: 'Channel templates',
    entity: 'channelTemplate',
    wrapper: 'channelTemplate',
    plural: 'channelTemplates',
    shape: channelTemplateShape,
    listing,
    prepare: () => showChannelTemplate,
    create: { body: createBody, errors: ['unknownReference', 'notUnique'], run: create },
    update: { body: updateBody, run: update },
    remove: { errors: ['constraint'], revokes: true, run: remove },
    trash: { errors: ['unknownReference', 'notUnique'], recover: recoverOne },
  });
}
