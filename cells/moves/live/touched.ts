/** Which rows of the registry have been written since they were asked for the last time, so that only these are copied again. */
import { CompiledQuery } from 'kysely';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import { askNoting, forgetNoted, readNoted, unwatching, type Watched, watching } from './watching.ts';

/** Rows that are told one by one; of more, all pages are compared. */
const maxTouched = 10_000;

/** Keys, as JSON, by table. */
export type Touched = Map<string, Set<string>>;

type Run = <R>(sql: string) => Promise<R[]>;

export class TouchedRows {
  readonly #registry: Registry;
  readonly #tables: readonly Watched[];

  private constructor(registry: Registry, tables: readonly Watched[]) {
    this.#registry = registry;
    this.#tables = tables;
  }

  static async watchTables(registry: Registry, tables: readonly Watched[]): Promise<TouchedRows> {
    const touched = new TouchedRows(registry, tables);
    await touched.#everywhere(watching(tables));
    return touched;
  }

  /** What was written since the last call; undefined when that is too much, or not known: then all has to be compared. */
  async takeRows(): Promise<Touched | undefined> {
    const touched: Touched = new Map();
    let count = 0;
    let isKnown = true;
    const read = async (run: Run) => {
      if ((await run(askNoting)).length === 0) {
        isKnown = false;
        return;
      }
      for (const { table, key } of await run<{ table: string; key: string }>(readNoted)) {
        const keys = touched.get(table) ?? new Set();
        touched.set(table, keys.add(key));
        count += 1;
      }
      await run(forgetNoted);
    };
    await this.#registry.transaction((tx) => read(runIn(tx)));
    await this.#registry.longTransaction((tx) => read(runIn(tx)));
    // The thread of long transactions has been ended, and its notes with it.
    if (!isKnown) await this.#everywhere(watching(this.#tables));
    return isKnown && count <= maxTouched ? touched : undefined;
  }

  async unwatch(): Promise<void> {
    await this.#everywhere(unwatching(this.#tables));
  }

  /** In both connections that write. */
  async #everywhere(statements: readonly string[]): Promise<void> {
    const all = async (tx: Tx) => {
      for (const sql of statements) await runIn(tx)(sql);
    };
    await this.#registry.transaction(all);
    await this.#registry.longTransaction(all);
  }
}

function runIn(tx: Tx): Run {
  return async <R>(sql: string) => (await tx.executeQuery<R>(CompiledQuery.raw(sql))).rows;
}
