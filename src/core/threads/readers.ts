/** Reads of the registry that may look at many rows: threads make them, so that the event loop goes on for others. */
import type { Compilable, CompiledQuery, RawBuilder } from 'kysely';
import type { Db } from '../../../db/registry/index.ts';
import { compileQuery, type Read } from '../../../db/registry/statement.ts';
import { AskedThread } from '../../../db/threads/asked-thread.ts';
import type { Lane } from '../scheduler/lanes.ts';
import { Scheduler } from '../scheduler/scheduler.ts';

/** With one more than an account may use, a list that takes long keeps no other account waiting. */
const threadCount = 2;
/** Reads that may wait: of one caller, and of one account. */
const maxWaiting = { ofCaller: 1000, ofAccount: 4000 };

/** A statement that reads, and the file that it reads. */
export interface ReadQuestion {
  path: string;
  sql: string;
  parameters: readonly unknown[];
}

interface WaitingRead {
  query: CompiledQuery<unknown>;
  resolve(rows: unknown[]): void;
  reject(error: unknown): void;
}

export class Readers {
  readonly #path: string;
  readonly #threads = Array.from(
    { length: threadCount },
    () => new AskedThread<ReadQuestion, unknown[]>(new URL('./reader-worker.ts', import.meta.url), 'A reader'),
  );
  readonly #idle = [...this.#threads];
  readonly #queue = new Scheduler({ atOnce: threadCount, perAccount: 1, maxWaiting });

  /** `path` is that of registry.db. */
  constructor(path: string) {
    this.#path = path;
  }

  /** Reads that wait for a thread. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /**
   * The rows of a query, which sees what is committed when its turn comes. An account makes one read at a time.
   * @throws PlatformError 429/-199 when the lane has too much waiting already; Error when the thread fails.
   */
  async read<R>(lane: Lane, query: CompiledQuery<R>): Promise<R[]> {
    const [rows] = await this.readAll(lane, [query]);
    return rows as R[];
  }

  /** As `read`, several queries in one turn: each waits for a thread no longer than the first. */
  readAll(lane: Lane, queries: readonly CompiledQuery<unknown>[]): Promise<unknown[][]> {
    return this.#queue.run(lane, queries.length, async () => {
      const thread = this.#idle.pop() as AskedThread<ReadQuestion, unknown[]>;
      try {
        const asked = queries.map(({ sql, parameters }) => thread.ask({ path: this.#path, sql, parameters }));
        return await Promise.all(asked);
      } finally {
        this.#idle.push(thread);
      }
    });
  }

  /** Reads for one answer: what is asked for in one go has one turn, for many turns would take longer than what is read. */
  readTogether(lane: Lane, db: Db): Read {
    let waiting: WaitingRead[] = [];
    const readWaiting = async () => {
      const reads = waiting;
      waiting = [];
      try {
        const found = await this.readAll(
          lane,
          reads.map(({ query }) => query),
        );
        for (const [at, { resolve }] of reads.entries()) resolve(found[at] ?? []);
      } catch (error) {
        for (const { reject } of reads) reject(error);
      }
    };
    return <R>(query: RawBuilder<unknown> | Compilable<R>) =>
      new Promise<R[]>((resolve, reject) => {
        if (waiting.length === 0) queueMicrotask(() => void readWaiting());
        waiting.push({ query: compileQuery(db, query), resolve: resolve as WaitingRead['resolve'], reject });
      });
  }

  /** Ends the threads after what they have been asked. */
  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }
}
