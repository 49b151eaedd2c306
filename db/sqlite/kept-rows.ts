import type Sqlite from 'better-sqlite3';
import { sizedCache } from './cache.ts';

/** Bytes of all rows that are kept, as texts; and changes that a commit is told of one by one. */
const keptBytes = 16 * 1024 * 1024;
const maxChanged = 10_000;

/**
 * Rows that are read again and again, in memory until a commit changes them. Triggers note what the writer changes, and the
 * file's version says that another connection has: a thread, or another program. So no caller tells of a change.
 */
export class KeptRows {
  readonly #rows = sizedCache<string, object>(keptBytes, sizeOf);
  readonly #changed = new Set<string>();
  readonly #writer: Sqlite.Database;
  readonly #version: Sqlite.Statement<[], number>;
  #seen: number | undefined;

  /** `writer` is the connection whose transactions end with `committed`. */
  constructor(writer: Sqlite.Database) {
    this.#writer = writer;
    this.#version = writer.prepare<[], number>('PRAGMA data_version').pluck();
    writer.function('row_changed', (table, id) => {
      if (this.#changed.size <= maxChanged) this.#changed.add(`${table} ${id}`);
      return null;
    });
  }

  /** Notes writes to `table` as changes of `kept`; `idOf` says whose, in SQL, by `new` or `old`. */
  watch(table: string, kept = table, idOf = (row: string) => `${row}."id"`): void {
    for (const [event, row] of [['INSERT', 'new'] as const, ['UPDATE', 'old'] as const, ['DELETE', 'old'] as const])
      this.#writer.exec(`CREATE TEMP TRIGGER "kept_${table}_${event}" AFTER ${event} ON main."${table}"
        BEGIN SELECT row_changed('${kept}', ${idOf(row)}); END`);
  }

  /** A row of a watched table as it is in the last commit; `read` reads it so. Nobody may change it. */
  get<R extends object>(table: string, id: string, read: (id: string) => R | undefined): R | undefined {
    const version = this.#version.get();
    if (version !== this.#seen) this.#rows.clear();
    this.#seen = version;
    const key = `${table} ${id}`;
    const known = this.#rows.get(key);
    if (known) return known as R;
    const row = read(id);
    if (row) this.#rows.set(key, Object.freeze(row));
    return row;
  }

  /** A transaction of the writer has ended: at once after it, and also when it may have failed. */
  committed(): void {
    if (this.#changed.size > maxChanged) this.#rows.clear();
    else for (const key of this.#changed) this.#rows.delete(key);
    this.#changed.clear();
  }
}

/** About what a row takes: V8 keeps a character in two bytes at most. */
function sizeOf(row: object): number {
  let size = 200;
  for (const value of Object.values(row)) size += typeof value === 'string' ? 16 + 2 * value.length : 8;
  return size;
}
