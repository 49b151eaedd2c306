/** Organizations: a tree at most five deep; rights cascade from parents to children. */

import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Db, Tx } from '../../db/registry/index.ts';
import { keepersOf } from '../../db/registry/records/by-table.ts';
import { organizationColumns } from '../../db/registry/records/organizations.ts';
import type { Row } from '../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
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
  without,
} from '../entity/columns.ts';
import { childCounts, hasChildren, parentsOf, readNames } from '../entity/expand.ts';
import { type Fields, fieldBody, fieldShapes } from '../entity/fields.ts';
import { giveRole } from '../entity/giving.ts';
import { entityRoutes } from '../entity/kind.ts';
import { inWords } from '../entity/kind-verbs.ts';
import type { Listing } from '../entity/list-query.ts';
import { mergeFields, readFields, readNewFields, showFields } from '../entity/values.ts';
import {
  type Changes,
  change,
  demandInto,
  demandLive,
  demandReference,
  insert,
  inThread,
  recover,
  stamp,
  trash,
  writeAs,
} from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { demandMembershipRoom } from '../identity/memberships.ts';
import { accountOf, expandedAccount } from './accounts.ts';
import type { RegistryContext } from './context.ts';
import { deviceCounts } from './devices/counts.ts';
import { topOf, treeChanged } from './devices/possession.ts';
import { endUserSettable, endUserShape, showEndUser } from './end-user.ts';
import { ownFilter } from './filters.ts';
import { customFieldsFor, organizationTemplateShape, showTemplate, templateFor } from './templates.ts';
import { countTrees, treeCounts } from './tree-counts.ts';

/** A top-level organization is level 1. */
const deepestLevel = 5;

export const organizationShape = Type.Object({
  ...commonShape,
  ...shownProperties(organizationColumns),
  ...fieldShapes('organizations'),
  deviceCount: Type.Optional(Type.Integer()),
  onlineCount: Type.Optional(Type.Integer()),
  endUserCount: Type.Optional(Type.Integer()),
  childCount: Type.Optional(Type.Integer()),
  counts: treeCounts,
  defaultEndUser: Type.Optional(endUserShape),
});
const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(organizationColumns),
  endUserTemplateId: Type.Optional(
    Type.String({ description: 'With it a default end-user is made too, linked to the identity of the caller.' }),
  ),
  ...fieldBody('organizations'),
});
const updateBody = Type.Object({ ...changeProperties(organizationColumns), ...fieldBody('organizations') });
/** The columns that a body sets, without the place, which has its own rules. */
export const organizationSettable = without(organizationColumns, ['organizationTemplateId', 'parentId']);

/** How many organizations an identity that has no end-user may make in its life. */
const firstOrganizations = 3;

const expandable = ['account', 'parent', 'organization-template'] as const;
const countable = ['devices', 'online', 'end-users', 'children'] as const;
const expandQuery = {
  expand: Type.Optional(Type.String({ description: `Comma-separated: ${expandable.join(', ')}` })),
  count: Type.Optional(Type.String({ description: `Comma-separated: ${countable.join(', ')}` })),
  counts: Type.Optional(Type.Boolean({ description: 'Include what is in each, and below it.' })),
};
type Expand = { expand?: string; count?: string; counts?: boolean };

const listing = listingOf('organizations', organizationColumns, { sorts: ['accountId'], reach: 'id' });

const filtered = { kind: 'organizations', columns: organizationColumns, template: 'organizationTemplateId' } as const;

/** In the trash an organization is reached through its parent. */
const trashListing: Listing<'organizations'> = { ...listing, reach: 'parentId' };

const show = showing(organizationColumns);

export function showOrganization({ fields }: { fields: Fields }, row: Row<'organizations'>) {
  const custom = showFields(fields.of('organizations', row.organizationTemplateId), row.fields);
  return Object.assign(showCommon(row), show(row), custom);
}

export function organizationRoutes(app: App, ctx: RegistryContext): void {
  entityRoutes(app, ctx, {
    path: '/organizations',
    tag: 'Organizations',
    entity: 'organization',
    wrapper: 'organization',
    plural: 'organizations',
    shape: organizationShape,
    listing,
    fieldKind: 'organizations',
    expand: {
      query: expandQuery,
      check: (_, query) => readExpand(query),
      adds: {
        account: { shape: expandedAccount },
        organizationTemplate: { shape: organizationTemplateShape },
        parent: { shape: organizationShape, fieldKind: 'organizations' },
      },
    },
    customFields: (caller, body, before) =>
      customFieldsFor(
        ctx,
        'organizations',
        ['organizationTemplates', 'organizationTemplateId'],
        caller,
        before ?? body,
      ),
    prepare: (caller, rows, query) => prepare(ctx, caller, rows, query),
    create: {
      body: createBody,
      errors: ['unknownReference', 'tooDeep', 'userExists'],
      run: (caller, body) => create(ctx, caller, body),
    },
    update: {
      body: updateBody,
      errors: ['unknownReference', 'tooDeep'],
      revokes: true,
      run: (caller, found, version, body) => update(ctx, caller, found, version, body),
    },
    remove: { errors: ['constraint'], run: (caller, found, version) => remove(ctx, caller, found, version) },
    list: { compile: ownFilter(ctx, filtered) },
    trash: {
      listing: trashListing,
      errors: ['unknownReference', 'tooDeep'],
      recover: (caller, before, version) => recoverOne(ctx, caller, before, version),
    },
  });
}

async function create(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  const { clock, access, revocations } = ctx;
  const parent = body.parentId ?? null;
  // An identity is never both account user and end-user.
  if (body.endUserTemplateId !== undefined && isAccountWide(caller)) throw new PlatformError('userExists');
  if (caller.kind === 'newcomer') demandFirstSteps(body);
  else demandPlace(ctx, caller, parent);
  const { row, endUser } = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandInto(tx, caller, 'parentId', parent);
    const { organizationTemplateId } = body;
    const template = await templateFor(
      tx,
      'organizationTemplates',
      caller.accountId,
      organizationTemplateId,
      'organizationTemplateId',
    );
    const stamped = stamp(clock, caller);
    await demandDepth(tx, caller, stamped.id, parent);
    if (caller.kind === 'newcomer') await countOwnOrganization(tx, caller);
    const row = await insert(tx, 'organizations', {
      ...stamped,
      ...readNew(organizationSettable, body),
      organizationTemplateId: template.id,
      parentId: parent,
      fields: readNewFields(ctx.fields.of('organizations', template.id), body, ctx.fields.limits),
    });
    return {
      row,
      endUser:
        body.endUserTemplateId !== undefined ? await insertDefaultEndUser(ctx, tx, caller, row, body) : undefined,
    };
  });
  access.organizationChanged(row);
  if (!endUser) return showOrganization(ctx, row);
  access.identityChanged(caller.id);
  await revocations.identityChanged(caller.accountId, caller.id);
  return { ...showOrganization(ctx, row), defaultEndUser: showEndUser(ctx, endUser) };
}

/** The end-user that is made with an organization, linked to the identity of the caller. */
async function insertDefaultEndUser(
  ctx: RegistryContext,
  tx: Tx,
  caller: Caller,
  organization: Row<'organizations'>,
  body: Static<typeof createBody>,
): Promise<Row<'endUsers'>> {
  const { clock, config } = ctx;
  const { accountId } = caller;
  const given = body.endUserTemplateId ?? '';
  const template = await demandReference(tx, 'endUserTemplates', accountId, given, 'endUserTemplateId');
  // The first organization of somebody is its own; below another one nobody becomes more than it is there.
  if (caller.kind !== 'newcomer') await giveRole(tx, caller, 'organization', null, organization.parentId);
  const row = await insert(tx, 'endUsers', {
    ...stamp(clock, caller),
    ...readNew(endUserSettable, {}),
    roleId: null,
    identityProviderId: null,
    endUserTemplateId: template.id,
    organizationId: organization.id,
    userId: caller.id,
    fields: readNewFields(ctx.fields.of('endUsers', template.id), {}, ctx.fields.limits),
  });
  await demandMembershipRoom(tx, config.limits, row);
  return row;
}

/** @throws PlatformError 403/21 where only admins may put things, 400/102 for a parent out of the caller's reach. */
function demandPlace(ctx: RegistryContext, caller: Caller, parent: string | null): void {
  const { access } = ctx;
  if (parent === null && !isAccountWide(caller))
    throw new PlatformError('forbidden', { message: 'Only an admin makes top-level organizations.' });
  if (parent !== null && !access.reaches(caller, caller.accountId, parent)) throw unknownReference('parentId');
}

async function update(
  ctx: RegistryContext,
  caller: Caller,
  found: Row<'organizations'>,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { clock, access, revocations } = ctx;
  const before = demandLive(found);
  const { id } = before;
  const values = readFields(ctx.fields.of('organizations', before.organizationTemplateId), body);
  const moves = body.parentId !== undefined && body.parentId !== before.parentId;
  // With it all devices below may change.
  const writing = moves ? inThread(ctx.registry) : ctx;
  const { row, from } = await writeAs(writing, caller, ['organizations', id], async (tx) => {
    const stored = (await findEntity(tx, 'organizations', id)) ?? before;
    const changes: Changes<'organizations'> = readChanges(organizationSettable, body);
    changes.fields = mergeFields(stored.fields, values, ctx.fields.limits);
    if (body.parentId !== undefined && body.parentId !== stored.parentId) {
      demandMovable(caller, id);
      demandPlace(ctx, caller, body.parentId);
      await demandInto(tx, caller, 'parentId', body.parentId);
      await demandDepth(tx, caller, id, body.parentId);
      changes.parentId = body.parentId;
    }
    const tree = await topOf(tx, id);
    const row = await change(tx, 'organizations', id, version, { caller, clock }, changes);
    if (tree !== (await topOf(tx, id))) await treeChanged(tx, clock, id);
    return { row, from: stored.parentId };
  });
  access.organizationChanged(row);
  if (row.parentId !== from) access.devicesChanged();
  if (row.parentId !== from) ctx.revoked.noteRevoked(caller, await revocations.organizationMoved(row, from));
  return showOrganization(ctx, row);
}

async function remove(ctx: RegistryContext, caller: Caller, { id }: Row<'organizations'>, version: number) {
  const { clock, access } = ctx;
  demandMovable(caller, id);
  const row = await writeAs(ctx, caller, ['organizations', id], async (tx) => {
    const trashed = await trash(tx, 'organizations', id, version, clock);
    await demandEmpty(tx, id);
    return trashed;
  });
  access.organizationChanged(row);
  return showOrganization(ctx, row);
}

function readExpand(query: Expand) {
  return {
    expand: readNames('expand', query.expand, expandable),
    count: readNames('count', query.count, countable),
  };
}

/** Those of the organizations next to other entities that the caller may read. */
export function readableOrganizations(
  { access }: Pick<RegistryContext, 'access'>,
  caller: Caller,
  found: ReadonlyMap<string, Row<'organizations'>> | undefined,
): ReadonlyMap<string, Row<'organizations'>> | undefined {
  const reader = access.narrow(caller, 'read', 'organization');
  const mayRead = access.may(caller, 'read', 'organization');
  return found && new Map([...found].filter(([id, { accountId }]) => mayRead && access.reaches(reader, accountId, id)));
}

/** How rows are shown with what the query asks for next to them, which is read for all of them at once. */
async function prepare(ctx: RegistryContext, caller: Caller, rows: Row<'organizations'>[], query: Expand) {
  const { registry, access } = ctx;
  const { expand, count } = readExpand(query);
  const db = registry.query;
  const ids = rows.map((row) => row.id);
  const [parents, templates, accounts, devices, endUsers, children, counts] = await Promise.all([
    expand.has('parent') ? parentsOf(db, 'organizations', rows, 'parentId') : undefined,
    expand.has('organization-template')
      ? parentsOf(db, 'organizationTemplates', rows, 'organizationTemplateId')
      : undefined,
    expand.has('account') ? accountOf(db, caller) : undefined,
    count.has('devices') || count.has('online') ? deviceCounts(db, 'organizationId', caller.accountId, ids) : undefined,
    count.has('end-users') ? childCounts(db, 'endUsers', 'organizationId', ids) : undefined,
    count.has('children') ? childCounts(db, 'organizations', 'parentId', ids) : undefined,
    query.counts ? countTrees(ctx, caller, ids) : undefined,
  ]);
  return (row: Row<'organizations'>) => {
    const parent = parents?.get(row.parentId ?? '');
    const template = templates?.get(row.organizationTemplateId);
    const visible = parent && access.reaches(caller, parent.accountId, parent.id);
    return {
      ...showOrganization(ctx, row),
      ...(parents && { parent: visible ? showOrganization(ctx, parent) : null }),
      ...(template && { organizationTemplate: showTemplate(template) }),
      ...(accounts && { account: accounts }),
      ...(count.has('devices') && { deviceCount: devices?.get(row.id)?.devices ?? 0 }),
      ...(count.has('online') && { onlineCount: devices?.get(row.id)?.online ?? 0 }),
      ...(endUsers && { endUserCount: endUsers.get(row.id) ?? 0 }),
      ...(children && { childCount: children.get(row.id) ?? 0 }),
      ...(counts && { counts: counts.get(row.id) }),
    };
  };
}

async function recoverOne(ctx: RegistryContext, caller: Caller, before: Row<'organizations'>, version: number) {
  const { clock, access } = ctx;
  const { id } = before;
  const row = await writeAs(ctx, caller, ['organizations', id], async (tx) => {
    const { accountId, organizationTemplateId } = before;
    const path = 'organizationTemplateId';
    await demandReference(tx, 'organizationTemplates', accountId, organizationTemplateId, path);
    const recovered = await recover(tx, 'organizations', id, version, { caller, clock });
    await demandDepth(tx, caller, id, recovered.parentId);
    return recovered;
  });
  access.organizationChanged(row);
  return showOrganization(ctx, row);
}

/** @throws PlatformError 403/21 for anything but the one call of an identity that has no end-user. */
function demandFirstSteps({ endUserTemplateId, parentId: parent }: Static<typeof createBody>): void {
  if (endUserTemplateId === undefined || (parent ?? null) !== null)
    throw new PlatformError('forbidden', { message: 'Create a top-level organization with endUserTemplateId first.' });
}

/** Whether an identity that has no end-user may make one more organization. */
export async function hasFirstOrganizationsLeft(db: Db, { id }: Caller): Promise<boolean> {
  const identity = await db
    .selectFrom('identities')
    .select('organizationsMade')
    .where('id', '=', id)
    .executeTakeFirst();
  return identity !== undefined && identity.organizationsMade < firstOrganizations;
}

/** @throws PlatformError 403/21 when the identity has made as many as it may. */
async function countOwnOrganization(tx: Tx, caller: Caller): Promise<void> {
  if (!(await hasFirstOrganizationsLeft(tx, caller)))
    throw new PlatformError('forbidden', { message: `No more than ${firstOrganizations} organizations.` });
  await tx
    .updateTable('identities')
    .set((eb) => ({ organizationsMade: eb('organizationsMade', '+', 1) }))
    .where('id', '=', caller.id)
    .execute();
}

/** @throws PlatformError 403/21 for an organization that the end-user is attached to. */
function demandMovable(caller: Caller, id: string): void {
  if (isAttached(caller, id))
    throw new PlatformError('forbidden', {
      message: 'You cannot move or delete the organization that you belong to.',
    });
}

/** Whether the caller is an end-user of this very organization: then it neither moves nor deletes it. */
export function isAttached(caller: Caller, organizationId: string): boolean {
  return caller.kind === 'endUser' && caller.memberships.some((one) => one.organizationId === organizationId);
}

/**
 * That `id`, with all that is below it, may be below `parent`.
 * @throws PlatformError 400/102 without a live parent, 400/106 for a cycle, 400/105 when it would be too deep.
 */
async function demandDepth(tx: Tx, caller: Caller, id: string, parent: string | null): Promise<void> {
  let level = 1;
  for (let above = parent; above !== null; level += 1) {
    if (above === id) throw invalid('parentId', 'must not be the organization itself or below it');
    const row: Row<'organizations'> = await demandReference(tx, 'organizations', caller.accountId, above, 'parentId');
    above = row.parentId;
  }
  if (level + (await heightBelow(tx, id)) > deepestLevel) throw new PlatformError('tooDeep');
}

/** How many levels of live organizations there are below one. */
async function heightBelow(tx: Tx, id: string): Promise<number> {
  const { rows } = await sql<{ height: number }>`
    with recursive below(id, height) as (
      select "id", 0 from "organizations" where "id" = ${id}
      union all
      select o."id", below.height + 1 from "organizations" o join below on o."parentId" = below.id
      where o."deleted" is null and below.height < ${deepestLevel}
    ) select max(height) as height from below`.execute(tx);
  return rows[0]?.height ?? 0;
}

/** @throws PlatformError 400 with 104 when something live is in the organization. */
async function demandEmpty(tx: Tx, id: string): Promise<void> {
  for (const { table, column } of keepersOf('organizations'))
    if (await hasChildren(tx, table, column, id))
      throw new PlatformError('constraint', { message: `The organization has live ${inWords(table)}.` });
}
