/** Account users: the admins of an account. All are equal; the last one stays. */

import { type Static, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { accountUserColumns } from '../../db/registry/records/identity.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../access.ts';
import type { AuditEvent } from '../audit/events.ts';
import {
  commonShape,
  createProperties,
  listingOf,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { entityRoutes } from '../entity/kind.ts';
import { insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import { PlatformError, unknownReference } from '../errors.ts';
import type { App } from '../http/app.ts';
import { endVoided, readIdentity } from '../identity/grants.ts';
import { identityFor, maxEmailLength } from '../identity/identities.ts';
import { Invitations, invitationSent } from '../identity/invitations.ts';
import { maxPasswordLength } from '../identity/secrets/passwords.ts';
import type { RegistryContext } from './context.ts';

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
const show = (row: Row<'accountUsers'>) => ({ ...showCommon(row), ...showColumns(row) });

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
      summary: 'Create an admin',
      description:
        'Admins can do everything in the account. Without a password, the person gets an invitation by email.',
      answer: 'The new admin.',
      // Deleted is what an Idempotency-Key may find whose answer was lost: there is no trash to read.
      errors: ['unknownReference', 'notUnique', 'userExists', 'deleted'],
      body: createBody,
      run: (caller, body) => create(ctx, caller, body),
    },
    read: { summary: 'Read an admin', answer: 'The admin.' },
    list: { summary: 'List admins' },
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
  { id, accountId, userId }: Row<'accountUsers'>,
) {
  const target = { kind: 'accountUser', id } as const;
  return ctx.audit.record(tx, { event, outcome: 'success', accountId, actor, target, details: { userId } });
}

async function create(ctx: Services, caller: Caller, body: Static<typeof createBody>) {
  const { clock, access } = ctx;
  const identity = body.userId === undefined ? await identityFor(ctx, caller, body) : undefined;
  const { row, invitation, ended } = await writeAs(ctx, caller, undefined, async (tx) => {
    const { invitation, ended } = identity
      ? await ctx.invitations.makeIdentity(tx, caller, identity)
      : await ctx.invitations.grant(tx, caller, await demandPromotable(tx, caller, body.userId ?? ''), 'accountUser');
    const userId = identity?.id ?? body.userId ?? '';
    const row = await insert(tx, 'accountUsers', {
      ...stamp(clock, caller),
      ...readNew(accountUserColumns, body),
      userId,
    });
    await recordEvent(ctx, tx, 'accountUserCreated', caller, row);
    return { row, invitation, ended };
  });
  access.identityChanged(row.userId);
  endVoided(ctx, caller, ended);
  return { ...show(row), ...(await ctx.invitations.send(invitation)) };
}

async function remove(ctx: Services, caller: Caller, { id }: Row<'accountUsers'>, version: number) {
  const { clock, access, revocations } = ctx;
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'accountUsers', id, version, clock);
    const others = tx.selectFrom('accountUsers').select('id').where('accountId', '=', caller.accountId);
    if (!(await others.where('deleted', 'is', null).limit(1).executeTakeFirst()))
      throw new PlatformError('constraint', { message: 'The last account user cannot be deleted.' });
    await recordEvent(ctx, tx, 'accountUserDeleted', caller, trashed);
    return trashed;
  });
  access.identityChanged(row.userId);
  ctx.revoked.noteRevoked(caller, await revocations.identityChanged(row.accountId, row.userId));
  ctx.revoked.noteRevoked(caller, await revocations.entityChanged(row.accountId, id));
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
