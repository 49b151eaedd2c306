import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { bringUpToDate } from '../files/schema.ts';
import { isRefusal, storeFull } from '../sqlite/dialect.ts';
import { openSqlite } from '../sqlite/open.ts';
import { LogReads } from './logs/reads.ts';
import { type OutboxChange, OutboxRows } from './outbox/rows.ts';
import { MissedRows } from './series/missed.ts';
import { PromisedBytes } from './series/promised-bytes.ts';
import { SeriesReads } from './series/reads.ts';
import { OpenBatch, refusalOf, toLogRow } from './series/rows.ts';
import { type AccountBytes, prepareShares } from './series/shares.ts';
import { sizeOfLog, sizeOfPoints } from './series/sizes.ts';
import { TouchedNotes } from './series/touched.ts';
import { type MessageUsage, prepareUsage } from './series/usage.ts';
import type { MqttChange } from './sessions/changes.ts';
import { MqttRows } from './sessions/rows.ts';
import type { Expired, StepOrder, Stored, StoreEnd } from './threads/protocol.ts';
import { MessageReader } from './threads/reader.ts';
import { type Job, SeriesWriter, type StoreLog, unavailable } from './threads/writer.ts';
import type { NewLogEntry, Point, SeriesKey } from './types.ts';

export * from './types.ts';

/** Points in one transaction at most; more are written in the next. */
const batchSize = 20_000;
/** Points of a message that what came before it does not wait for: they begin a transaction of their own. */
const longMessage = 1000;
/** Rows that are summed on the event loop, some two milliseconds; more are on the reading thread. */
const rowsOnLoop = 2000;

/**
 * Time-series, logs, MQTT sessions and the outbox. Writes are collected for one turn of the event loop and go to a worker
 * thread as one transaction, so that the loop never waits for the disk; reads go through a second connection, here.
 */
export class MessageStore {
  /** What is on disk of MQTT sessions. */
  readonly mqtt: MqttRows;
  /** What has been stored after a place. */
  readonly missed: MissedRows;
  /** What is on disk of messages on their way to bridges. */
  readonly outbox: OutboxRows;
  /** Reading points. */
  readonly series: SeriesReads;
  /** Reading log entries. */
  readonly logs: LogReads;
  /** Series that have got points while their account is copied. */
  readonly touched = new TouchedNotes();
  /** What accounts have been given since it was looked at what they take. */
  readonly promised = new PromisedBytes();
  readonly #log: StoreLog;
  readonly #reader: Sqlite.Database;
  readonly #thread: MessageReader;
  readonly #usage: ReturnType<typeof prepareUsage>;
  readonly #shares: ReturnType<typeof prepareShares>;
  readonly #writer: SeriesWriter;
  #full: Error | undefined;
  #accountsFull: ReadonlyMap<string, Error> = new Map();
  #outboxesFull: ReadonlySet<string> = new Set();
  #outboxFull: Error | undefined;
  #watcher = () => {};
  #open = new OpenBatch();
  #flushScheduled = false;
  readonly #waiting: Job[] = [];
  #pending = 0;
  #closing: Promise<void> | undefined;
  #end: StoreEnd = { points: 0, logs: 0 };

  private constructor(directory: string, path: string, options: { log: StoreLog; mark?: string | undefined }) {
    this.#log = options.log;
    this.#reader = openSqlite(path, { readonly: true });
    this.#thread = new MessageReader(directory);
    this.#usage = prepareUsage(this.#reader);
    this.#shares = prepareShares(this.#reader);
    this.mqtt = new MqttRows(this.#reader);
    this.series = new SeriesReads(this.#reader);
    this.logs = new LogReads(this.#thread);
    this.missed = new MissedRows(this.#reader);
    this.outbox = new OutboxRows(this.#reader);
    this.#writer = new SeriesWriter(path, {
      log: options.log,
      mark: options.mark,
      next: () => this.#nextJob(),
      sized: () => this.#watcher(),
    });
  }

  /**
   * Opens `messages.db` in `directory`, made when missing, and brings its schema up to date. With `mark`, commits fail when the
   * directory has another holder. @throws Error when the file cannot be opened for writing.
   */
  static async open(directory: string, options: { log: StoreLog; mark?: string | undefined }): Promise<MessageStore> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, 'messages.db');
    await bringUpToDate(directory, 'messages.db');
    const store = new MessageStore(directory, path, options);
    try {
      await store.#writer.start();
      await store.#ask({ tidy: true });
    } catch (error) {
      await store.close();
      throw error;
    }
    return store;
  }

  /** What its writer does. */
  get writer(): Pick<SeriesWriter, 'commits'> {
    return this.#writer;
  }

  /** Questions that the thread for long reads has not answered. */
  get reading(): number {
    return this.#thread.waiting;
  }

  /** Commits something that changes nothing: rejects when nothing can be written. */
  async proveWritable(): Promise<void> {
    await this.#ask({ prove: true });
  }

  /** Where what is on disk ends. */
  get end(): StoreEnd {
    return this.#end;
  }

  /** Points and log entries that have been given and are not yet known to be on disk. */
  get pending(): number {
    return this.#pending;
  }

  /** Bytes of the file that are in use; what is removed makes room in it before it grows. */
  get size(): number {
    return this.#writer.held.size;
  }

  /** Bytes of the file that are not in use. */
  get unused(): number {
    return this.#writer.held.unused;
  }

  /** Bytes of points and log entries, about, of the account that has stored most. */
  get largestAccount(): number {
    return this.#writer.held.largest;
  }

  /** Bytes of all that an account keeps here, about, by account. */
  heldByAccount(): Promise<AccountBytes[]> {
    return this.accountsAbove(0);
  }

  /** Accounts that have more than their share of so many bytes, furthest above first, with how far they are above. */
  async accountsAbove(bytes: number): Promise<AccountBytes[]> {
    const shortage = { size: this.size, room: bytes };
    if (this.#shares.rows() > rowsOnLoop) return this.#thread.ask('accountsAbove', shortage);
    return this.#shares.accountsAbove(shortage);
  }

  /** Accounts with more than so many bytes of points and log entries. */
  storedAbove(bytes: number): string[] {
    return this.#shares.storedAbove(bytes);
  }

  /** Takes nothing more from these accounts, each for its reason, until called again. */
  setAccountsFull(reasons: ReadonlyMap<string, string>): void {
    this.#accountsFull = new Map([...reasons].map(([accountId, reason]) => [accountId, storeFull(reason)]));
  }

  /** Bytes that bridges have not delivered yet, each message counted once for every bridge. */
  get outboxPending(): number {
    return this.#writer.held.outboxPending;
  }

  /** The same by account. */
  get outboxPendingByAccount(): ReadonlyMap<string, number> {
    return this.#writer.outboxPending;
  }

  /** Has `watcher` called whenever the size may be another one. */
  watchSize(watcher: () => void): void {
    this.#watcher = watcher;
  }

  /** Why nothing more is taken of anybody; undefined while there is room. */
  get full(): Error | undefined {
    return this.#full;
  }

  /** Why no `bytes` more are taken of an account; undefined while there is room. What sessions already hold changes all the same. */
  fullFor(accountId: string, bytes = 0): Error | undefined {
    return this.#full ?? this.#accountsFull.get(accountId) ?? this.promised.refusal(accountId, bytes);
  }

  /** Takes no more points and log entries, for this reason, until called without one. */
  setFull(reason: string | undefined): void {
    this.#full = reason === undefined ? undefined : storeFull(reason);
  }

  /** Why no more of an account is taken for its bridges to deliver; undefined while there is room. */
  outboxFullFor(accountId: string): Error | undefined {
    return this.fullFor(accountId) ?? (this.#outboxesFull.has(accountId) ? this.#outboxFull : undefined);
  }

  /** Takes nothing more for the bridges of these accounts, for this reason, until called again. */
  setOutboxesFull(accountIds: ReadonlySet<string>, reason: string): void {
    this.#outboxesFull = accountIds;
    this.#outboxFull = storeFull(reason);
  }

  /** Whether an error that `done` was called with says that there was no room, as the log has said once. */
  isNoRoom(error: unknown): boolean {
    return isRefusal(error);
  }

  /** The stored amounts of an account, or of all accounts. */
  usage(accountId?: string): MessageUsage {
    return this.#usage(accountId);
  }

  /**
   * Stores the points of one message. `done` is called once, later, in the order of the calls: after their commit, or with the error
   * for which they are not kept. `prepared` says that `prepare` has had all of them.
   */
  append(key: SeriesKey, points: Point[], done: Stored, prepared = false): void {
    this.#makeRoom(points.length);
    const { accountId } = key;
    const bytes = this.promised.isCounted ? sizeOfPoints(points) : 0;
    const refusal = this.#refusal() ?? this.fullFor(accountId, bytes) ?? refusalOf(points);
    const kept = refusal ? [] : points;
    this.#pending += kept.length;
    const settled = refusal ? done : this.#promise(accountId, bytes, done);
    this.#open.calls.push(this.#settled({ points: kept.length, logs: 0 }, refusal, settled));
    for (const [series, some] of bySeries(key, kept)) {
      this.touched.noteSeries(series, some);
      this.#open.add(series, some, prepared);
    }
    this.#collected();
  }

  /**
   * Writes what is kept beside the points of a long message, before the message itself: their categories and where in the
   * series these are. Readers see nothing of it. One call is one transaction, so give it a few hundred points, in order of time.
   */
  async prepare(key: SeriesKey, points: readonly Point[]): Promise<void> {
    const refusal = this.fullFor(key.accountId) ?? refusalOf(points);
    if (refusal) throw refusal;
    const batch = new OpenBatch();
    for (const [series, some] of bySeries(key, points)) batch.add(series, some);
    await this.#ask({ prepare: batch.toBatch() });
  }

  /** Stores a log entry; `done` as for append. */
  appendLog(entry: NewLogEntry, done: Stored): void {
    this.#makeRoom();
    const { accountId } = entry;
    const row = this.#refusal() ?? toLogRow(entry);
    const bytes = row instanceof Error ? 0 : sizeOfLog(row);
    const refusal = row instanceof Error ? row : this.fullFor(accountId, bytes);
    if (row instanceof Error || refusal) {
      this.#open.calls.push(this.#settled(nothing, refusal, done));
    } else {
      this.#pending += 1;
      this.#open.logs.push(row);
      this.#open.calls.push(this.#settled({ points: 0, logs: 1 }, undefined, this.#promise(accountId, bytes, done)));
    }
    this.#collected();
  }

  /** Writes changes of MQTT sessions, in one transaction with what was appended right before; `done` as for append. */
  record(changes: readonly MqttChange[], done: Stored): void {
    const refusal = this.#refusal();
    if (!refusal) for (const change of changes) this.#open.changes.push(change);
    this.#open.calls.push(this.#settled(nothing, refusal, done));
    this.#collected();
  }

  /** Writes changes of the outbox, in one transaction with what was appended right before; `done` as for append. */
  recordOutbox(changes: readonly OutboxChange[], done: Stored): void {
    // A message is refused like any other when the disk is full; that one has gone out is not.
    const added = changes.find((change) => change.kind === 'add');
    const refusal = this.#refusal() ?? (added && this.outboxFullFor(added.accountId));
    if (!refusal) for (const change of changes) this.#open.outbox.push(change);
    this.#open.calls.push(this.#settled(nothing, refusal, done));
    this.#collected();
  }

  /** Removes the points and log entries of a purged device, in shares that let other writes pass between them. */
  async deleteDevice(deviceId: string): Promise<void> {
    while (await this.#ask({ deleteSome: { deviceId } }));
  }

  /** Removes the points of a purged channel on every device, likewise. */
  async deleteChannel(channelTemplateId: string): Promise<void> {
    while (await this.#ask({ deleteSome: { channelTemplateId } }));
  }

  /** Forgets what an account had, after all its messages have been removed. */
  async forgetAccount(accountId: string): Promise<void> {
    await this.#ask({ forget: accountId });
  }

  /** One step of removing what has expired, a few milliseconds long; whether there is more. */
  expireSome(expired: Expired): Promise<boolean> {
    return this.#ask({ expireSome: expired });
  }

  /**
   * Likewise of making room, from the account that has stored most: until `bytes` of the file are in use and no account has
   * more than `accountBytes` (0 is no maximum); false when there is nothing to remove.
   */
  async evictSome(bytes: number, accountBytes = 0): Promise<boolean> {
    if (this.touched.isWatching) return false;
    return this.#ask({ evictSome: { bytes, accountBytes } });
  }

  /** Ends the store: everything appended before is on disk and its `done` called when the promise resolves. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#writer.drain();
    await this.#thread.close();
    // The last connection to close folds the write-ahead log into the file, and a reader cannot.
    this.#reader.close();
    await this.#writer.endThread(closed());
  }

  // Collecting

  #refusal(): Error | undefined {
    if (this.#closing) return closed();
    return this.#writer.available ? undefined : unavailable();
  }

  /** The call's `done`, once, with nothing thrown into the others; it takes the end on, past what the call has added. */
  #settled({ points, logs }: StoreEnd, refusal: Error | undefined, done: Stored): SettledCall {
    return (failure, end) => {
      this.#pending -= points + logs;
      if (end) {
        end.points += points;
        end.logs += logs;
        // Message by message: one may be handed on in its own `done`, and those after it are not yet.
        this.#end = { points: end.points, logs: end.logs };
      }
      try {
        done(refusal ?? failure, end);
      } catch (error) {
        this.#log.error({ err: error }, 'A callback of the message store has thrown.');
      }
    };
  }

  /** Counts what an account has been given until that is on disk. */
  #promise(accountId: string, bytes: number, done: Stored): Stored {
    if (bytes === 0) return done;
    this.promised.add(accountId, bytes);
    return (failure, end) => {
      this.promised.settle(accountId, bytes);
      done(failure, end);
    };
  }

  /** A full transaction ends before the next message, not after it: what follows a message joins it. */
  #makeRoom(coming = 1): void {
    if (this.#open.size >= batchSize || coming >= longMessage) this.#seal();
  }

  #collected(): void {
    if (this.#flushScheduled) return;
    this.#flushScheduled = true;
    setImmediate(() => {
      this.#flushScheduled = false;
      this.#writer.send();
    });
  }

  /** Ends the open batch; what comes now goes into the next transaction. */
  #seal(): void {
    const batch = this.#open;
    if (batch.calls.length === 0) return;
    this.#open = new OpenBatch();
    this.#waiting.push({
      order: { write: batch.toBatch() },
      settle: (failure, _, end) => {
        const at = end && { points: end.points - batch.pointCount, logs: end.logs - batch.logs.length };
        for (const done of batch.calls) done(failure, at);
        if (end) this.#end = end;
      },
    });
  }

  /** An order in its place among the writes; whether there is more to do. */
  #ask(order: StepOrder): Promise<boolean> {
    const refusal = this.#refusal();
    if (refusal) return Promise.reject(refusal);
    return new Promise((resolve, reject) => {
      this.#seal();
      this.#waiting.push({
        order,
        settle: (failure, more, end) => {
          if (end) this.#end = end;
          if (failure) reject(failure);
          else resolve(more);
        },
      });
      this.#writer.send();
    });
  }

  #nextJob(): Job | undefined {
    if (this.#waiting.length === 0) this.#seal();
    return this.#waiting.shift();
  }
}

/** What is called when a transaction has ended; without an error, with the end of the call before. */
type SettledCall = (failure?: Error, end?: StoreEnd) => void;
const nothing: StoreEnd = { points: 0, logs: 0 };

function closed(): Error {
  return new Error('The message store is closed.');
}

function isAhead({ arrived }: Point): boolean {
  return arrived !== undefined;
}

/** Points, and those of them that are ahead of their time, which have a series of their own. */
function bySeries(key: SeriesKey, points: readonly Point[]): Array<[SeriesKey, readonly Point[]]> {
  if (!points.some(isAhead)) return points.length > 0 ? [[key, points]] : [];
  const onTime = points.filter((point) => !isAhead(point));
  const ahead: [SeriesKey, Point[]] = [{ ...key, ahead: true }, points.filter(isAhead)];
  return onTime.length > 0 ? [[key, onTime], ahead] : [ahead];
}
