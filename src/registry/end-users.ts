/** End-users: a person in an organization, tied to an identity that logs in. */

import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Tx } from '../../db/registry/index.ts';
import { endUserColumns } from '../../db/registry/records/organizations.ts';
import type { Row } from '../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
import { changeProperties, createProperties, listingOf, readChanges, readNew } from '../entity/columns.ts';
import { parentsOf, readNames } from '../entity/expand.ts';
import { fieldBody } from '../entity/fields.ts';
import { giveRole, isMore, shownRoleId } from '../entity/giving.ts';
import { entityRoutes } from '../entity/kind.ts';
import { mergeFields, readFields, readNewFields } from '../entity/values.ts';
import {
  change,
  demandInto,
  demandLive,
  demandReference,
  insert,
  recover,
  stamp,
  trash,
  writeAs,
} from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { endVoided, readIdentity } from '../identity/grants.ts';
import { identityFor, isAccountUser, maxEmailLength } from '../identity/identities.ts';
import { Invitations } from '../identity/invitations.ts';
import { demandMembershipRoom } from '../identity/memberships.ts';
import { personBody } from '../identity/person.ts';
import { maxPasswordLength } from '../identity/secrets/passwords.ts';
import type { Revoked } from '../ports/revocations.ts';
import { accountOf, expandedAccount } from './accounts.ts';
import type { RegistryContext } from './context.ts';
import { endUserSettable, endUserShape, showEndUser } from './end-user.ts';
import { ownFilter } from './filters.ts';
import { organizationShape, readableOrganizations, showOrganization } from './organizations.ts';
import { customFieldsFor, endUserTemplateShape, showTemplate, templateFor } from './templates.ts';

/** The person of an end-user: an existing identity, a new one, or nobody. */
const person = {
  createIdmUser: Type.Optional(
    Type.Boolean({
      description: 'Makes the identity of idmUserEmail. Without it and without userId there is no person.',
    }),
  ),
  idmUserEmail: Type.Optional(Type.String({ maxLength: maxEmailLength })),
  idmUserPassword: Type.Optional(
    Type.String({
      maxLength: maxPasswordLength,
      description: 'Without one an invitation is mailed, with which the person sets it.',
    }),
  ),
  idmUserProfile: Type.Optional(
    Type.Unsafe<Static<typeof personBody> | null>({ ...personBody, type: ['object', 'null'] }),
  ),
};
const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(endUserColumns),
  ...person,
  ...fieldBody('endUsers'),
});
const updateBody = Type.Object({
  ...changeProperties(endUserColumns),
  organizationId: Type.String(),
  ...person,
  ...fieldBody('endUsers'),
});
const expandable = ['account', 'end-user-template', 'organization'] as const;
const expandQuery = {
  expand: Type.Optional(Type.String({ description: `Comma-separated: ${expandable.join(', ')}` })),
};
type Expand = { expand?: string };

const listing = listingOf('endUsers', endUserColumns, { sorts: ['accountId'], reach: 'organizationId' });
const filtered = { kind: 'endUsers', columns: endUserColumns, template: 'endUserTemplateId' } as const;

type Services = RegistryContext & { invitations: Invitations };

export function endUserRoutes(app: App, all: RegistryContext): void {
  const ctx: Services = { ...all, invitations: new Invitations(all) };
  entityRoutes(app, ctx, {
    path: '/end-users',
    tag: 'End-users',
    entity: 'endUser',
    wrapper: 'endUser',
    plural: 'endUsers',
    shape: endUserShape,
    listing,
    fieldKind: 'endUsers',
    expand: {
      query: expandQuery,
      check: (_, { expand }) => readNames('expand', expand, expandable),
      adds: {
        account: { shape: expandedAccount },
        endUserTemplate: { shape: endUserTemplateShape },
        organization: { shape: organizationShape, fieldKind: 'organizations' },
      },
    },
    customFields: (caller, body, before) =>
      customFieldsFor(ctx, 'endUsers', ['endUserTemplates', 'endUserTemplateId'], caller, before ?? body),
    prepare: (caller, rows, query) => prepare(ctx, caller, rows, query),
    create: {
      body: createBody,
      errors: ['unknownReference', 'notUnique', 'userExists', 'tooMany'],
      run: (caller, body) => create(ctx, caller, body),
    },
    update: {
      body: updateBody,
      // An end-user that has a person keeps it.
      ignores: ({ userId }) => (userId === null ? [] : Object.keys(person)),
      errors: ['unknownReference', 'notUnique', 'userExists', 'tooMany'],
      revokes: true,
      run: (caller, found, version, body) => update(ctx, caller, found, version, body),
    },
    remove: { revokes: true, run: (caller, found, version) => remove(ctx, caller, found, version) },
    list: { compile: ownFilter(ctx, filtered) },
    trash: {
      errors: ['unknownReference', 'userExists'],
      recover: (caller, before, version) => recoverOne(ctx, caller, before, version),
    },
  });
}

async function create(ctx: Services, caller: Caller, body: Static<typeof createBody>) {
  const { clock, access, config } = ctx;
  if (!access.reaches(caller, caller.accountId, body.organizationId)) throw unknownReference('organizationId');
  const identity = await newPerson(ctx, caller, body);
  const { row, invitation, ended } = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandInto(tx, caller, 'organizationId', body.organizationId);
    const { accountId } = caller;
    const { organizationId, endUserTemplateId } = body;
    const organization = await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
    const template = await templateFor(tx, 'endUserTemplates', accountId, endUserTemplateId, 'endUserTemplateId');
    const roleId = await giveRole(tx, caller, 'organization', body.roleId, organization.id);
    const { userId, invitation, ended } = await givePerson(ctx, tx, caller, identity, body.userId);
    const row = await insert(tx, 'endUsers', {
      ...stamp(clock, caller),
      ...readNew(endUserSettable, body),
      endUserTemplateId: template.id,
      organizationId: organization.id,
      userId,
      roleId,
      identityProviderId: null,
      fields: readNewFields(ctx.fields.of('endUsers', template.id), body, ctx.fields.limits),
    });
    await demandMembershipRoom(tx, config.limits, row);
    if (roleId !== null) await recordRole(ctx, tx, caller, row);
    return { row, invitation, ended };
  });
  await identityChanged(ctx, row);
  endVoided(ctx, caller, ended);
  return { ...showEndUser(ctx, row), ...(await ctx.invitations.send(invitation)) };
}

/** The identity that a body wants made; undefined when it names one, or nobody. @throws as identityFor. */
async function newPerson(
  ctx: Services,
  caller: Caller,
  body: Static<typeof updateBody>,
): Promise<Row<'identities'> | undefined> {
  const { createIdmUser, idmUserEmail, idmUserPassword, idmUserProfile } = body;
  const isAsked = createIdmUser === true || [idmUserEmail, idmUserPassword, idmUserProfile].some(isGiven);
  if (isGiven(body.userId) || !isAsked) return undefined;
  const identity = await identityFor(ctx, caller, body);
  ctx.invitations.demandRoom(caller, identity);
  return identity;
}

/** Makes the person of an end-user, or grants it to the one who is named; nobody is neither. */
async function givePerson(
  ctx: Services,
  tx: Tx,
  caller: Caller,
  identity: Row<'identities'> | undefined,
  named: string | null | undefined,
) {
  if (identity) return { ...(await ctx.invitations.makeIdentity(tx, caller, identity)), userId: identity.id };
  if (named === undefined || named === null)
    return { userId: null, invitation: undefined, ended: { sessionIds: [], entityIds: [] } };
  const existing = await existingIdentity(tx, ctx, caller, named);
  return { ...(await ctx.invitations.grant(tx, caller, existing, 'endUser')), userId: existing.id };
}

async function identityChanged(ctx: Services, { id, accountId, userId }: Row<'endUsers'>): Promise<Revoked[]> {
  const { access, revocations } = ctx;
  access.identityChanged(userId);
  const ended = userId === null ? [] : [await revocations.identityChanged(accountId, userId)];
  return [...ended, await revocations.entityChanged(accountId, id)];
}

async function update(
  ctx: Services,
  caller: Caller,
  found: Row<'endUsers'>,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { clock, access, config } = ctx;
  const before = demandLive(found);
  const { id } = before;
  if (!access.reaches(caller, caller.accountId, body.organizationId)) throw unknownReference('organizationId');
  const values = readFields(ctx.fields.of('endUsers', before.endUserTemplateId), body);
  if (before.userId !== null && isGiven(body.userId) && body.userId !== before.userId)
    throw invalid('userId', 'cannot be changed: the end-user has a person');
  const identity = before.userId === null ? await newPerson(ctx, caller, body) : undefined;
  const { row, invitation, ended } = await writeAs(ctx, caller, ['endUsers', id], async (tx) => {
    await demandInto(tx, caller, 'organizationId', body.organizationId);
    const { accountId } = caller;
    const { organizationId } = body;
    const organization = await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
    const stored = (await findEntity(tx, 'endUsers', id)) ?? before;
    const roleId = await roleAfter(tx, caller, stored, body, identity !== undefined);
    const { userId, invitation, ended } = await givePerson(
      ctx,
      tx,
      caller,
      identity,
      stored.userId ? null : body.userId,
    );
    const changes = {
      ...readChanges(endUserSettable, body),
      organizationId: organization.id,
      userId: stored.userId ?? userId,
      roleId,
      fields: mergeFields(stored.fields, values, ctx.fields.limits),
    };
    // A person who has been attached meanwhile has changed the version.
    const row = await change(tx, 'endUsers', id, version, { caller, clock }, changes);
    if (!stored.userId) await demandMembershipRoom(tx, config.limits, row);
    if (roleId !== stored.roleId) await recordRole(ctx, tx, caller, row);
    const raised = await regrant(ctx, tx, caller, stored, row);
    return { row, ...(raised ?? { invitation, ended }) };
  });
  for (const revoked of await identityChanged(ctx, row)) ctx.revoked.noteRevoked(caller, revoked);
  endVoided(ctx, caller, ended);
  return { ...showEndUser(ctx, row), ...(await ctx.invitations.send(invitation)) };
}

/**
 * The role of an end-user after a PUT, as it is stored. Its giver needs all of it where the end-user gets it: in another
 * organization too, and for another person.
 */
function roleAfter(
  tx: Tx,
  caller: Caller,
  before: Row<'endUsers'>,
  { roleId, organizationId, userId }: Static<typeof updateBody>,
  hasNewPerson: boolean,
): Promise<string | null> | string | null {
  const isSame =
    organizationId === before.organizationId && (before.userId !== null || !(hasNewPerson || isGiven(userId)));
  if (roleId === undefined && isSame) return before.roleId;
  return giveRole(tx, caller, 'organization', roleId ?? before.roleId, organizationId);
}

/** A password that others have chosen must not open what a new role gives. */
async function regrant(ctx: Services, tx: Tx, caller: Caller, before: Row<'endUsers'>, after: Row<'endUsers'>) {
  const isRaised = await isMore(tx, after.accountId, 'organization', after.roleId, before.roleId);
  const identity = isRaised && before.userId !== null ? await readIdentity(tx, before.userId) : undefined;
  return identity && ctx.invitations.grant(tx, caller, identity, 'role');
}

function recordRole(ctx: Services, tx: Tx, actor: Caller, { id, accountId, roleId, organizationId }: Row<'endUsers'>) {
  const target = { kind: 'endUser', id } as const;
  const details = { roleId: shownRoleId(roleId, 'organization'), organizationId };
  return ctx.audit.record(tx, { event: 'roleAssigned', outcome: 'success', accountId, actor, target, details });
}

async function remove(ctx: Services, caller: Caller, { id }: Row<'endUsers'>, version: number) {
  const { clock } = ctx;
  const row = await writeAs(ctx, caller, ['endUsers', id], (tx) => trash(tx, 'endUsers', id, version, clock));
  for (const ended of await identityChanged(ctx, row)) ctx.revoked.noteRevoked(caller, ended);
  return showEndUser(ctx, row);
}

/** How rows are shown with what the query asks for next to them, which is read for all of them at once. */
async function prepare(ctx: Services, caller: Caller, rows: Row<'endUsers'>[], query: Expand) {
  const { registry } = ctx;
  const expand = readNames('expand', query.expand, expandable);
  const db = registry.query;
  const [found, templates, account] = await Promise.all([
    expand.has('organization') ? parentsOf(db, 'organizations', rows, 'organizationId') : undefined,
    expand.has('end-user-template') ? parentsOf(db, 'endUserTemplates', rows, 'endUserTemplateId') : undefined,
    expand.has('account') ? accountOf(db, caller) : undefined,
  ]);
  const organizations = readableOrganizations(ctx, caller, found);
  return (row: Row<'endUsers'>) => {
    const organization = organizations?.get(row.organizationId);
    const template = templates?.get(row.endUserTemplateId);
    return {
      ...showEndUser(ctx, row),
      ...(organization && { organization: showOrganization(ctx, organization) }),
      ...(template && { endUserTemplate: showTemplate(template) }),
      ...(account && { account }),
    };
  };
}

async function recoverOne(ctx: Services, caller: Caller, before: Row<'endUsers'>, version: number) {
  const { clock, config } = ctx;
  const { id } = before;
  const row = await writeAs(ctx, caller, ['endUsers', id], async (tx) => {
    const { accountId, organizationId, endUserTemplateId } = before;
    await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
    await demandReference(tx, 'endUserTemplates', accountId, endUserTemplateId, 'endUserTemplateId');
    if (before.userId !== null && (await isAccountUser(tx, before.userId))) throw new PlatformError('userExists');
    await giveRole(tx, caller, 'organization', before.roleId, organizationId);
    const recovered = await recover(tx, 'endUsers', id, version, { caller, clock });
    await demandMembershipRoom(tx, config.limits, recovered);
    return recovered;
  });
  await identityChanged(ctx, row);
  return showEndUser(ctx, row);
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/**
 * An identity of the account for an end-user; an end-user may name only whom it can see.
 * @throws PlatformError 400/102 for an identity that is not there or out of reach, 400/110 for an account user's.
 */
async function existingIdentity(
  tx: Tx,
  { access }: RegistryContext,
  caller: Caller,
  userId: string,
): Promise<Row<'identities'>> {
  const identity = await tx.selectFrom('identities').selectAll().where('id', '=', userId).executeTakeFirst();
  if (!identity || identity.accountId !== caller.accountId) throw unknownReference('userId');
  if (!isAccountWide(caller)) {
    const endUsers = tx.selectFrom('endUsers').select('organizationId').where('userId', '=', userId);
    const known = await endUsers.where('deleted', 'is', null).execute();
    const inReach = known.some(({ organizationId }) => access.reaches(caller, caller.accountId, organizationId));
    if (!inReach) throw unknownReference('userId');
  }
  if (await isAccountUser(tx, userId)) throw new PlatformError('userExists');
  return identity;
}
