/** Identities: the people who can log in. An e-mail address is one identity of its account, in any letter case. */
import { v7 as uuidv7 } from 'uuid';
import { type Db, isUniqueViolation } from '../../db/index.js';
import type { Row } from '../../db/records.js';
import type { Clock, Context } from '../context.js';
import { isEmail } from '../entity/values.js';
import { timestamp } from '../entity/verbs.js';
import { invalid, PlatformError } from '../errors.js';
import { checkPassword } from './passwords.js';

/** The identity of an e-mail address in an account. */
export async function findIdentity(db: Db, accountId: string, email: string): Promise<Row<'identities'> | undefined> {
  return db
    .selectFrom('identities')
    .selectAll()
    .where('accountId', '=', accountId)
    .where('emailKey', '=', emailKey(email))
    .executeTakeFirst();
}

/** A new identity as it will be stored. @throws PlatformError 400 with 106 naming `path` when the e-mail is none. */
export function newIdentity(
  clock: Clock,
  path: string,
  { accountId, email, passwordHash }: { accountId: string; email: string; passwordHash: string | null },
): Row<'identities'> {
  if (!isEmail(email)) throw invalid(path, 'must be an e-mail address of at most 254 characters');
  return {
    id: uuidv7(),
    accountId,
    email,
    emailKey: emailKey(email),
    passwordHash,
    organizationsMade: 0,
    created: timestamp(clock),
    name: null,
    firstName: null,
    lastName: null,
    company: null,
    department: null,
    phoneNumber: null,
    address: null,
  };
}

/** What a body says of the identity that is to be made (spec 4.4, decisions 3). */
export interface NewUserBody {
  createIdmUser?: boolean;
  idmUserEmail?: string;
  idmUserPassword?: string;
}

/**
 * The identity that a body wants made; without a password it is an invitation.
 * @throws PlatformError 400 with 106 naming the property, as the spec's rules say.
 */
export async function identityFor(
  { clock, passwords }: Pick<Context, 'clock' | 'passwords'>,
  accountId: string,
  { createIdmUser, idmUserEmail: email, idmUserPassword: password }: NewUserBody,
): Promise<Row<'identities'>> {
  if (createIdmUser !== true) throw invalid('createIdmUser', 'must be true, or userId an existing identity');
  if (email === undefined) throw invalid('idmUserEmail', 'is required');
  const identity = newIdentity(clock, 'idmUserEmail', { accountId, email, passwordHash: null });
  if (password === undefined) return identity;
  checkPassword('idmUserPassword', password, email);
  return { ...identity, passwordHash: await passwords.hash(password) };
}

/** @throws PlatformError 400 with 110 when the e-mail belongs to an account user, with 106 when to an end-user. */
export async function insertIdentity(tx: Db, path: string, identity: Row<'identities'>): Promise<void> {
  try {
    await tx.insertInto('identities').values(identity).execute();
  } catch (error) {
    if (!isUniqueViolation(error)) throw error;
    const accountUser = await tx
      .selectFrom('accountUsers')
      .innerJoin('identities', 'identities.id', 'accountUsers.userId')
      .select('accountUsers.id')
      .where('identities.accountId', '=', identity.accountId)
      .where('identities.emailKey', '=', identity.emailKey)
      .where('accountUsers.deleted', 'is', null)
      .executeTakeFirst();
    if (accountUser) throw new PlatformError('userExists');
    throw new PlatformError('notUnique', { details: [{ path, message: 'The e-mail address is taken.' }] });
  }
}

/** By what e-mail addresses are compared: any letter case is the same. */
export function emailKey(email: string): string {
  return email.normalize('NFKC').toLowerCase();
}
