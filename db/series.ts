/**
 * Time-series and logs. Writes are collected for one turn of the event loop and go to a worker thread as one transaction,
 * so that the loop never waits for the disk; reads go through a second connection, here.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';
import { v7 as uuidv7 } from 'uuid';
import { migrate } from './migrations/index.js';
import { messageMigrations } from './migrations/messages.js';
import {
  type Answer,
  type Batch,
  type LogRow,
  type Order,
  type Purged,
  pointWidth,
  type WorkerSettings,
} from './series-protocol.js';
import { openSqlite } from './sqlite.js';

/** One value of a series; `time` in milliseconds since 1970. */
export interface Point {
  time: number;
  category: string;
  numericValue: number | null;
  stringValue: string | null;
}

export interface SeriesKey {
  accountId: string;
  deviceId: string;
  channelTemplateId: string;
}

/** Levels of a log entry, most severe first; `lifecycle` stands beside them (decisions 7). */
export const severities = [
  'emergency',
  'alert',
  'critical',
  'error',
  'warn',
  'notice',
  'info',
  'debug',
  'lifecycle',
] as const;
export type Severity = (typeof severities)[number];

/** `time` is the source's, `received` the service's; both in milliseconds since 1970. */
export interface LogEntry {
  id: string;
  accountId: string;
  deviceId: string;
  time: number;
  received: number;
  severity: Severity;
  message: string | null;
  code: string | null;
  details: string | null;
  tags: string[];
  custom: Record<string, unknown> | null;
}
export type LogInput = Pick<LogEntry, 'time' | 'severity' | 'message' | 'code' | 'details' | 'tags' | 'custom'>;

/** A place between two points of a series. */
export interface Cursor {
  time: number;
  sequence: number;
}

/** `from` inclusive and `to` exclusive, in milliseconds; `after` in the direction of `order`. */
export interface Range {
  from: number;
  to: number;
  order: 'asc' | 'desc';
  limit: number;
  after?: Cursor;
  category?: string;
}

/** Points as they were stored: `sequence` tells apart those of one time, and grows over the life of the file. */
export type StoredPoint = Point & { sequence: number };

/** `from` inclusive and `to` exclusive on the source time; `text` occurs in message, details or code, in any case. */
export interface LogFilter {
  severities?: readonly Severity[];
  from?: number;
  to?: number;
  text?: string;
}

export interface StoreLog {
  error(details: object, message: string): void;
}

type Done = (error?: Error) => void;

/** An order for the worker, and who hears of its answer. */
interface Job {
  order: Order;
  settle(failure: Error | undefined, more: boolean): void;
}

/** Points in one transaction at most; more are written in the next. */
const batchSize = 20_000;
/** One transaction is written while the next is on its way; more would only wait there. */
const ordersInFlight = 2;
/** Milliseconds from the death of a worker to the start of the next. */
const restartDelay = 1000;
/** Milliseconds since 1970 that a date can hold, either way. */
const timeLimit = 8.64e15;

export class MessageStore {
  readonly #path: string;
  readonly #log: StoreLog;
  readonly #now: () => number;
  readonly #reader: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepareReads>;
  /** Undefined until it has opened the file, and after its death. */
  #worker: Worker | undefined;
  #starting: Promise<void> | undefined;
  #restart: NodeJS.Timeout | undefined;
  #open = new OpenBatch();
  #flushScheduled = false;
  readonly #waiting: Job[] = [];
  readonly #inFlight: Job[] = [];
  #pending = 0;
  #closing: Promise<void> | undefined;
  #drained: (() => void) | undefined;

  private constructor(path: string, options: { log: StoreLog; now(): number }) {
    this.#path = path;
    this.#log = options.log;
    this.#now = options.now;
    this.#reader = openSqlite(path, { readonly: true });
    this.#statements = prepareReads(this.#reader);
  }

  /**
   * Opens `messages.db` in `directory`, made when missing, and brings its schema up to date. `now` in milliseconds.
   * @throws Error when the file cannot be opened for writing.
   */
  static async open(directory: string, options: { log: StoreLog; now(): number }): Promise<MessageStore> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, 'messages.db');
    await migrate(path, messageMigrations);
    const store = new MessageStore(path, options);
    try {
      await store.#start();
    } catch (error) {
      store.#reader.close();
      throw error;
    }
    return store;
  }

  /** Points and log entries that have been given and are not yet known to be on disk. */
  get pending(): number {
    return this.#pending;
  }

  /**
   * Stores the points of one message. `done` is called once, never before this returns, in the order of the calls:
   * after the commit that made the points durable, or with the error for which they are not kept.
   */
  append(key: SeriesKey, points: Point[], done: Done): void {
    const refusal = this.#refusal() ?? refusalOf(points);
    const kept = refusal ? [] : points;
    this.#pending += kept.length;
    this.#open.add(key, kept, this.#settled(kept.length, refusal, done));
    this.#collected();
  }

  /** Stores a log entry under a new id; `done` as for append. */
  appendLog(entry: Omit<LogEntry, 'id'>, done: Done): void {
    const row = this.#refusal() ?? toLogRow(entry, uuidv7({ msecs: this.#now() }));
    if (row instanceof Error) {
      this.#open.calls.push(this.#settled(0, row, done));
    } else {
      this.#pending += 1;
      this.#open.logs.push(row);
      this.#open.calls.push(this.#settled(1, undefined, done));
    }
    this.#collected();
  }

  /** Points of a series in a range, committed ones only, at most `limit`. */
  read(key: SeriesKey, range: Range): StoredPoint[] {
    const series = this.#statements.series.get(key);
    if (series === undefined) return [];
    const category = range.category === undefined ? null : this.#statements.category.get(range.category);
    if (category === undefined) return [];
    const { from, to, order, limit, after } = range;
    if (order === 'asc') {
      const { time, sequence } = after && after.time >= from ? after : { time: from, sequence: 0 };
      return this.#statements.ascending.all({ series, category, time, sequence, bound: to, limit });
    }
    const { time, sequence } = after && after.time < to ? after : { time: to, sequence: 0 };
    return this.#statements.descending.all({ series, category, time, sequence, bound: from, limit });
  }

  /** The last points of a series by time, newest first, at most `limit`. */
  latest(key: SeriesKey, limit: number, category?: string): StoredPoint[] {
    const range: Range = { from: -timeLimit, to: timeLimit + 1, order: 'desc', limit };
    return this.read(key, category === undefined ? range : { ...range, category });
  }

  /** A page (from 1) of a device's log entries that pass the filter, newest first, and how many pass it in all. */
  readLogs(
    deviceId: string,
    filter: LogFilter,
    page: { page: number; pageSize: number },
  ): { entries: LogEntry[]; total: number } {
    const levels = (filter.severities ?? severities).map((severity) => severities.indexOf(severity));
    const where = {
      deviceId,
      levels: JSON.stringify(levels),
      from: filter.from ?? -timeLimit,
      to: filter.to ?? timeLimit + 1,
      text: filter.text?.toLowerCase() ?? '',
    };
    const total = this.#statements.countLogs.get(where) ?? 0;
    const rows = this.#statements.logs.all({ ...where, limit: page.pageSize, offset: (page.page - 1) * page.pageSize });
    return { entries: rows.map(fromLogRow), total };
  }

  /** Removes the points and log entries of a purged device, in shares that let other writes pass between them. */
  async deleteDevice(deviceId: string): Promise<void> {
    while (await this.#deleteSome({ deviceId }));
  }

  /** Removes the points of a purged channel on every device, likewise. */
  async deleteChannel(channelTemplateId: string): Promise<void> {
    while (await this.#deleteSome({ channelTemplateId }));
  }

  /** Ends the store: everything appended before is on disk and its `done` called when the promise resolves. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    clearTimeout(this.#restart);
    await this.#starting?.catch(() => {});
    this.#seal();
    if (this.#worker || this.#inFlight.length > 0) {
      await new Promise<void>((resolve) => {
        this.#drained = resolve;
        this.#send();
      });
    }
    // The last connection to close folds the write-ahead log into the file, and a reader cannot.
    this.#reader.close();
    const worker = this.#worker;
    if (worker) {
      this.#worker = undefined;
      const exited = new Promise((resolve) => worker.once('exit', resolve));
      worker.postMessage({ close: true } satisfies Order);
      await exited;
    }
    this.#failAll(closed());
  }

  // Collecting

  #refusal(): Error | undefined {
    if (this.#closing) return closed();
    return this.#worker ? undefined : unavailable();
  }

  /** The call's `done`, once, with nothing thrown into the others. */
  #settled(count: number, refusal: Error | undefined, done: Done): Done {
    return (failure) => {
      this.#pending -= count;
      try {
        done(refusal ?? failure);
      } catch (error) {
        this.#log.error({ err: error }, 'A callback of the message store has thrown.');
      }
    };
  }

  #collected(): void {
    if (this.#open.size >= batchSize) this.#seal();
    if (this.#flushScheduled) return;
    this.#flushScheduled = true;
    setImmediate(() => {
      this.#flushScheduled = false;
      this.#send();
    });
  }

  /** Ends the open batch; what comes now goes into the next transaction. */
  #seal(): void {
    const batch = this.#open;
    if (batch.calls.length === 0) return;
    this.#open = new OpenBatch();
    this.#waiting.push({
      order: { write: batch.toBatch() },
      settle: (failure) => {
        for (const done of batch.calls) done(failure);
      },
    });
  }

  #deleteSome(purged: Purged): Promise<boolean> {
    const refusal = this.#refusal();
    if (refusal) return Promise.reject(refusal);
    return new Promise((resolve, reject) => {
      this.#seal();
      this.#waiting.push({
        order: { deleteSome: purged },
        settle: (failure, more) => (failure ? reject(failure) : resolve(more)),
      });
      this.#send();
    });
  }

  // Talking to the worker

  #send(): void {
    const worker = this.#worker;
    // Without a worker only calls that were refused can be here.
    if (!worker) {
      this.#failAll(unavailable());
      return;
    }
    while (this.#inFlight.length < ordersInFlight) {
      if (this.#waiting.length === 0) this.#seal();
      const job = this.#waiting.shift();
      if (!job) break;
      this.#inFlight.push(job);
      worker.postMessage(job.order, 'write' in job.order ? [job.order.write.points.buffer as ArrayBuffer] : []);
    }
    if (this.#inFlight.length === 0) this.#drained?.();
  }

  #answered(answer: Exclude<Answer, { ready: true }>): void {
    const job = this.#inFlight.shift();
    if ('failure' in answer) {
      const failure = toError(answer.failure);
      this.#log.error({ err: failure }, 'A transaction of the message store has failed.');
      job?.settle(failure, false);
    } else {
      job?.settle(undefined, answer.more);
    }
    this.#send();
  }

  #start(): Promise<void> {
    this.#starting = new Promise((resolve, reject) => {
      const settings: WorkerSettings = { path: this.#path };
      // Without the loaders of the main thread (tests have some): each would start again in it.
      const options = { workerData: settings, execArgv: [] };
      const worker = new Worker(new URL('./series-worker.js', import.meta.url), options);
      let cause = new Error('The writer of the message store has ended.');
      worker.on('message', (answer: Answer) => {
        if (!('ready' in answer)) return this.#answered(answer);
        this.#worker = worker;
        resolve();
      });
      worker.on('error', (error) => {
        cause = error;
      });
      worker.on('exit', () => {
        reject(cause);
        if (this.#worker === worker) this.#workerDied(cause);
      });
    });
    return this.#starting;
  }

  #workerDied(cause: Error): void {
    this.#worker = undefined;
    this.#log.error({ err: cause }, 'The writer of the message store has ended; it is started again.');
    this.#failAll(cause);
    this.#drained?.();
    this.#restartLater();
  }

  #restartLater(): void {
    if (this.#closing) return;
    this.#restart = setTimeout(() => {
      this.#start().catch((error) => {
        this.#log.error({ err: error }, 'The writer of the message store does not start.');
        this.#restartLater();
      });
    }, restartDelay);
  }

  #failAll(error: Error): void {
    this.#seal();
    for (const job of [...this.#inFlight.splice(0), ...this.#waiting.splice(0)]) job.settle(error, false);
  }
}

/** What is collected for the next transaction. */
class OpenBatch {
  /** In the order in which they came, for points and logs alike. */
  readonly calls: Done[] = [];
  readonly logs: LogRow[] = [];
  readonly #keys: string[] = [];
  readonly #keyIndex = new Map<string, number>();
  readonly #categoryIndex = new Map<string, number>();
  readonly #points: number[] = [];
  readonly #texts = new Map<number, string>();

  get size(): number {
    return Math.max(this.calls.length, this.#points.length / pointWidth);
  }

  add(key: SeriesKey, points: readonly Point[], done: Done): void {
    this.calls.push(done);
    if (points.length === 0) return;
    const series = this.#indexOfKey(key);
    for (const { time, category, numericValue, stringValue } of points) {
      if (stringValue !== null) this.#texts.set(this.#points.length / pointWidth, stringValue);
      this.#points.push(series, time, this.#indexOfCategory(category), numericValue ?? Number.NaN);
    }
  }

  toBatch(): Batch {
    return {
      keys: this.#keys,
      categories: [...this.#categoryIndex.keys()],
      points: new Float64Array(this.#points),
      texts: this.#texts,
      logs: this.logs,
    };
  }

  #indexOfKey({ accountId, deviceId, channelTemplateId }: SeriesKey): number {
    const name = `${deviceId}/${channelTemplateId}/${accountId}`;
    let index = this.#keyIndex.get(name);
    if (index === undefined) {
      index = this.#keyIndex.size;
      this.#keyIndex.set(name, index);
      this.#keys.push(accountId, deviceId, channelTemplateId);
    }
    return index;
  }

  #indexOfCategory(category: string): number {
    let index = this.#categoryIndex.get(category);
    if (index === undefined) {
      index = this.#categoryIndex.size;
      this.#categoryIndex.set(category, index);
    }
    return index;
  }
}

interface LogQuery {
  deviceId: string;
  levels: string;
  from: number;
  to: number;
  text: string;
}

interface PointQuery {
  series: number;
  category: number | null;
  time: number;
  sequence: number;
  bound: number;
  limit: number;
}

function prepareReads(reader: Sqlite.Database) {
  // SQLite's own LIKE ignores case for ASCII only.
  reader.function('holds', { deterministic: true }, (value: unknown, text: unknown) =>
    typeof value === 'string' && value.toLowerCase().includes(text as string) ? 1 : 0,
  );
  const points = (beyond: '>' | '<', bound: '<' | '>=', order: 'ASC' | 'DESC') =>
    reader.prepare<[PointQuery], StoredPoint>(
      `SELECT p."time", p."sequence", c."text" AS "category", p."number" AS "numericValue", p."text" AS "stringValue"
       FROM "points" p CROSS JOIN "categories" c ON c."id" = p."category"
       WHERE p."series" = @series AND (p."time", p."sequence") ${beyond} (@time, @sequence) AND p."time" ${bound} @bound
       AND (@category IS NULL OR p."category" = @category)
       ORDER BY p."time" ${order}, p."sequence" ${order} LIMIT @limit`,
    );
  const logFilter = `"deviceId" = @deviceId AND "time" >= @from AND "time" < @to
    AND "severity" IN (SELECT "value" FROM json_each(@levels))
    AND (@text = '' OR holds("message", @text) OR holds("details", @text) OR holds("code", @text))`;
  return {
    series: reader
      .prepare<[SeriesKey], number>(
        `SELECT "id" FROM "series"
         WHERE "accountId" = @accountId AND "deviceId" = @deviceId AND "channelTemplateId" = @channelTemplateId`,
      )
      .pluck(),
    category: reader.prepare<[string], number>('SELECT "id" FROM "categories" WHERE "text" = ?').pluck(),
    ascending: points('>', '<', 'ASC'),
    descending: points('<', '>=', 'DESC'),
    countLogs: reader.prepare<[LogQuery], number>(`SELECT count(*) FROM "logs" WHERE ${logFilter}`).pluck(),
    logs: reader.prepare<[LogQuery & { limit: number; offset: number }], LogRow>(
      `SELECT * FROM "logs" WHERE ${logFilter} ORDER BY "time" DESC, "sequence" DESC LIMIT @limit OFFSET @offset`,
    ),
  };
}

/** One point that SQLite would refuse must not take its whole transaction with it. */
function refusalOf(points: readonly Point[]): Error | undefined {
  for (const { time, numericValue } of points) {
    if (!isTime(time)) return new RangeError('The time of a point is out of range.');
    if (numericValue !== null && !Number.isFinite(numericValue)) return new RangeError('A point is not finite.');
  }
  return undefined;
}

function isTime(time: number): boolean {
  return Number.isInteger(time) && Math.abs(time) <= timeLimit;
}

function toLogRow(entry: Omit<LogEntry, 'id'>, id: string): LogRow | Error {
  const { accountId, deviceId, time, received, message, code, details, tags, custom } = entry;
  const severity = severities.indexOf(entry.severity);
  if (!isTime(time) || !isTime(received) || severity === -1) return new RangeError('A log entry is out of range.');
  try {
    const json = { tags: JSON.stringify(tags), custom: custom && JSON.stringify(custom) };
    return { id, accountId, deviceId, time, received, severity, message, code, details, ...json };
  } catch (error) {
    return error as Error;
  }
}

function fromLogRow(row: LogRow): LogEntry {
  const { id, accountId, deviceId, time, received, message, code, details } = row;
  const severity = severities[row.severity] ?? 'info';
  const tags = JSON.parse(row.tags) as string[];
  const custom = row.custom === null ? null : (JSON.parse(row.custom) as Record<string, unknown>);
  return { id, accountId, deviceId, time, received, severity, message, code, details, tags, custom };
}

function closed(): Error {
  return new Error('The message store is closed.');
}

function unavailable(): Error {
  return new Error('The message store is not available: its writer has ended.');
}

/** Errors lose their class between threads; isStoreFull looks at it. */
function toError({ message, code }: { message: string; code?: string | undefined }): Error {
  return code?.startsWith('SQLITE_') ? new Sqlite.SqliteError(message, code) : new Error(message);
}
