import type Sqlite from 'better-sqlite3';
import type { Arrivals } from './arrivals.ts';
import { logBytes, pointBytes } from './sizes.ts';

/** How many points, log entries and bytes each account has, changed in the transactions that add and remove them. */
export class SeriesCounts {
  readonly #add: Sqlite.Statement<[string, number, number, number]>;
  readonly #recount: Sqlite.Statement<[string]>;
  readonly #arrivals: Arrivals;

  constructor(file: Sqlite.Database, arrivals: Arrivals) {
    this.#arrivals = arrivals;
    this.#recount = file.prepare(
      `UPDATE "messageCounts" SET "bytes" = ${pointBytes} * "points" + ${logBytes} * "logs" WHERE "accountId" = ?`,
    );
    this.#add = file.prepare(
      `INSERT INTO "messageCounts" VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
       SET "points" = "points" + "excluded"."points", "logs" = "logs" + "excluded"."logs",
           "bytes" = max(0, "bytes" + "excluded"."bytes")`,
    );
  }

  /** `sequence` is the last one given out before what is added. */
  add(accountId: string, added: { points: number; logs: number; bytes: number }, sequence: number): void {
    if (added.points === 0 && added.logs === 0) return;
    this.#add.run(accountId, added.points, added.logs, added.bytes);
    this.#arrivals.add(accountId, added.bytes, sequence + 1);
  }

  /** Nothing of an account was found that could be removed: its bytes are counted again. */
  recount(accountId: string): void {
    this.#recount.run(accountId);
    this.#arrivals.clear();
  }

  remove(accountId: string, removed: { points: number; logs: number; bytes: number }): void {
    if (removed.points === 0 && removed.logs === 0) return;
    this.#add.run(accountId, -removed.points, -removed.logs, -removed.bytes);
    this.#arrivals.remove(accountId, removed.bytes);
  }
}
