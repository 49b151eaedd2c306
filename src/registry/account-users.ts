/** Account users: the people of an account, each with a role. The last admin stays. */

import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Tx } from '../../db/registry/index.ts';
import { accountUserColumns } from '../../db/registry/records/identity.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { PlatformError, unknownReference } from '../core/errors.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { giveRole, isMore, shownRoleId } from '../entity/giving.ts';
import { entityRoutes } from '../entity/kind.ts';
import { change, demandLive, insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { endVoided, readIdentity } from '../identity/grants.ts';
import { demandAdmin, identityFor, maxEmailLength } from '../identity/identities.ts';
import { Invitations, invitationSent } from '../identity/invitations.ts';
import { maxPasswordLength } from '../identity/secrets/passwords.ts';
import type { AuditEvent } from '../operations/audit/events.ts';
import type { RegistryContext } from './context.ts';

const updateBody = Type.Object(changeProperties(accountUserColumns));
const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(accountUserColumns),
  createIdmUser: Type.Optional(Type.Boolean()),
  idmUserEmail: Type.Optional(Type.String({ maxLength: maxEmailLength })),
  idmUserPassword: Type.Optional(
    Type.String({
      maxLength: maxPasswordLength,
      description: 'Without one an invitation is mailed, with which the person sets it.',
    }),
  ),
});
const shape = Type.Object({
  ...commonShape,
  ...shownProperties(accountUserColumns),
  emailAddress: Type.Optional(Type.String({ description: 'Of the login. Reading and listing show it.' })),
  invitationSent,
});

const listing = listingOf('accountUsers', accountUserColumns);

const showColumns = showing(accountUserColumns);
const show = (row: Row<'accountUsers'>) => ({
  ...showCommon(row),
  ...showColumns(row),
  roleId: shownRoleId(row.roleId, 'account'),
});

type Services = RegistryContext & { invitations: Invitations };

export function accountUserRoutes(app: App, all: RegistryContext): void {
  const ctx: Services = { ...all, invitations: new Invitations(all) };
  entityRoutes(app, ctx, {
    path: '/account-users',
    tag: 'Account users',
    entity: 'accountUser',
    wrapper: 'accountUser',
    plural: 'accountUsers',
    shape,
    listing,
    prepare: (caller, rows) => prepare(ctx, caller, rows),
    create: {
      summary: 'Create an admin, or another user of the account',
      description:
        'Without a roleId it can do everything in the account. Without a password, the person gets an invitation by email.',
      answer: 'The new admin.',
      // Deleted is what an Idempotency-Key may find whose answer was lost: there is no trash to read.
      errors: ['unknownReference', 'notUnique', 'userExists', 'deleted'],
      body: createBody,
      run: (caller, body) => create(ctx, caller, body),
    },
    read: { summary: 'Read an admin', answer: 'The admin.' },
    list: { summary: 'List admins' },
    update: {
      summary: 'Change the role of an admin',
      description:
        'It takes effect before the answer, on connections too. An account keeps at least one `account:admin`.',
      answer: 'The admin, with its new version.',
      errors: ['unknownReference', 'constraint', 'notUnique'],
      revokes: true,
      body: updateBody,
      run: (caller, found, version, body) => update(ctx, caller, found, version, body),
    },
    remove: {
      summary: 'Delete an admin',
      description: 'Sessions of the admin end. An account keeps at least one admin.',
      answer: 'An admin no longer.',
      errors: ['constraint'],
      revokes: true,
      run: (caller, found, version) => remove(ctx, caller, found, version),
    },
  });
}

function recordEvent(
  ctx: Services,
  tx: Tx,
  event: AuditEvent,
  actor: Caller,
  { id, accountId, userId, roleId }: Row<'accountUsers'>,
) {
  const target = { kind: 'accountUser', id } as const;
  const details = { userId, roleId: shownRoleId(roleId, 'account') };
  return ctx.audit.record(tx, { event, outcome: 'success', accountId, actor, target, details });
}

async function create(ctx: Services, caller: Caller, body: Static<typeof createBody>) {
  const { clock, access } = ctx;
  const identity = body.userId === undefined ? await identityFor(ctx, caller, body) : undefined;
  const { row, invitation, ended } = await writeAs(ctx, caller, undefined, async (tx) => {
    const roleId = await giveRole(tx, caller, 'account', body.roleId);
    const { invitation, ended } = identity
      ? await ctx.invitations.makeIdentity(tx, caller, identity)
      : await ctx.invitations.grant(tx, caller, await demandPromotable(tx, caller, body.userId ?? ''), 'accountUser');
    const userId = identity?.id ?? body.userId ?? '';
    const row = await insert(tx, 'accountUsers', {
      ...stamp(clock, caller),
      ...readNew(accountUserColumns, body),
      userId,
      roleId,
      identityProviderId: null,
    });
    await recordEvent(ctx, tx, 'accountUserCreated', caller, row);
    if (roleId !== null) await recordEvent(ctx, tx, 'roleAssigned', caller, row);
    return { row, invitation, ended };
  });
  access.identityChanged(row.userId);
  endVoided(ctx, caller, ended);
  return { ...show(row), ...(await ctx.invitations.send(invitation)) };
}

async function update(
  ctx: Services,
  caller: Caller,
  found: Row<'accountUsers'>,
  version: number,
  body: Static<typeof updateBody>,
) {
  const { clock, access } = ctx;
  const before = demandLive(found);
  const { row, invitation, ended } = await writeAs(ctx, caller, undefined, async (tx) => {
    const stored = (await findEntity(tx, 'accountUsers', before.id)) ?? before;
    const roleId = body.roleId === undefined ? stored.roleId : await giveRole(tx, caller, 'account', body.roleId);
    const row = await change(tx, 'accountUsers', before.id, version, { caller, clock }, { roleId });
    await demandAdmin(tx, caller.accountId);
    if (roleId !== stored.roleId) await recordEvent(ctx, tx, 'roleAssigned', caller, row);
    const granted = await regrant(ctx, tx, caller, stored, row);
    return { row, ...granted };
  });
  access.identityChanged(row.userId);
  await endRights(ctx, caller, row);
  endVoided(ctx, caller, ended);
  return { ...show(row), ...(await ctx.invitations.send(invitation)) };
}

/** A password that others have chosen must not open what a new role gives. */
async function regrant(ctx: Services, tx: Tx, caller: Caller, before: Row<'accountUsers'>, after: Row<'accountUsers'>) {
  const isRaised = await isMore(tx, after.accountId, 'account', after.roleId, before.roleId);
  const identity = isRaised ? await readIdentity(tx, after.userId) : undefined;
  if (!identity) return { invitation: undefined, ended: { sessionIds: [], entityIds: [] } };
  return ctx.invitations.grant(tx, caller, identity, 'role');
}

/** After the commit that took rights: ends what was made of them. */
async function endRights({ revocations, revoked }: Services, caller: Caller, row: Row<'accountUsers'>): Promise<void> {
  revoked.noteRevoked(caller, await revocations.identityChanged(row.accountId, row.userId));
  revoked.noteRevoked(caller, await revocations.entityChanged(row.accountId, row.id));
}

async function remove(ctx: Services, caller: Caller, { id }: Row<'accountUsers'>, version: number) {
  const { clock, access } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'accountUsers', id, version, clock);
    await demandAdmin(tx, caller.accountId);
    await recordEvent(ctx, tx, 'accountUserDeleted', caller, trashed);
    return trashed;
  });
  access.identityChanged(row.userId);
  await endRights(ctx, caller, row);
  return show(row);
}

/** With the addresses of their logins, which admins see of each other. */
async function prepare(ctx: Services, _: Caller, rows: Row<'accountUsers'>[]) {
  const { registry } = ctx;
  const userIds = rows.map(({ userId }) => userId);
  const identities = registry.query.selectFrom('identities').select(['id', 'email']).where('id', 'in', userIds);
  const emails = new Map((await identities.execute()).map(({ id, email }) => [id, email]));
  return (row: Row<'accountUsers'>) => {
    const emailAddress = emails.get(row.userId);
    return { ...show(row), ...(emailAddress && { emailAddress }) };
  };
}

/**
 * An identity of the account that may become an admin. @throws PlatformError 400/102 for one of another account or none,
 * 400/110 for one that has a live end-user or is an admin already: an identity is never both.
 */
async function demandPromotable(tx: Tx, { accountId }: Caller, userId: string): Promise<Row<'identities'>> {
  const identity = await readIdentity(tx, userId);
  if (identity?.accountId !== accountId) throw unknownReference('userId');
  for (const table of ['endUsers', 'accountUsers'] as const) {
    const taken = tx.selectFrom(table).select('id').where('userId', '=', userId).where('deleted', 'is', null);
    if (await taken.executeTakeFirst()) throw new PlatformError('userExists');
  }
  return identity;
}
