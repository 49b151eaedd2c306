/** Device, end-user and organization templates: one shape, three times. */

import { type Static, Type } from 'typebox';
import type { Db, Registry } from '../../db/registry/index.js';
import type { Row } from '../../db/registry/records.js';
import type { Caller, EntityKind } from '../access.js';
import type { Clock } from '../clock.js';
import { writeAs } from '../entity/authorized-write.js';
import { childCounts, hasChildren, readNames } from '../entity/expand.js';
import { entityRoutes } from '../entity/kind.js';
import type { Listing } from '../entity/listing.js';
import type { ListServices } from '../entity/row-slices.js';
import { mergeFields, readFields, readNewFields } from '../entity/values.js';
import { change, demandReference, find, insert, recover, stamp, trash } from '../entity/verbs.js';
import { PlatformError } from '../errors.js';
import type { App } from '../http/app.js';
import { serviceChannelRows } from './accounts.js';
import {
  deviceTemplateShape,
  endUserTemplateShape,
  fieldBody,
  organizationTemplateShape,
  type ShowContext,
  showDeviceTemplate,
  showTemplate,
} from './shapes.js';

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

const name = Type.String({ minLength: 1, maxLength: 255 });
const counted = {
  count: Type.Optional(Type.String({ description: 'Comma-separated child counts to include.' })),
};

/** The live default template of a kind. */
export async function defaultTemplate(db: Db, table: TemplateTable, accountId: string): Promise<Row<TemplateTable>> {
  const rows = db.selectFrom(table as 'deviceTemplates').selectAll();
  return rows.where('accountId', '=', accountId).where('default', '=', 1).executeTakeFirstOrThrow();
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

type Needed = ShowContext & ListServices & { registry: Registry; clock: Clock };

export function templateRoutes(app: App, ctx: Needed): void {
  for (const kind of kinds) mountTemplates(app, ctx, kind);
}

function mountTemplates(app: App, ctx: Needed, kind: TemplateKind): void {
  const { table, entity, wrapper, path } = kind;
  const { registry, clock, access } = ctx;
  const fieldsOf = (accountId: string) =>
    table === 'deviceTemplates' ? ctx.fields.of('deviceTemplates', accountId) : [];
  const more = table === 'deviceTemplates' ? fieldBody('deviceTemplates') : {};
  const createBody = Type.Object({ accountId: Type.String(), name, ...more });
  const updateBody = Type.Object({ name: Type.Optional(name), ...more });
  const listing: Listing<TemplateTable> = {
    table,
    filters: { name: 'exact', default: 'flag' },
    sorts: ['created', 'lastModified', 'id', 'accountId', 'name', 'default'],
    defaultSort: 'name',
    saysSort: true,
  };

  const show = (row: Row<TemplateTable>) =>
    table === 'deviceTemplates' ? showDeviceTemplate(ctx, row) : showTemplate(row);

  const readCounts = (count: string | undefined) =>
    readNames('count', count, [kind.counts.children[0], kind.counts.fields[0]]);

  /** How rows are shown with the counts that are asked for, which are read for all of them at once. */
  async function prepare({ accountId }: Caller, rows: Row<TemplateTable>[], { count }: { count?: string }) {
    const { children, fields } = kind.counts;
    const wanted = readCounts(count);
    const ids = rows.map((row) => row.id);
    const [ofChildren, ofFields] = await Promise.all([
      wanted.has(children[0]) && childCounts(registry.query, kind.children, kind.childColumn as never, accountId, ids),
      wanted.has(fields[0]) && childCounts(registry.query, 'customFields', 'templateId', accountId, ids),
    ]);
    return (row: Row<TemplateTable>) => ({
      ...show(row),
      ...(ofChildren && { [children[1]]: ofChildren.get(row.id) ?? 0 }),
      ...(ofFields && { [fields[1]]: ofFields.get(row.id) ?? 0 }),
    });
  }

  async function create(caller: Caller, body: Static<typeof createBody>) {
    const fields = readNewFields(fieldsOf(caller.accountId), body, ctx.fields.limits);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const stamped = stamp(clock, caller);
      const template = await insert(tx, table, { ...stamped, name: body.name, default: 0, fields });
      if (table === 'deviceTemplates')
        for (const channel of serviceChannelRows(stamped, template.id)) await insert(tx, 'channelTemplates', channel);
      return template;
    });
    access.channelsChanged(row.id);
    return show(row);
  }

  async function update(caller: Caller, before: Row<TemplateTable>, version: number, body: Static<typeof updateBody>) {
    const { id } = before;
    const values = readFields(fieldsOf(before.accountId), body);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const stored = (await find(tx, table, id)) ?? before;
      const fields = mergeFields(stored.fields, values, ctx.fields.limits);
      return change(tx, table, id, version, { caller, clock }, { name: body.name ?? stored.name, fields });
    });
    return show(row);
  }

  async function remove(caller: Caller, { id }: Row<TemplateTable>, version: number) {
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const trashed = await trash(tx, table, id, version, clock);
      if (trashed.default === 1) throw new PlatformError('constraint', { message: 'A default template stays.' });
      if (await hasChildren(tx, kind.children, kind.childColumn as never, id))
        throw new PlatformError('constraint', { message: 'The template has live entities.' });
      return trashed;
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
    listing,
    expand: { query: counted, check: (_, { count }) => readCounts(count) },
    prepare,
    create: { body: createBody, errors: ['notUnique'], run: create },
    update: { body: updateBody, errors: ['notUnique'], run: update },
    remove: { errors: ['constraint'], run: remove },
    trash: { errors: ['notUnique'], recover: recoverOne },
  });
}
