/** The functions of the reading thread, by name. Each uses its own connections and may take long. */
import { join } from 'node:path';
import { openSqlite } from '../../sqlite/open.ts';
import { LogReader } from '../logs/reader.ts';
import type { FoundPart, FoundPlace, LogSearch, LogsFound } from '../logs/search.ts';
import { type AccountBytes, prepareShares, type Shortage } from '../series/shares.ts';

/** The questions and their answers; both are copied between threads. */
export interface Reads {
  searchLogs(search: LogSearch): LogsFound;
  moreLogs(places: readonly FoundPlace[]): FoundPart;
  accountsAbove(shortage: Shortage): AccountBytes[];
}

/** Opens what the questions need; `directory` is the data directory. */
export function openReads(directory: string): Reads & { close(): void } {
  const logs = new LogReader(directory);
  const file = openSqlite(join(directory, 'messages.db'), { readonly: true });
  return {
    searchLogs: (search) => logs.search(search),
    moreLogs: (places) => logs.read(places),
    accountsAbove: prepareShares(file).accountsAbove,
    close: () => {
      logs.close();
      file.close();
    },
  };
}
