/** Room for commands: an account has so many that have not ended, and so many bytes of all; those that ended first go first. */
import { sql } from 'kysely';
import type { Tx } from '../../db/registry/index.ts';
import { PlatformError } from '../core/errors.ts';
import { keptOf } from '../core/limits/kept.ts';
import type { Limits } from '../core/limits/table.ts';

/** Commands that are removed at most for one that comes: a limit that was lowered is reached in steps. */
const maxRemoved = 300;
/** What the triggers of the registry count of a command besides its texts. */
const rowBytes = 500;
/** Seconds after which it is worth trying again where too many are open. */
const retryAfter = 5;

/**
 * Removes the oldest commands that have ended until `coming` bytes more fit into the account's limit.
 * @throws PlatformError 429/-199 when commands that have not ended take all of it.
 */
export async function makeRoom(tx: Tx, limits: Limits, accountId: string, coming: number): Promise<void> {
  const limit = limits.commandBytes;
  if (!(await removeOldest(tx, limit, accountId, { coming })))
    throw tooMany(limit, 'SLIPWAY_COMMAND_BYTES_PER_ACCOUNT: commands that have not ended take all of it.');
}

/** The same; false when there was nothing more to remove. The command `but` stays: its reply is acknowledged with this. */
export async function removeOldest(
  tx: Tx,
  limit: number,
  accountId: string,
  { coming = 0, but = '' }: { coming?: number; but?: string },
): Promise<boolean> {
  if (limit === 0) return true;
  for (let left = maxRemoved; left > 0; left -= 1) {
    if ((await keptOf(tx, accountId, 'commandBytes')) + coming <= limit) return true;
    const { numAffectedRows } = await sql`delete from "commands" where "sequence" = (
      select "sequence" from "commands" where "accountId" = ${accountId} and "finished" is not null and "id" <> ${but}
      order by "finished", "sequence" limit 1)`.execute(tx);
    if (!numAffectedRows) return false;
  }
  return true;
}

/** What a new command will be counted as. */
export function bytesOf(...texts: Array<string | null>): number {
  return texts.reduce((sum, text) => sum + (text === null ? 0 : Buffer.byteLength(text)), rowBytes);
}

/** @throws PlatformError 429/-199 when so many commands have not ended that there may be no other. */
export function demandFewer(variable: string, limit: number, open: number): void {
  if (open >= limit) throw tooMany(limit, `${variable}: too many commands have not ended.`);
}

function tooMany(limit: number, message: string): PlatformError {
  return new PlatformError('tooMany', { message, allowance: { limit, remaining: 0, reset: retryAfter } });
}
