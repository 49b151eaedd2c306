/** Identities: the people who can log in. An email address is one identity of its account, in any letter case. */

import type { Static } from 'typebox';
import { type Db, isUniqueViolation, type Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { emailKey } from '../core/formats/email-key.ts';
import { newId } from '../core/ids.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { isFullAdmin } from '../entity/giving.ts';
import { isEmail } from '../entity/values.ts';
import type { PasswordChooser } from './grants.ts';
import { type personBody, readPerson } from './person.ts';
import type { Passwords } from './secrets/passwords.ts';
import type { Sessions } from './sessions/sessions.ts';
import { demandMaker } from './token-making.ts';

/** Characters of an email address. */
export const maxEmailLength = 254;

/** The identity of an email address in an account. */
export async function findIdentity(db: Db, accountId: string, email: string): Promise<Row<'identities'> | undefined> {
  return db
    .selectFrom('identities')
    .selectAll()
    .where('accountId', '=', accountId)
    .where('emailKey', '=', emailKey(email))
    .executeTakeFirst();
}

/** A password and who chose it; both null where there is none. */
export type ChosenPassword =
  | { passwordHash: string; passwordChosenBy: PasswordChooser }
  | { passwordHash: null; passwordChosenBy: null };

export const noPassword = { passwordHash: null, passwordChosenBy: null } as const;

/** A new identity as it will be stored. @throws PlatformError 400 with 106 naming `path` if the email address is invalid. */
export function newIdentity(
  clock: Clock,
  path: string,
  { accountId, email, ...password }: { accountId: string; email: string } & ChosenPassword,
): Row<'identities'> {
  demandEmail(path, email);
  return {
    id: newId(accountId),
    accountId,
    email,
    emailKey: emailKey(email),
    ...password,
    organizationsMade: 0,
    created: timestamp(clock),
    emailConfirmed: 0,
    signedUp: 0,
    name: null,
    firstName: null,
    lastName: null,
    company: null,
    department: null,
    phoneNumber: null,
    address: null,
    addressObject: null,
    identityProviderId: null,
    disabledById: null,
  };
}

/** The part of a body that describes the identity to be created. */
interface NewUserBody {
  createIdmUser?: boolean;
  idmUserEmail?: string;
  idmUserPassword?: string;
  idmUserProfile?: Static<typeof personBody> | null;
}

/**
 * The identity that a body wants made; without a password it is an invitation.
 * @throws PlatformError 400 with 106 naming the property; as demandMaker for a password.
 */
export async function identityFor(
  { clock, passwords }: { clock: Clock; passwords: Passwords },
  caller: Caller,
  { createIdmUser, idmUserEmail: email, idmUserPassword: password, idmUserProfile }: NewUserBody,
): Promise<Row<'identities'>> {
  if (createIdmUser !== true) throw invalid('createIdmUser', 'must be true, or userId an existing identity');
  if (email === undefined) throw invalid('idmUserEmail', 'is required');
  const { accountId } = caller;
  const blank = newIdentity(clock, 'idmUserEmail', { accountId, email, ...noPassword });
  const identity = { ...blank, ...readPerson(idmUserProfile ?? {}, 'idmUserProfile.') };
  if (password === undefined) return identity;
  demandMaker(caller);
  const passwordHash = await passwords.hashNew('idmUserPassword', password, email, laneOf(caller));
  return { ...identity, passwordHash, passwordChosenBy: isFullAdmin(caller) ? 'admin' : 'other' };
}

/** @throws PlatformError 400 with 110 when the email belongs to an account user, with 106 when to somebody else. */
export async function insertIdentity(tx: Db, path: string, identity: Row<'identities'>): Promise<void> {
  try {
    await tx.insertInto('identities').values(identity).execute();
  } catch (error) {
    if (!isUniqueViolation(error)) throw error;
    throw await emailTaken(tx, path, identity);
  }
}

/** @throws PlatformError as insertIdentity, when somebody else of the account than `id` has the email address. */
export async function demandFree(db: Db, path: string, { id, accountId }: Person, email: string): Promise<void> {
  const holder = await findIdentity(db, accountId, email);
  if (holder && holder.id !== id) throw await emailTaken(db, path, holder);
}

/** A person of an account. */
export type Person = Pick<Row<'identities'>, 'id' | 'accountId' | 'email'>;

async function emailTaken(
  db: Db,
  path: string,
  { accountId, emailKey }: Pick<Row<'identities'>, 'accountId' | 'emailKey'>,
) {
  const accountUser = await db
    .selectFrom('accountUsers')
    .innerJoin('identities', 'identities.id', 'accountUsers.userId')
    .select('accountUsers.id')
    .where('identities.accountId', '=', accountId)
    .where('identities.emailKey', '=', emailKey)
    .where('accountUsers.deleted', 'is', null)
    .executeTakeFirst();
  if (accountUser) return new PlatformError('userExists');
  return new PlatformError('notUnique', { details: [{ path, message: 'The email address is taken.' }] });
}

/** Whether an identity is one of the account's admins. */
export async function isAccountUser(db: Db, userId: string): Promise<boolean> {
  const accountUser = db.selectFrom('accountUsers').select('id').where('userId', '=', userId);
  return (await accountUser.where('deleted', 'is', null).executeTakeFirst()) !== undefined;
}

/** @throws PlatformError 400/104 when no live admin is left who may log in. */
export async function demandAdmin(tx: Db, accountId: string): Promise<void> {
  const admins = tx
    .selectFrom('accountUsers')
    .innerJoin('identities', 'identities.id', 'accountUsers.userId')
    .select('accountUsers.id')
    .where('accountUsers.accountId', '=', accountId)
    .where('accountUsers.roleId', 'is', null)
    .where('accountUsers.deleted', 'is', null);
  if (!(await admins.where('identities.disabledById', 'is', null).limit(1).executeTakeFirst()))
    throw new PlatformError('constraint', { message: 'The last account user with the role admin has to stay.' });
}

/**
 * Sets a password. What the former one had opened ends with it: tokens sent by mail, logins half way, and every session
 * but `except`; the ids of those sessions, whose connections end after the commit.
 */
export async function setPassword(
  tx: Tx,
  { sessions }: { sessions: Sessions },
  userId: string,
  { passwordHash, passwordChosenBy }: Exclude<ChosenPassword, { passwordHash: null }>,
  except?: string,
): Promise<string[]> {
  await tx.updateTable('identities').set({ passwordHash, passwordChosenBy }).where('id', '=', userId).execute();
  for (const table of ['mailedTokens', 'mfaLogins'] as const)
    await tx.deleteFrom(table).where('userId', '=', userId).execute();
  return sessions.endAll(tx, userId, except);
}

/** @throws PlatformError 400 with 106 naming `path`. */
export function demandEmail(path: string, email: string): void {
  if (!isEmail(email)) throw invalid(path, 'must be an email address of at most 254 characters');
}
