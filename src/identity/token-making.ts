/** The one place where tokens are made, of people, programs and identity providers. */
import type { Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { hashAccessToken, makeAccessToken } from '../core/formats/access-tokens.ts';
import { newId } from '../core/ids.ts';
import { demandWithin } from '../core/limits/table.ts';
import { readDate } from '../entity/routes.ts';
import type { IdentityContext } from './context.ts';

const day = 24 * 60 * 60_000;
const spans = { 'one year': 366 * day, '30 days': 30 * day };
type TokenRow = Row<'accessTokens'>;
type WantedToken = Pick<TokenRow, 'ownerId' | 'name' | 'expires' | 'rights' | 'organizationId'>;

/**
 * Whatever lets its holder act here for longer than a token lasts asks here: tokens, programs, passwords of others, providers.
 * @throws PlatformError 403/21 for a token, and for who has no rights to give.
 */
export function demandMaker(caller: Caller): void {
  if (caller.tokenId !== undefined)
    throw new PlatformError('forbidden', { message: 'A token cannot make a way in that outlives it.' });
  if (!isAccountWide(caller) && caller.kind !== 'endUser')
    throw new PlatformError('forbidden', { message: 'Only people and back-ends make tokens.' });
}

/** @throws PlatformError 400/106 for what is no date, a moment that is past, or one that is too far away. */
export function readExpiry(clock: Clock, text: string, most: keyof typeof spans = 'one year'): string {
  const expires = readDate('expiresAt', text) ?? 0;
  if (expires <= clock.now() || expires > clock.now() + spans[most])
    throw invalid('expiresAt', `must be in the future, and at most ${most} from now`);
  return new Date(expires).toISOString();
}

/**
 * A new token, with its text, which is stored as a hash. What the maker may give has been checked.
 * @throws PlatformError as demandMaker, and 400/106 naming `path` when its owner has too many.
 */
export async function makeToken(
  ctx: IdentityContext,
  tx: Tx,
  caller: Caller,
  wanted: WantedToken,
  path = 'name',
): Promise<{ row: TokenRow; text: string }> {
  demandMaker(caller);
  const { accountId } = caller;
  const text = makeAccessToken(accountId);
  const row: TokenRow = {
    ...{ id: newId(accountId), accountId, ...wanted, tokenHash: hashAccessToken(text) },
    ...{ created: timestamp(ctx.clock), lastUsed: null, lastAddress: null },
  };
  await tx.insertInto('accessTokens').values(row).execute();
  const own = tx.selectFrom('accessTokens').select((eb) => eb.fn.countAll<number>().as('count'));
  const { count } = await own.where('ownerId', '=', wanted.ownerId).executeTakeFirstOrThrow();
  demandWithin(ctx.config.limits, 'accessTokens', Number(count), path);
  await recordToken(ctx, tx, 'tokenCreated', caller, row);
  return { row, text };
}

export function recordToken(
  { audit }: IdentityContext,
  tx: Tx,
  event: 'tokenCreated' | 'tokenDeleted',
  actor: Caller,
  { id, accountId, ownerId, name }: TokenRow,
) {
  const target = { kind: 'token', id } as const;
  return audit.record(tx, { event, outcome: 'success', accountId, actor, target, details: { name, ownerId } });
}
