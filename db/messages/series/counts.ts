import type Sqlite from 'better-sqlite3';

/** How many points and log entries each account has, changed in the transactions that add and remove them. */
export class SeriesCounts {
  readonly #add: Sqlite.Statement<[string, number, number]>;

  constructor(file: Sqlite.Database) {
    this.#add = file.prepare(
      `INSERT INTO "messageCounts" VALUES (?, ?, ?) ON CONFLICT DO UPDATE
       SET "points" = "points" + "excluded"."points", "logs" = "logs" + "excluded"."logs"`,
    );
  }

  add(accountId: string, points: number, logs: number): void {
    if (points !== 0 || logs !== 0) this.#add.run(accountId, points, logs);
  }
}
