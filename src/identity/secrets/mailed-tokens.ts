/**
 * Tokens that prove who reads the mail of an address: they set a password, or confirm the address. Each works once, for
 * one person and one purpose; a newer one of its kind ends it. The store holds their hashes.
 */
import { createHash } from 'node:crypto';
import type { Db, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { makeToken } from './secrets.ts';

const hour = 60 * 60_000;

/** How long each lasts, in milliseconds; an invitation is a token for the first password. */
const tokenLifetimes = { reset: hour, invitation: 7 * 24 * hour, email: 24 * hour };

interface WantedToken {
  accountId: string;
  userId: string;
  kind: keyof typeof tokenLifetimes;
  /** The address that the token confirms. */
  email?: string;
}

/** Makes a token; the only copy is the answer. Former ones of its purpose are void. */
export async function makeMailedToken(
  tx: Tx,
  clock: Clock,
  { accountId, userId, kind, email }: WantedToken,
): Promise<string> {
  const token = makeToken(accountId);
  const purpose = kind === 'email' ? 'email' : 'password';
  await tx.deleteFrom('mailedTokens').where('userId', '=', userId).where('purpose', '=', purpose).execute();
  await tx
    .insertInto('mailedTokens')
    .values({
      tokenHash: hashToken(token),
      userId,
      purpose,
      email: email ?? null,
      created: timestamp(clock),
      expires: new Date(clock.now() + tokenLifetimes[kind]).toISOString(),
    })
    .execute();
  return token;
}

/** The meaning of a valid token. */
export async function findMailedToken(
  db: Db,
  clock: Clock,
  purpose: 'password' | 'email',
  token: string,
): Promise<Row<'mailedTokens'> | undefined> {
  return db
    .selectFrom('mailedTokens')
    .selectAll()
    .where('tokenHash', '=', hashToken(token))
    .where('purpose', '=', purpose)
    .where('expires', '>', timestamp(clock))
    .executeTakeFirst();
}

/** Uses a token up; false when somebody else was faster. */
export async function spendMailedToken(
  tx: Tx,
  { tokenHash }: Pick<Row<'mailedTokens'>, 'tokenHash'>,
): Promise<boolean> {
  const { numDeletedRows } = await tx.deleteFrom('mailedTokens').where('tokenHash', '=', tokenHash).executeTakeFirst();
  return numDeletedRows > 0n;
}

/** It has 256 random bits: a plain digest cannot be turned back, and can be looked up. */
function hashToken(token: string): string {
  return createHash('sha256').update(token).digest('base64');
}
