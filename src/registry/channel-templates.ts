/** Channel templates: a channel on a device template is a channel on each of its devices, at once. */

import { type SqlBool, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.js';
import { Nullable } from '../../db/registry/records.js';
import type { Caller } from '../access.js';
import type { Context } from '../context.js';
import { writeAs } from '../entity/authorized-write.js';
import { type Listing, type ListQuery, list, listSchema, oneOf } from '../entity/listing.js';
import { entityRoutes } from '../entity/routes.js';
import { showSlices } from '../entity/row-slices.js';
import {
  change,
  demandLive,
  demandReference,
  demandTrashed,
  findReached,
  insert,
  recover,
  stamp,
  trash,
} from '../entity/verbs.js';
import { invalid, PlatformError } from '../errors.js';
import type { App } from '../http/app.js';
import { demandWithin, type Limits } from '../limits.js';
import { payloadForms } from '../messages/payload.js';
import { maxRetentionDays } from '../settings.js';
import { channelTemplateShape, showChannelTemplate } from './shapes.js';

const streamBridgeDelivery = Type.Integer({
  minimum: 0,
  maximum: 2,
  description: '0 do not send, 1 best effort, 2 guaranteed.',
});
/** Null is what the account says; 0 keeps points for ever. */
const retentionDays = Nullable(Type.Integer({ minimum: 0, maximum: maxRetentionDays, description: 'Days.' }));
const payload = oneOf(payloadForms, {
  description:
    'The form of payloads on a timeSeries channel. auto takes any; another one refuses to store the rest. none delivers payloads without reading or storing them.',
});
const createBody = Type.Object({
  accountId: Type.String(),
  entityId: Type.String(),
  entityType: oneOf(['deviceTemplate']),
  name: Type.String({ minLength: 1, maxLength: 100 }),
  streamBridgeDelivery: Type.Optional(streamBridgeDelivery),
  persistenceType: Type.Optional(oneOf(['simple', 'timeSeries'])),
  retentionDays: Type.Optional(retentionDays),
  payload: Type.Optional(payload),
});
const updateBody = Type.Object({
  streamBridgeDelivery: Type.Optional(streamBridgeDelivery),
  retentionDays: Type.Optional(retentionDays),
  payload: Type.Optional(payload),
});

const listing: Listing<'channelTemplates'> = {
  table: 'channelTemplates',
  filters: { entityId: 'exact', name: 'exact' },
  sorts: ['created', 'lastModified', 'id', 'name'],
  defaultSort: 'name',
};

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
    throw invalid('retentionDays', 'is of timeSeries channels only');
}

export function channelTemplateRoutes(app: App, ctx: Context): void {
  const { clock, access } = ctx;

  async function create(caller: Caller, body: Static<typeof createBody>) {
    access.demand(caller, 'create', 'channelTemplate');
    access.demandAccount(caller, body.accountId);
    const { persistenceType = 'simple', retentionDays = null } = body;
    checkName(body.name);
    checkRetention(retentionDays, persistenceType);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const template = await demandReference(tx, 'deviceTemplates', caller.accountId, body.entityId, 'entityId');
      const made = await insert(tx, 'channelTemplates', {
        ...stamp(clock, caller),
        entityId: template.id,
        entityType: body.entityType,
        name: body.name,
        streamBridgeDelivery: body.streamBridgeDelivery ?? 0,
        persistenceType,
        retentionDays,
        payload: body.payload ?? 'auto',
      });
      await demandRoom(tx, ctx.config.limits, template.id);
      return made;
    });
    access.channelsChanged(row.entityId);
    return showChannelTemplate(row);
  }

  async function read(caller: Caller, id: string) {
    access.demand(caller, 'read', 'channelTemplate');
    const row = demandLive(await findReached(ctx, caller, 'channelTemplates', id));
    return showChannelTemplate(row);
  }

  async function update(caller: Caller, id: string, version: number, body: Static<typeof updateBody>) {
    access.demand(caller, 'update', 'channelTemplate');
    const before = await findReached(ctx, caller, 'channelTemplates', id);
    const { streamBridgeDelivery, retentionDays, payload } = body;
    checkRetention(retentionDays, before.persistenceType);
    const changes = {
      ...(streamBridgeDelivery !== undefined && { streamBridgeDelivery }),
      ...(retentionDays !== undefined && { retentionDays }),
      ...(payload !== undefined && { payload }),
    };
    const row = await writeAs(ctx, caller, undefined, (tx) =>
      change(tx, 'channelTemplates', id, version, { caller, clock }, changes),
    );
    access.channelsChanged(before.entityId);
    return showChannelTemplate(row);
  }

  async function remove(caller: Caller, id: string, version: number) {
    access.demand(caller, 'delete', 'channelTemplate');
    const before = await findReached(ctx, caller, 'channelTemplates', id);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const trashed = await trash(tx, 'channelTemplates', id, version, clock);
      if (trashed.name.startsWith('_')) throw new PlatformError('constraint', { message: 'A service channel stays.' });
      return trashed;
    });
    access.channelsChanged(before.entityId);
    ctx.revocations.note(caller, await ctx.broker.channelDeleted(row));
    return showChannelTemplate(row);
  }

  async function page(caller: Caller, query: ListQuery, state: 'live' | 'trash') {
    access.demand(caller, state === 'live' ? 'read' : 'delete', 'channelTemplate');
    access.demandAccount(caller, query.accountId);
    const { rows, meta } = await list(ctx, caller, listing, query, state);
    return { results: rows && showSlices(rows, () => showChannelTemplate), meta };
  }

  async function readTrash(caller: Caller, id: string) {
    access.demand(caller, 'delete', 'channelTemplate');
    return showChannelTemplate(demandTrashed(await findReached(ctx, caller, 'channelTemplates', id)));
  }

  async function bringBack(caller: Caller, id: string, version: number) {
    access.demand(caller, 'delete', 'channelTemplate');
    const before = await findReached(ctx, caller, 'channelTemplates', id);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      await demandReference(tx, 'deviceTemplates', caller.accountId, before.entityId, 'entityId');
      const recovered = await recover(tx, 'channelTemplates', id, version, { caller, clock });
      await demandRoom(tx, ctx.config.limits, recovered.entityId);
      return recovered;
    });
    access.channelsChanged(row.entityId);
    return showChannelTemplate(row);
  }

  entityRoutes(app, {
    path: '/channels/templates',
    tag: 'Channel templates',
    entity: 'channelTemplate',
    wrapper: 'channelTemplate',
    plural: 'channelTemplates',
    shape: channelTemplateShape,
    errors: {
      create: ['unknownReference', 'notUnique'],
      remove: ['constraint'],
      recover: ['unknownReference', 'notUnique'],
    },
    create: { body: createBody, run: create },
    read: { query: Type.Object({}), run: read },
    update: { body: updateBody, run: update },
    remove,
    revokes: ['remove'],
    list: { query: listSchema(listing), run: (caller, query) => page(caller, query as ListQuery, 'live') },
    readTrash,
    listTrash: (caller, query) => page(caller, query, 'trash'),
    recover: bringBack,
  });
}
