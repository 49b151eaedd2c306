/** `slipway account move` between directories without a server: the account, and all others of its slot, from one data directory into another. */
import { realpathSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { movingIn } from '../../cells/moves/offline/marker.ts';
import { abandonMove, accountsIn, CannotMove, moveAccounts } from '../../cells/moves/offline/move.ts';
import { slotOf } from '../../src/ids.ts';
import { demandRegistry, directoryOf, type OnDirectory, print } from '../data/files.ts';
import { UsageError } from '../usage.ts';

export interface MoveFlags extends OnDirectory {
  /** The other data directory. */
  to: string;
  undo: boolean;
}

/** Prints what was moved. @throws UsageError when it cannot be moved; nothing has changed then. */
export async function accountMove(given: MoveFlags, account: string): Promise<void> {
  const { to: target, undo } = given;
  const source = directoryOf(given);
  demandRegistry(source);
  await mkdir(resolve(target), { recursive: true, mode: 0o700 });
  const [from, to] = [realpathSync(source), realpathSync(target)];
  if (from === to) throw new UsageError('--to must be another data directory.');
  const accounts = accountsOfSlot(account, from, to);
  // Where the account is to be, whichever way an earlier call was going when it was broken off.
  const [there, elsewhere] = undo ? [from, to] : [to, from];
  const began = performance.now();
  try {
    const begun = movingIn(from) ?? movingIn(to);
    if (begun?.from === there && (await abandonMove({ accounts, from: there, to: elsewhere }))) {
      print({ accounts, in: there, undone: true });
      return;
    }
    const sums = await moveAccounts({ accounts, from: elsewhere, to: there });
    const rows = Object.values(sums ?? {}).reduce((sum, table) => sum + table.rows, 0);
    const seconds = Math.round(performance.now() - began) / 1000;
    print({ accounts, in: there, rows, seconds, ...(sums === undefined && { movedBefore: true }) });
  } catch (error) {
    if (error instanceof CannotMove) throw new UsageError(error.message);
    throw error;
  }
}

/** All accounts of a slot move together, because a slot is what is routed. @throws UsageError when the account is in neither directory. */
function accountsOfSlot(account: string, from: string, to: string): string[] {
  const moving = movingIn(from) ?? movingIn(to);
  if (moving?.accounts.includes(account)) return moving.accounts;
  const directory = [from, to].find((one) => accountsIn(one).includes(account));
  if (directory === undefined)
    throw new UsageError(`There is no account ${account} in ${from}. List the accounts with slipway account list.`);
  return accountsIn(directory).filter((id) => slotOf(id) === slotOf(account));
}
