/** Log entries and their text index, written. Each method runs inside the worker's transaction. */
import type Sqlite from 'better-sqlite3';
import type { LogRow } from '../threads/protocol.ts';
import { termsOf } from './terms.ts';

/** Terms that one transaction indexes, about 4 ms: a flood of entries is stored at once and indexed bit by bit. */
const termsAtOnce = 5000;

export class LogWriter {
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;
  /** The number of the last entry. */
  #last: number;
  /** Entries up to here are in the index. */
  #indexed: number;
  #failed = false;

  constructor(file: Sqlite.Database) {
    this.#file = file;
    this.#statements = prepare(file);
    this.#indexed = this.#statements.indexed.get() ?? 0;
    this.#last = Math.max(this.#indexed, this.#statements.last.get() ?? 0);
  }

  /**
   * Stores entries and indexes what there is time for. `next` numbers them, over the life of the file: an entry never gets
   * the number of one that is gone, which the index may know.
   */
  write(logs: readonly LogRow[], next: () => number): void {
    for (const log of logs) {
      this.#last = next();
      this.#statements.add.run({ codeIsNumber: 0, ...log, sequence: this.#last });
    }
    this.indexSome();
  }

  /** Whether entries are waiting to be indexed, and can be. */
  get isBehind(): boolean {
    return this.#indexed < this.#last && !this.#failed;
  }

  /** Indexes a share of the entries that are waiting. What fails here fails no entry: it is found without the index. */
  indexSome(): void {
    if (!this.isBehind) return;
    this.#file.exec('SAVEPOINT "indexing"');
    try {
      this.#indexed = this.#index();
      this.#file.exec('RELEASE "indexing"');
    } catch (error) {
      // SQLite itself may have ended the transaction (disk full, I/O error).
      if (!this.#file.inTransaction) throw error;
      this.#file.exec('ROLLBACK TO "indexing"; RELEASE "indexing"');
      this.#failed = true;
      process.emitWarning(error as Error);
    }
  }

  /** A transaction has failed: what it has indexed is to be indexed again. */
  rolledBack(): void {
    this.#indexed = this.#statements.indexed.get() ?? 0;
    this.#last = Math.max(this.#indexed, this.#statements.last.get() ?? 0);
  }

  #index(): number {
    const { waiting, addTerms, keepIndexed } = this.#statements;
    let indexed = this.#indexed;
    let terms = 0;
    while (terms < termsAtOnce) {
      const row = waiting.get(indexed);
      if (!row) {
        indexed = this.#last;
        break;
      }
      const found = termsOf(row);
      addTerms.run(row.sequence, found.terms);
      terms += found.count;
      indexed = row.sequence;
    }
    keepIndexed.run(indexed);
    return indexed;
  }
}

function prepare(file: Sqlite.Database) {
  return {
    last: file.prepare<[], number>('SELECT max("sequence") FROM "logs"').pluck(),
    indexed: file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'logsIndexed'`).pluck(),
    keepIndexed: file.prepare<[number]>(`UPDATE "counters" SET "value" = ? WHERE "name" = 'logsIndexed'`),
    add: file.prepare<[LogRow & { sequence: number }]>(
      `INSERT INTO "logs" ("sequence", "id", "accountId", "deviceId", "time", "received", "severity", "message", "code", "details", "tags", "custom", "byService", "codeIsNumber")
       VALUES (@sequence, @id, @accountId, @deviceId, @time, @received, @severity, @message, @code, @details, @tags, @custom, @byService, @codeIsNumber)`,
    ),
    waiting: file.prepare<[number], LogRow & { sequence: number }>(
      'SELECT * FROM "logs" WHERE "sequence" > ? ORDER BY "sequence" LIMIT 1',
    ),
    addTerms: file.prepare<[number, string]>('INSERT INTO "logsText" (rowid, "terms") VALUES (?, ?)'),
  };
}
