/** `slipway account move`: an account, and all others of its slot, between two data directories or between two cells that run. */
import { realpathSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { CellFailure } from '../../cells/moves/live/asked-cell.ts';
import { type LiveMove, moveLive } from '../../cells/moves/live/coordinator.ts';
import { movingIn } from '../../cells/moves/offline/marker.ts';
import { abandonMove, accountsIn, moveAccounts } from '../../cells/moves/offline/move.ts';
import { slotOf } from '../../src/core/ids.ts';
import { demandRegistry, directoryOf, type OnDirectory, print } from '../data/files.ts';
import { trouble, UsageError } from '../usage.ts';

export interface MoveFlags extends OnDirectory {
  /** The other data directory. */
  to: string;
  undo: boolean;
}

/** Between cells. Prints what was moved. @throws Ending with 3 when a cell has failed: then it is called again. */
export async function accountMoveLive(given: LiveMove, account: string): Promise<void> {
  try {
    print(await moveLive(given, account));
  } catch (error) {
    if (!(error instanceof CellFailure)) throw error;
    throw trouble(`${error.message} Call the command again, or with --undo.`);
  }
}

/** Between directories without a server. Prints what was moved. @throws UsageError when it cannot be; nothing has changed then. */
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
  const begun = movingIn(from) ?? movingIn(to);
  if (begun?.from === there && (await abandonMove({ accounts, from: there, to: elsewhere }))) {
    print({ accounts, in: there, undone: true });
    return;
  }
  const sums = await moveAccounts({ accounts, from: elsewhere, to: there });
  const rows = Object.values(sums ?? {}).reduce((sum, table) => sum + table.rows, 0);
  const seconds = Math.round(performance.now() - began) / 1000;
  print({ accounts, in: there, rows, seconds, ...(sums === undefined && { movedBefore: true }) });
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
