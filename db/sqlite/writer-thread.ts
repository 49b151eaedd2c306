/** The thread that executes long transactions, seen from here, so that the event loop goes on; it starts when it is asked. */
import type { Worker } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';
import type { CompiledQuery, QueryResult } from 'kysely';
import { exitOf, startThread } from './threads.ts';

type Statement = Pick<CompiledQuery, 'sql' | 'parameters'>;
export type Asked = Statement | { close: true };
export type Answered = QueryResult<unknown> | { failure: string; code?: string };

const hasEnded = 'The thread that writes long transactions has ended.';

interface Waiting {
  resolve(result: QueryResult<unknown>): void;
  reject(error: Error): void;
}

/** One transaction. Its statements are executed in the order of the calls; they reject as SQLite does, and when the thread ends. */
export interface ThreadTransaction {
  run<R>(statement: Statement): Promise<QueryResult<R>>;
  /** After its COMMIT or ROLLBACK, however that went. */
  ended(): void;
}

export class WriterThread {
  readonly #path: string;
  readonly #mark: string | undefined;
  #worker: Worker | undefined;
  /** Pending answers by thread, in the order of the statements; empty once it has ended. */
  readonly #waiting = new WeakMap<Worker, Waiting[]>();
  #open: Promise<void> = Promise.resolve();

  /** Writes the file at `path`, which exists when the first transaction begins, as the holder of `mark`. */
  constructor(path: string, mark?: string) {
    this.#path = path;
    this.#mark = mark;
  }

  /** For one transaction at a time; its BEGIN is the first statement. */
  transaction(): ThreadTransaction {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    let ended = () => {};
    this.#open = new Promise((resolve) => {
      ended = resolve;
    });
    return { run: (statement) => this.#run(worker, statement), ended };
  }

  /** Ends the thread after the transaction that is open; the next one starts another. */
  async close(): Promise<void> {
    const worker = this.#worker;
    if (!worker) return;
    // A new transaction gets another thread: after this message the old one executes nothing.
    this.#worker = undefined;
    const exited = exitOf(worker);
    await this.#open;
    worker.postMessage({ close: true } satisfies Asked);
    await exited;
  }

  /** Never by another thread: outside of the transaction a statement would stand alone. */
  #run<R>(worker: Worker, { sql, parameters }: Statement): Promise<QueryResult<R>> {
    const waiting = this.#waiting.get(worker);
    if (!waiting) return Promise.reject(new Error(hasEnded));
    return new Promise((resolve, reject) => {
      waiting.push({ resolve: resolve as Waiting['resolve'], reject });
      worker.postMessage({ sql, parameters } satisfies Asked);
    });
  }

  #start(): Worker {
    const worker = startThread(new URL('./writer-thread-worker.ts', import.meta.url), {
      path: this.#path,
      mark: this.#mark,
    });
    const waiting: Waiting[] = [];
    this.#waiting.set(worker, waiting);
    let cause = new Error(hasEnded);
    worker.on('message', (answered: Answered) => {
      const next = waiting.shift();
      if ('failure' in answered) next?.reject(errorOf(answered));
      else next?.resolve({ ...answered, rows: answered.rows.map(withBuffers) });
    });
    worker.on('error', (error) => {
      cause = error as Error;
    });
    worker.on('exit', () => {
      if (this.#worker === worker) this.#worker = undefined;
      this.#waiting.delete(worker);
      for (const { reject } of waiting.splice(0)) reject(cause);
    });
    return worker;
  }
}

function errorOf({ failure, code }: { failure: string; code?: string }): Error {
  return code === undefined ? new Error(failure) : new Sqlite.SqliteError(failure, code);
}

/** Blobs come from the thread as bare bytes. */
function withBuffers(row: unknown): unknown {
  for (const [name, value] of Object.entries(row as object))
    if (value instanceof Uint8Array)
      (row as Record<string, unknown>)[name] = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return row;
}
