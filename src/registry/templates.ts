/** Device, end-user and organization templates: one shape, three times. */

import { type SqlBool, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Db, Registry, Tx } from '../../db/registry/index.ts';
import {
  type Category,
  DeclaredCommand,
  deviceTemplateColumns,
  type PayloadForm,
  type Primary,
  templateColumns,
} from '../../db/registry/records/templates.ts';
import { Id, type Row } from '../../db/registry/records.ts';
import { rowsOf } from '../../db/registry/statement.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
import { laneOf } from '../core/limits/lanes.ts';
import type { EntityKind } from '../core/rights.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readChanges,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { childCounts, hasChildren, readNames } from '../entity/expand.ts';
import { type Fields, fieldBody, fieldShapes } from '../entity/fields.ts';
import { entityRoutes } from '../entity/kind.ts';
import type { ListServices } from '../entity/row-slices.ts';
import type { Schemas } from '../entity/schemas/schemas.ts';
import { type FieldKind, mergeFields, readFields, readNewFields, showFields } from '../entity/values.ts';
import { change, demandReference, insert, recover, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { serviceChannelRows } from './accounts.ts';
import { channelProperties, channelTemplateShape, maxChannels, showChannelProperties } from './channel.ts';
import { deviceCounts } from './devices/counts.ts';

const templateProperties = { ...commonShape, ...shownProperties(templateColumns) };

export const deviceTemplateShape = Type.Object({
  ...commonShape,
  ...shownProperties(deviceTemplateColumns),
  ...fieldShapes('deviceTemplates'),
  channelTemplates: Type.Array(
    Type.Object({
      id: Id,
      name: Type.String(),
      ...channelProperties,
      payload: channelTemplateShape.properties.payload,
    }),
    { maxItems: maxChannels },
  ),
  deviceCount: Type.Optional(Type.Integer()),
  onlineCount: Type.Optional(Type.Integer()),
  channelCount: Type.Optional(Type.Integer({ description: 'Without service channels.' })),
  deviceFieldCount: Type.Optional(Type.Integer()),
});
export const endUserTemplateShape = Type.Object({
  ...templateProperties,
  endUserCount: Type.Optional(Type.Integer()),
  endUserFieldCount: Type.Optional(Type.Integer()),
});
export const organizationTemplateShape = Type.Object({
  ...templateProperties,
  organizationCount: Type.Optional(Type.Integer()),
  organizationFieldCount: Type.Optional(Type.Integer()),
});

const showColumns = showing(templateColumns);
const showDeviceColumns = showing(deviceTemplateColumns);

export function showTemplate(row: Row<TemplateTable>) {
  return { ...showCommon(row), ...showColumns(row) };
}

export function showDeviceTemplate(
  { access, fields }: Pick<TemplateServices, 'access' | 'fields'>,
  row: Row<'deviceTemplates'>,
) {
  const channels = [...access.channelsOf(row.id).values()];
  return {
    ...showCommon(row),
    ...showDeviceColumns(row),
    ...showFields(fields.of('deviceTemplates', row.accountId), row.fields),
    channelTemplates: channels.map((channel) => ({
      id: channel.id,
      name: channel.name,
      ...showChannelProperties(channel),
      payload: channel.payload as PayloadForm,
    })),
  };
}

type TemplateTable = 'deviceTemplates' | 'endUserTemplates' | 'organizationTemplates';

/** Differences between the three kinds: names, and the children that a template may have. */
interface TemplateKind {
  table: TemplateTable;
  entity: EntityKind;
  path: string;
  wrapper: string;
  shape: typeof deviceTemplateShape | typeof endUserTemplateShape | typeof organizationTemplateShape;
  children: 'devices' | 'endUsers' | 'organizations';
  childColumn: 'deviceTemplateId' | 'endUserTemplateId' | 'organizationTemplateId';
  /** Values of `count` and the properties that they add: children, custom fields. */
  counts: { children: [string, string]; fields: [string, string] };
}

const kinds: readonly TemplateKind[] = [
  {
    table: 'deviceTemplates',
    entity: 'deviceTemplate',
    path: '/devices/templates',
    wrapper: 'deviceTemplate',
    shape: deviceTemplateShape,
    children: 'devices',
    childColumn: 'deviceTemplateId',
    counts: { children: ['devices', 'deviceCount'], fields: ['device-fields', 'deviceFieldCount'] },
  },
  {
    table: 'endUserTemplates',
    entity: 'endUserTemplate',
    path: '/end-users/templates',
    wrapper: 'endUserTemplate',
    shape: endUserTemplateShape,
    children: 'endUsers',
    childColumn: 'endUserTemplateId',
    counts: { children: ['end-users', 'endUserCount'], fields: ['end-user-fields', 'endUserFieldCount'] },
  },
  {
    table: 'organizationTemplates',
    entity: 'organizationTemplate',
    path: '/organizations/templates',
    wrapper: 'organizationTemplate',
    shape: organizationTemplateShape,
    children: 'organizations',
    childColumn: 'organizationTemplateId',
    counts: {
      children: ['organizations', 'organizationCount'],
      fields: ['organization-fields', 'organizationFieldCount'],
    },
  },
];

const counted = {
  count: Type.Optional(Type.String({ description: 'Comma-separated child counts to include.' })),
};

/** The live default template of a kind. */
export async function defaultTemplate(db: Db, table: TemplateTable, accountId: string): Promise<Row<TemplateTable>> {
  const statement = `SELECT * FROM "${table}" WHERE "accountId" = ? AND "default" = 1`;
  const [row] = await rowsOf<Row<TemplateTable>>(db, statement, [accountId]);
  if (!row) throw new Error(`The account ${accountId} has no default template.`);
  return row;
}

/** The template of a new entity: the live one that `path` names, or the default one. @throws PlatformError 400/102. */
export async function templateFor(
  db: Db,
  table: TemplateTable,
  accountId: string,
  id: string | undefined,
  path: string,
): Promise<Row<TemplateTable>> {
  return id === undefined ? defaultTemplate(db, table, accountId) : demandReference(db, table, accountId, id, path);
}

/**
 * The names of the custom fields that a body may have: of the template of `before`, or of the one that the new entity gets.
 * @throws PlatformError 400/102 for a template that is not there.
 */
export async function customFieldsFor(
  { registry, fields }: Pick<TemplateServices, 'registry' | 'fields'>,
  kind: FieldKind,
  [table, path]: [TemplateTable, string],
  { accountId }: Caller,
  given: object,
): Promise<string[]> {
  const id = (given as Record<string, string | undefined>)[path];
  const template = await templateFor(registry.query, table, accountId, id, path);
  return fields.of(kind, template.id).map(({ name }) => name);
}

type TemplateServices = ListServices & { registry: Registry; clock: Clock; fields: Fields; schemas: Schemas };

export function templateRoutes(app: App, ctx: TemplateServices): void {
  for (const kind of kinds) mountTemplates(app, ctx, kind);
}

function mountTemplates(app: App, ctx: TemplateServices, kind: TemplateKind): void {
  const { table, entity, wrapper, path } = kind;
  const { clock, access } = ctx;
  const fieldsOf = (accountId: string) =>
    table === 'deviceTemplates' ? ctx.fields.of('deviceTemplates', accountId) : [];
  const isOfDevices = table === 'deviceTemplates';
  const more = isOfDevices ? fieldBody('deviceTemplates') : {};
  const columns = (isOfDevices ? deviceTemplateColumns : templateColumns) as typeof templateColumns;
  const createBody = Type.Object({ accountId: Type.String(), ...createProperties(columns), ...more });
  const updateBody = Type.Object({ ...changeProperties(columns), ...more });
  const ofReference = isOfDevices ? (['unknownReference'] as const) : [];
  const listing = listingOf(table, templateColumns, { sorts: ['accountId'], saysSort: true });

  const show = (row: Row<TemplateTable>) =>
    isOfDevices ? showDeviceTemplate(ctx, row as Row<'deviceTemplates'>) : showTemplate(row);

  async function create(caller: Caller, body: Static<typeof createBody>) {
    const fields = readNewFields(fieldsOf(caller.accountId), body, ctx.fields.limits);
    await demandDeclarable(ctx, caller, body);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const stamped = stamp(clock, caller);
      const template = await insert(tx, table, { ...stamped, ...readNew(columns, body), default: 0, fields });
      if (table === 'deviceTemplates')
        for (const channel of serviceChannelRows(stamped, template.id)) await insert(tx, 'channelTemplates', channel);
      await demandPrimary(tx, template as TemplateRow);
      return template;
    });
    access.channelsChanged(row.id);
    return show(row);
  }

  async function update(caller: Caller, before: Row<TemplateTable>, version: number, body: Static<typeof updateBody>) {
    const { id } = before;
    const values = readFields(fieldsOf(before.accountId), body);
    await demandDeclarable(ctx, caller, body);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const stored = (await findEntity(tx, table, id)) ?? before;
      const fields = mergeFields(stored.fields, values, ctx.fields.limits);
      const changes = { ...readChanges(columns, body), fields };
      const changed = await change(tx, table, id, version, { caller, clock }, changes);
      await demandPrimary(tx, changed as TemplateRow, stored as TemplateRow);
      return changed;
    });
    return show(row);
  }

  async function recoverOne(caller: Caller, { id }: Row<TemplateTable>, version: number) {
    const row = await writeAs(ctx, caller, undefined, (tx) => recover(tx, table, id, version, { caller, clock }));
    access.channelsChanged(id);
    return show(row);
  }

  entityRoutes(app, ctx, {
    path,
    tag: 'Templates',
    entity,
    wrapper,
    plural: table,
    shape: kind.shape,
    ...(table === 'deviceTemplates' && { fieldKind: table }),
    listing,
    expand: {
      query: counted,
      check: (_, { count }) => readCounts(kind, count),
    },
    customFields: async ({ accountId }) => fieldsOf(accountId).map(({ name }) => name),
    prepare: async (caller, rows, { count }) => {
      const counts = await countChildren(ctx, kind, caller, rows, count);
      return (row) => ({ ...show(row), ...counts(row) });
    },
    create: { body: createBody, errors: ['notUnique', ...ofReference], run: create },
    update: { body: updateBody, errors: ['notUnique', ...ofReference], run: update },
    remove: {
      errors: ['constraint'],
      run: async (caller, { id }, version) =>
        show(await writeAs(ctx, caller, undefined, (tx) => trashUnused(tx, kind, id, version, clock))),
    },
    trash: { errors: ['notUnique'], recover: recoverOne },
  });
}

/** Bytes of the parameters of a declared command, as JSON. */
const maxParameterBytes = 16 * 1024;

/** @throws PlatformError 400/106 with the path of a declared command that has the name of another one, or no schema. */
async function demandDeclarable({ schemas }: TemplateServices, caller: Caller, body: object): Promise<void> {
  const { commands = [] } = body as { commands?: DeclaredCommand[] };
  const names = new Set<string>();
  for (const [at, { name, parameters, ...more }] of commands.entries()) {
    const unknown = Object.keys(more).find((property) => !Object.hasOwn(DeclaredCommand.properties, property));
    if (unknown !== undefined) throw invalid(`commands/${at}/${unknown.slice(0, 100)}`, 'is not supported here');
    if (names.has(name)) throw invalid(`commands/${at}/name`, 'is the name of another declared command');
    names.add(name);
    if (parameters === undefined) continue;
    const [place, schema] = [`commands/${at}/parameters`, JSON.stringify(parameters)];
    if (Buffer.byteLength(schema) > maxParameterBytes)
      throw invalid(place, `has more than ${maxParameterBytes} bytes of JSON`);
    await schemas.demand(laneOf(caller), { schema, place });
  }
}

/** Counts that device templates have besides, and their properties. */
const ofDeviceTemplates = { online: 'onlineCount', channels: 'channelCount' } as const;

function readCounts({ table, counts }: TemplateKind, count: string | undefined): Set<string> {
  const more = table === 'deviceTemplates' ? Object.keys(ofDeviceTemplates) : [];
  return readNames('count', count, [counts.children[0], counts.fields[0], ...more]);
}

/** The counts that are asked for, which are read for all rows at once. */
async function countChildren(
  { registry }: TemplateServices,
  kind: TemplateKind,
  { accountId }: Caller,
  rows: Row<TemplateTable>[],
  count: string | undefined,
) {
  const { children, fields } = kind.counts;
  const wanted = readCounts(kind, count);
  const db = registry.query;
  const ids = rows.map((row) => row.id);
  const hasDevices = kind.children === 'devices';
  const [devices, ofChildren, ofFields, channels] = await Promise.all([
    hasDevices && (wanted.has('devices') || wanted.has('online'))
      ? deviceCounts(db, 'deviceTemplateId', accountId, ids)
      : undefined,
    !hasDevices && wanted.has(children[0]) ? childCounts(db, kind.children, kind.childColumn as never, ids) : undefined,
    wanted.has(fields[0]) ? childCounts(db, 'customFields', 'templateId', ids) : undefined,
    wanted.has('channels') ? ownChannelCounts(db, ids) : undefined,
  ]);
  return ({ id }: Row<TemplateTable>) => ({
    ...(wanted.has(children[0]) && { [children[1]]: devices?.get(id)?.devices ?? ofChildren?.get(id) ?? 0 }),
    ...(wanted.has('online') && { [ofDeviceTemplates.online]: devices?.get(id)?.online ?? 0 }),
    ...(ofFields && { [fields[1]]: ofFields.get(id) ?? 0 }),
    ...(channels && { [ofDeviceTemplates.channels]: channels.get(id) ?? 0 }),
  });
}

/** How many channels each device template has, without service channels. */
async function ownChannelCounts(db: Db, ids: readonly string[]): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const rows = await db
    .selectFrom('channelTemplates')
    .select((eb) => ['entityId', eb.fn.countAll<number>().as('count')])
    .where('entityId', 'in', [...ids])
    .where('deleted', 'is', null)
    .where(sql<SqlBool>`substr("name", 1, 1) <> '_'`)
    .groupBy('entityId')
    .execute();
  return new Map(rows.map(({ entityId, count }) => [entityId, count]));
}

type TemplateRow = Pick<Row<'deviceTemplates'>, 'id'> & Partial<Pick<Row<'deviceTemplates'>, 'primary'>>;

/**
 * That the value that matters is of the template, where it is another one than `before`: channels may go later.
 * @throws PlatformError 400/102 naming what the template lacks.
 */
async function demandPrimary(tx: Tx, { id, primary }: TemplateRow, before?: TemplateRow): Promise<void> {
  if (!primary || primary === before?.primary) return;
  const { channel, category } = JSON.parse(primary) as Primary;
  const found = await tx
    .selectFrom('channelTemplates')
    .select('categories')
    .where('entityId', '=', id)
    .where('name', '=', channel)
    .where('deleted', 'is', null)
    .executeTakeFirst();
  if (!found) throw unknownReference('primary/channel', channel);
  const categories = JSON.parse(found.categories) as Category[];
  if (!categories.some(({ name }) => name === category)) throw unknownReference('primary/category', category);
}

/** @throws PlatformError 400/104 for a default template, and for one that has live entities; as trash. */
async function trashUnused(
  tx: Tx,
  kind: TemplateKind,
  id: string,
  version: number,
  clock: Clock,
): Promise<Row<TemplateTable>> {
  const trashed = await trash(tx, kind.table, id, version, clock);
  if (trashed.default === 1)
    throw new PlatformError('constraint', { message: 'A default template cannot be deleted.' });
  if (await hasChildren(tx, kind.children, kind.childColumn, id))
    throw new PlatformError('constraint', { message: 'The template has live entities.' });
  return trashed;
}
