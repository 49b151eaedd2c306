/** The thread that executes long transactions, seen from here, so that the event loop goes on. */
import type { CompiledQuery, QueryResult } from 'kysely';
import { AskedThread } from '../threads/asked-thread.ts';

export type Statement = Pick<CompiledQuery, 'sql' | 'parameters'>;

/** One transaction. Its statements are executed in the order of the calls; they reject as SQLite does, and when the thread ends. */
export interface ThreadTransaction {
  run<R>(statement: Statement): Promise<QueryResult<R>>;
  /** After its COMMIT or ROLLBACK, however that went. */
  ended(): void;
}

/**
 * It writes the file at `path`, which exists when the first transaction begins, as the holder of `mark`. Its COMMIT answers with what
 * `triggers` have noted.
 */
export interface WriterOptions {
  path: string;
  mark: string | undefined;
  triggers: readonly string[];
}

export class WriterThread extends AskedThread<Statement, QueryResult<unknown>> {
  constructor(options: WriterOptions) {
    const file = new URL('./writer-thread-worker.ts', import.meta.url);
    super(file, 'The thread that writes long transactions', options);
  }

  /**
   * For one transaction at a time; its BEGIN is the first statement. All of it is one thread's: by another one a statement would
   * stand alone.
   */
  transaction(): ThreadTransaction {
    const { ask, end } = this.hold();
    const run = async <R>({ sql, parameters }: Statement) => {
      const result = await ask({ sql, parameters });
      return { ...result, rows: result.rows.map(withBuffers) as R[] };
    };
    return { run, ended: end };
  }
}

/** Blobs come from the thread as bare bytes. */
function withBuffers(row: unknown): unknown {
  for (const [name, value] of Object.entries(row as object))
    if (value instanceof Uint8Array)
      (row as Record<string, unknown>)[name] = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return row;
}
