import { AsyncLocalStorage } from 'node:async_hooks';
import Sqlite from 'better-sqlite3';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type Kysely,
  type QueryResult,
  RawNode,
  SelectQueryNode,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  type Transaction,
} from 'kysely';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import type { Commits } from './commits.ts';
import { type Kept, Writer } from './group-commit.ts';
import { StatementCache } from './statements.ts';
import type { ThreadTransaction, WriterThread } from './writer-thread.ts';

const insideTransaction = new AsyncLocalStorage<true>();

class Connection implements DatabaseConnection {
  inTransaction = false;

  readonly writer: Writer;
  readonly reader: StatementCache;

  constructor(writer: Writer, reader: StatementCache) {
    this.writer = writer;
    this.reader = reader;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    if (this.inTransaction) return this.writer.statements.run<R>(query);
    const { query: node, sql } = query;
    if (SelectQueryNode.is(node) || (RawNode.is(node) && this.reader.onlyReads(sql))) return this.reader.run<R>(query);
    await this.writer.begin();
    let result: QueryResult<R>;
    try {
      result = this.writer.statements.run<R>(query);
    } catch (error) {
      this.writer.rollback();
      throw error;
    }
    await this.writer.commit();
    return result;
  }

  async *streamQuery<R>(query: CompiledQuery): AsyncIterableIterator<QueryResult<R>> {
    yield await this.executeQuery<R>(query);
  }
}

class SqliteDriver implements Driver {
  readonly writer: Writer;
  readonly reader: StatementCache;

  constructor(writer: Writer, reader: StatementCache) {
    this.writer = writer;
    this.reader = reader;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<Connection> {
    if (insideTransaction.getStore()) throw new Error('The outer database handle was used inside a transaction.');
    return new Connection(this.writer, this.reader);
  }

  async beginTransaction(connection: Connection): Promise<void> {
    await this.writer.begin();
    connection.inTransaction = true;
  }

  async commitTransaction(connection: Connection): Promise<void> {
    connection.inTransaction = false;
    await this.writer.commit();
  }

  async rollbackTransaction(connection: Connection): Promise<void> {
    // After a commit that failed the turn has been given away already.
    if (!connection.inTransaction) return;
    connection.inTransaction = false;
    this.writer.rollback();
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {
    this.writer.flush();
    this.reader.file.close();
    this.writer.statements.file.close();
  }
}

/** A connection whose transactions a thread executes; it does nothing outside of one. */
class ThreadConnection implements DatabaseConnection {
  transaction: ThreadTransaction | undefined;

  readonly commits: Pick<Commits, 'failed'>;

  constructor(commits: Pick<Commits, 'failed'>) {
    this.commits = commits;
  }

  async executeQuery<R>(query: Pick<CompiledQuery, 'sql' | 'parameters'>): Promise<QueryResult<R>> {
    if (!this.transaction) throw new Error('A thread executes transactions only.');
    try {
      return await this.transaction.run<R>(query);
    } catch (error) {
      this.commits.failed(error);
      throw error;
    }
  }

  async *streamQuery<R>(query: CompiledQuery): AsyncIterableIterator<QueryResult<R>> {
    yield await this.executeQuery<R>(query);
  }
}

/** Transactions by way of a thread; each is a turn of the one writer, and has a commit of its own. */
class ThreadDriver implements Driver {
  readonly #turns = new WeakMap<ThreadConnection, () => void>();

  readonly writer: Writer;
  readonly threaded: WriterThread;

  constructor(writer: Writer, threaded: WriterThread) {
    this.writer = writer;
    this.threaded = threaded;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<ThreadConnection> {
    if (insideTransaction.getStore()) throw new Error('A long transaction was begun inside a transaction.');
    return new ThreadConnection(this.writer.commits);
  }

  async beginTransaction(connection: ThreadConnection): Promise<void> {
    this.#turns.set(connection, await this.writer.lend());
    try {
      connection.transaction = this.threaded.transaction();
      await this.#run(connection, 'BEGIN IMMEDIATE');
    } catch (error) {
      this.#endConnection(connection);
      throw error;
    }
  }

  async commitTransaction(connection: ThreadConnection): Promise<void> {
    const from = performance.now();
    const { rows } = await this.#run(connection, 'COMMIT');
    this.writer.commits.succeeded(performance.now() - from);
    this.writer.kept?.committed(rows);
    this.#endConnection(connection);
  }

  async rollbackTransaction(connection: ThreadConnection): Promise<void> {
    // It fails when SQLite has ended the transaction itself, or the thread has ended with it: that is as good.
    await this.#run(connection, 'ROLLBACK').catch(() => {});
    this.#endConnection(connection);
  }

  #run(connection: ThreadConnection, sql: string): Promise<QueryResult<unknown>> {
    return connection.executeQuery({ sql, parameters: [] });
  }

  #endConnection(connection: ThreadConnection): void {
    connection.transaction?.ended();
    connection.transaction = undefined;
    this.#turns.get(connection)?.();
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {
    await this.threaded.close();
  }
}

/** Queries go straight to one file, inside a transaction that somebody else holds. */
class BorrowedDriver implements Driver {
  readonly #connection: DatabaseConnection;

  constructor(file: Sqlite.Database) {
    const statements = new StatementCache(file);
    this.#connection = {
      executeQuery: async <R>(query: CompiledQuery) => statements.run<R>(query),
      async *streamQuery<R>(query: CompiledQuery) {
        yield statements.run<R>(query);
      },
    };
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection;
  }

  async beginTransaction(): Promise<void> {
    throw new Error('A transaction is open already.');
  }

  async commitTransaction(): Promise<void> {}

  async rollbackTransaction(): Promise<void> {}

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {}
}

/** Kysely 0.29 gives SQLite one connection at a time. Ours share one writer, which has its own queue, and a reader. */
class SharedConnectionAdapter extends SqliteAdapter {
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

/** Kysely on better-sqlite3: one writer with group commit, one reader that never waits for it, statements prepared once. */
export class SqliteDialect implements Dialect {
  readonly driver: Driver;

  private constructor(driver: Driver) {
    this.driver = driver;
  }

  /** Owns both files: destroying the Kysely instance closes them. */
  static of(files: { writer: Sqlite.Database; reader: Sqlite.Database }): SqliteDialect {
    const writer = new Writer(new StatementCache(files.writer));
    return new SqliteDialect(new SqliteDriver(writer, new StatementCache(files.reader)));
  }

  /**
   * As `of`, and a second dialect whose transactions `threaded` executes, in turn with those of the first; it owns `threaded`. The
   * writer of both is there to be watched. `laneNow` says which account causes a write; `kept` is told of commits, and of what the thread
   * answers to its own.
   */
  static withThread(
    files: {
      writer: Sqlite.Database;
      reader: Sqlite.Database;
      fence?: { checkHolder(): void } | undefined;
      laneNow?: (() => Lane | undefined) | undefined;
      kept?: Kept;
    },
    threaded: WriterThread,
  ): {
    local: SqliteDialect;
    threaded: SqliteDialect;
    writer: Pick<Writer, 'commits' | 'waiting' | 'proveWritable'>;
  } {
    const writer = new Writer(new StatementCache(files.writer), files.fence, files.laneNow, files.kept);
    const local = new SqliteDialect(new SqliteDriver(writer, new StatementCache(files.reader)));
    return { local, threaded: new SqliteDialect(new ThreadDriver(writer, threaded)), writer };
  }

  /** For a migration, whose transaction is open around it; the file stays the caller's. */
  static within(file: Sqlite.Database): SqliteDialect {
    return new SqliteDialect(new BorrowedDriver(file));
  }

  createDriver(): Driver {
    return this.driver;
  }

  createQueryCompiler(): SqliteQueryCompiler {
    return new SqliteQueryCompiler();
  }

  createAdapter(): SqliteAdapter {
    return new SharedConnectionAdapter();
  }

  createIntrospector(db: Kysely<unknown>): SqliteIntrospector {
    return new SqliteIntrospector(db);
  }
}

/**
 * Runs `work` in one transaction; it is on disk when the promise resolves. `work` may await its own queries only, and
 * using the outer handle inside it throws.
 */
export function transact<T, R>(db: Kysely<T>, work: (tx: Transaction<T>) => Promise<R>): Promise<R> {
  return db.transaction().execute((tx) => insideTransaction.run(true, () => work(tx)));
}

/** Whether an error says that a unique index refused the row. */
export function isUniqueViolation(error: unknown): boolean {
  return error instanceof Sqlite.SqliteError && error.code.startsWith('SQLITE_CONSTRAINT_UNIQUE');
}

/** Whether an error says that the disk or the file is full. */
export function isStoreFull(error: unknown): error is Error {
  return error instanceof Sqlite.SqliteError && error.code === 'SQLITE_FULL';
}

/** Errors that say that something was not even tried, because there is no room for it. */
const refusals = new WeakSet<object>();

/** An error of which isStoreFull says so, before the disk itself does. */
export function storeFull(reason: string): Error {
  const refusal = new Sqlite.SqliteError(reason, 'SQLITE_FULL');
  refusals.add(refusal);
  return refusal;
}

/** Whether an error is one of storeFull. */
export function isRefusal(error: unknown): boolean {
  return typeof error === 'object' && error !== null && refusals.has(error);
}
