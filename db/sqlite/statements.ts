import type Sqlite from 'better-sqlite3';
import type { QueryResult } from 'kysely';
import { LRUCache } from 'lru-cache';

/** One open file with its prepared statements kept. */
export class StatementCache {
  readonly #statements = new LRUCache<string, Sqlite.Statement>({ max: 500 });

  readonly file: Sqlite.Database;

  constructor(file: Sqlite.Database) {
    this.file = file;
  }

  run<R>({ sql, parameters }: { sql: string; parameters: readonly unknown[] }): QueryResult<R> {
    const statement = this.#prepared(sql);
    const bound = parameters.map(toSqlite);
    if (statement.reader) return { rows: statement.all(bound) as R[] };
    const { changes } = statement.run(bound);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  onlyReads(sql: string): boolean {
    return this.#prepared(sql).readonly;
  }

  #prepared(sql: string): Sqlite.Statement {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.file.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

function toSqlite(value: unknown): unknown {
  if (typeof value === 'boolean') return value ? 1 : 0;
  return value === undefined ? null : value;
}
