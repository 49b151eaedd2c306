/** The functions of the reading thread, by name. Each uses its own connections and may take long. */
import { LogReader } from '../logs/reader.ts';
import type { FoundPart, FoundPlace, LogSearch, LogsFound } from '../logs/search.ts';

/** The questions and their answers; both are copied between threads. */
export interface Reads {
  searchLogs(search: LogSearch): LogsFound;
  moreLogs(places: readonly FoundPlace[]): FoundPart;
}

/** Opens what the questions need; `directory` is the data directory. */
export function openReads(directory: string): Reads & { close(): void } {
  const logs = new LogReader(directory);
  return {
    searchLogs: (search) => logs.search(search),
    moreLogs: (places) => logs.read(places),
    close: () => logs.close(),
  };
}
