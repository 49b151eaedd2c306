/** Identities: the people who can log in. An e-mail address is one identity of its account, in any letter case. */
import { v7 as uuidv7 } from 'uuid';
import { type Db, isUniqueViolation } from '../../db/index.js';
import type { Row } from '../../db/records.js';
import type { Clock } from '../context.js';
import { isEmail } from '../entity/values.js';
import { timestamp } from '../entity/verbs.js';
import { invalid, PlatformError } from '../errors.js';

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
  return { id: uuidv7(), accountId, email, emailKey: emailKey(email), passwordHash, created: timestamp(clock) };
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

function emailKey(email: string): string {
  return email.normalize('NFKC').toLowerCase();
}
