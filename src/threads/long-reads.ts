/** Reads of the registry that look at many rows: a thread makes them, so that the event loop goes on for others. */
import type { CompiledQuery } from 'kysely';
import { FairQueue, type Lane } from '../limits/fair-queue.ts';
import { AskedThread } from './asked-thread.ts';

/** Rows that a read on the event loop may look at: some 15 milliseconds. */
export const maxRowsOnLoop = 10_000;

/** A statement that reads, and the file that it reads. */
export interface LongReadQuestion {
  path: string;
  sql: string;
  parameters: readonly unknown[];
}

/** A query as Kysely builds it. */
export interface Query<R = unknown> {
  compile(): CompiledQuery<R>;
  execute(): Promise<unknown[]>;
}

export class LongReads {
  readonly #path: string;
  readonly #thread = new AskedThread<LongReadQuestion, unknown[]>(
    new URL('./long-reads-worker.ts', import.meta.url),
    'The reader of long lists',
  );
  /** Accounts take turns at the thread; it makes one read at a time. */
  readonly #queue = new FairQueue(1);

  /** `path` is that of registry.db. */
  constructor(path: string) {
    this.#path = path;
  }

  /** Reads that wait for the thread. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /** The rows of a query that looks at so many `rows`: found at once where they are few. @throws as `read`. */
  find<R>(lane: Lane, query: Query<R>, rows: number): Promise<R[]> {
    return rows > maxRowsOnLoop ? this.read(lane, query.compile()) : (query.execute() as Promise<R[]>);
  }

  /**
   * The rows of a query, which sees what is committed when its turn comes.
   * @throws PlatformError 429/-199 when the lane has too much waiting already; Error when the thread fails.
   */
  read<R>(lane: Lane, { sql, parameters }: CompiledQuery<R>): Promise<R[]> {
    const question = { path: this.#path, sql, parameters };
    return this.#queue.run(lane, 1, () => this.#thread.ask(question) as Promise<R[]>);
  }

  /** Ends the thread after what it has been asked. */
  close(): Promise<void> {
    return this.#thread.close();
  }
}
