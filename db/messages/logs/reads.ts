import { fold } from '../../sqlite/fold.ts';
import { fromLogRow } from '../series/rows.ts';
import type { MessageReader } from '../threads/reader.ts';
import { type LogQuestion, type LogsPart, type LogsRead, type Seen, severities, timeLimit } from '../types.ts';
import type { FoundPart, FoundPlace, LogCondition } from './search.ts';

/** Log entries as callers ask for them; the reader thread answers. */
export class LogReads {
  readonly #thread: MessageReader;

  constructor(thread: MessageReader) {
    this.#thread = thread;
  }

  /**
   * Log entries that pass, in a thread of its own, and how many pass it in all (`maxFound` at most when there are
   * conditions or an account). Undefined when it would take too long: then a shorter range or more is to be asked for.
   */
  async search(question: LogQuestion): Promise<LogsRead | undefined> {
    const { from = -timeLimit, to = timeLimit + 1, severities: levels = severities } = question;
    const search = { ...question, from, to, severities: levels.map((severity) => severities.indexOf(severity)) };
    const found = await this.#thread.ask('searchLogs', search);
    if (!found) return undefined;
    const { total, maxScore } = found;
    return { ...shownPart(found), total, maxScore };
  }

  /** The next entries of a page that `search` or `read` has begun. */
  async more(places: readonly FoundPlace[]): Promise<LogsPart> {
    return shownPart(await this.#thread.ask('moreLogs', places));
  }

  /** A page (from 1) of one device's entries, newest first, otherwise as `search`; `text` is in message, details or code. */
  read(
    deviceId: string,
    {
      text,
      window,
      ...range
    }: Pick<LogQuestion, 'severities' | 'from' | 'to'> & {
      text?: string | undefined;
      window?: Pick<Seen, 'from'>;
    },
    { page, pageSize }: { page: number; pageSize: number },
  ): Promise<LogsRead | undefined> {
    const conditions: LogCondition[] =
      text === undefined || text === '' ? [] : [{ kind: 'contains', text: fold(text) }];
    const part = { offset: (page - 1) * pageSize, limit: pageSize };
    const scope = { deviceId, ...(window && { from: window.from }) };
    return this.search({ scope, ...range, conditions, sort: 'newest', ...part });
  }
}

function shownPart({ rows, rest }: FoundPart): LogsPart {
  return { entries: rows.map((row) => ({ ...fromLogRow(row), score: row.score })), rest };
}
