/**
 * The writer of messages.db, in a thread of its own: one batch is one transaction, answered after its commit. It shares
 * no memory with the main thread and decides nothing; what it is sent has been checked.
 */
import { dirname } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import type Sqlite from 'better-sqlite3';
import { commitAsHolder, Fence } from '../../files/lock.ts';
import { boundedCache } from '../../sqlite/cache.ts';
import { openSqlite } from '../../sqlite/open.ts';
import { failureOf } from '../../threads/answering.ts';
import { LogWriter } from '../logs/writer.ts';
import type { AccountBytes } from '../outbox/amounts.ts';
import type { OutboxChange } from '../outbox/rows.ts';
import { OutboxWriter } from '../outbox/writer.ts';
import { Arrivals } from '../series/arrivals.ts';
import { SeriesCounts } from '../series/counts.ts';
import { LatePoints } from '../series/late-points.ts';
import { SeriesMarks } from '../series/marks.ts';
import { SeriesRemoval } from '../series/removal.ts';
import { orderByTime } from '../series/rows.ts';
import { pointBytes, sizeOfLog, textSize } from '../series/sizes.ts';
import { MqttWriter } from '../sessions/writer.ts';
import {
  type Answer,
  type Batch,
  type BatchKey,
  type HeldBytes,
  type LogRow,
  type Order,
  pointWidth,
  type StepOrder,
  type StoreEnd,
  type WorkerSettings,
} from './protocol.ts';

/** About 32 MB of log between checkpoints: points of many series share pages, which are then written back once. */
const checkpointPages = 8000;
const seriesKept = 50_000;
const categoriesKept = 10_000;
/** Categories that are removed with one step. */
const unusedAtOnce = 200;

/** A series as its row has it; `oldest` is infinite while it has no point. */
interface KnownSeries {
  id: number;
  accountId: string;
  oldest: number;
}

class Writer {
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #mqtt: MqttWriter;
  readonly #logs: LogWriter;
  readonly #outbox: OutboxWriter;
  readonly #arrivals: Arrivals;
  readonly #counts: SeriesCounts;
  readonly #marks: SeriesMarks;
  readonly #late: LatePoints;
  readonly #removal: SeriesRemoval;
  readonly #pageSize: number;
  readonly #series = boundedCache<string, KnownSeries>(seriesKept);
  readonly #categories = boundedCache<string, number>(categoriesKept);
  /** The last one given out, to a point or a log entry. */
  #sequence: number;
  #end: StoreEnd;
  /** How long the last COMMIT has taken, in milliseconds. */
  commitTime = 0;

  readonly #fence: Fence | undefined;

  constructor({ path, mark }: WorkerSettings) {
    this.#file = openSqlite(path, { cache: 'busy' });
    this.#fence = mark === undefined ? undefined : Fence.open(dirname(path), mark);
    this.#file.pragma(`wal_autocheckpoint = ${checkpointPages}`);
    this.#statements = prepare(this.#file);
    this.#mqtt = new MqttWriter(this.#file);
    this.#logs = new LogWriter(this.#file);
    this.#marks = new SeriesMarks(this.#file);
    this.#late = new LatePoints(this.#file);
    this.#outbox = new OutboxWriter(this.#file);
    this.#arrivals = new Arrivals(this.#file);
    this.#counts = new SeriesCounts(this.#file, this.#arrivals);
    this.#removal = new SeriesRemoval(this.#file, {
      arrivals: this.#arrivals,
      counts: this.#counts,
      outbox: this.#outbox,
      size: () => this.size,
      sequence: () => this.#sequence,
      changed: ({ id, accountId, deviceId, channelTemplateId, possession, ahead, oldest }) => {
        this.#series.delete(nameOf([accountId, deviceId, channelTemplateId, possession, ahead]));
        this.#marks.forgetBefore(id, oldest ?? Number.MAX_SAFE_INTEGER);
        this.#late.forgetBefore(id, oldest ?? Number.MAX_SAFE_INTEGER);
      },
    });
    this.#pageSize = this.#file.pragma('page_size', { simple: true }) as number;
    const { sequence, lastLog } = this.#statements;
    this.#end = { points: sequence.get() ?? 0, logs: lastLog.get() ?? 0 };
    this.#sequence = Math.max(this.#end.points, this.#end.logs);
  }

  get end(): StoreEnd {
    return this.#end;
  }

  /** Bytes of the file that are in use; those of removed rows are used again before it grows. */
  get size(): number {
    const { pageCount, freePages } = this.#statements;
    return ((pageCount.get() ?? 0) - (freePages.get() ?? 0)) * this.#pageSize;
  }

  /** Bytes that are held. */
  get held(): HeldBytes {
    return {
      size: this.size,
      unused: (this.#statements.freePages.get() ?? 0) * this.#pageSize,
      outboxPending: this.#outbox.pendingBytes,
      largest: this.#arrivals.largest()?.bytes ?? 0,
    };
  }

  /** Pending bytes of the outbox by account: of all, and of those that the last order has changed. */
  outboxPending(): AccountBytes[] {
    return this.#outbox.pending();
  }

  outboxChanges(): AccountBytes[] {
    return this.#outbox.committed();
  }

  write(batch: Batch): void {
    this.#transaction(() => {
      this.#writePoints(batch);
      this.#writeLogs(batch.logs);
      for (const change of batch.changes) this.#mqtt.write(change);
      this.#writeOutbox(batch.outbox);
    });
  }

  /** One step; whether there is more to do. */
  step(order: StepOrder): boolean {
    return this.#transaction(() => {
      if ('deleteSome' in order) return this.#removed(this.#removal.purgeSome(order.deleteSome));
      if ('expireSome' in order) return this.#removed(this.#removal.expireSome(order.expireSome));
      if ('evictSome' in order) return this.#removed(this.#removal.evictSome(order.evictSome));
      if ('prepare' in order) return this.#prepare(order.prepare);
      if ('forget' in order) {
        for (const statement of this.#statements.forget) statement.run(order.forget);
        this.#arrivals.clear();
        return false;
      }
      if ('prove' in order) this.#statements.keepSequence.run(this.#sequence);
      else this.#mqtt.tidy();
      return false;
    });
  }

  /** Points have been removed: some of the categories that nothing has any more go, too. `more` is passed on. */
  #removed(more: boolean): boolean {
    for (const text of this.#statements.removeUnused.all(unusedAtOnce)) this.#categories.delete(text);
    return more;
  }

  /** Whether log entries are waiting to be indexed. */
  get isBehind(): boolean {
    return this.#logs.isBehind;
  }

  indexSome(): void {
    this.#transaction(() => this.#logs.indexSome());
  }

  close(): void {
    this.#file.close();
    this.#fence?.close();
  }

  /** Writes the categories and marks of points that come later: a mark without a point says nothing to readers. */
  #prepare({ keys, categories, points }: Batch): false {
    for (let at = 0; at < points.length; at += pointWidth) {
      const { id, accountId } = this.#seriesOf(keys[points[at] as number] as BatchKey);
      const category = this.#categoryId(categories[points[at + 2] as number] as string, accountId);
      this.#marks.add(id, category, points[at + 1] as number);
    }
    return false;
  }

  #writePoints({ keys, categories, points, texts, arrived, prepared }: Batch): void {
    if (points.length === 0) return;
    const series: KnownSeries[] = [];
    for (const key of keys) series.push(this.#seriesOf(key));
    const ids = series.map(({ id }) => id);
    const oldest = Float64Array.from(series, (one) => one.oldest);
    const counts = new Uint32Array(series.length);
    const categoryIds: number[] = [];
    const { addPoint, addAhead } = this.#statements;
    const from = this.#sequence;
    for (let at = 0; at < points.length; at += pointWidth) {
      const index = points[at] as number;
      const time = points[at + 1] as number;
      this.#sequence += 1;
      this.#late.add(ids[index] as number, time, this.#sequence);
      (counts[index] as number) += 1;
      const age = arrived.get(at / pointWidth) ?? time;
      if (age < (oldest[index] as number)) oldest[index] = age;
    }
    const order = orderByTime(points, series.length);
    for (let n = 0; n < points.length / pointWidth; n += 1) {
      const point = order ? (order[n] as number) : n;
      const at = point * pointWidth;
      const index = points[at] as number;
      const id = ids[index] as number;
      const time = points[at + 1] as number;
      const named = points[at + 2] as number;
      categoryIds[named] ??= this.#categoryId(categories[named] as string, (series[index] as KnownSeries).accountId);
      const category = categoryIds[named];
      const number = points[at + 3] as number;
      const sequence = from + point + 1;
      addPoint.run(id, time, sequence, category, Number.isNaN(number) ? null : number, texts.get(point) ?? null);
      this.#marks.add(id, category, time, prepared.has(index));
      const received = arrived.get(point);
      if (received !== undefined) addAhead.run(id, received, time, sequence);
    }
    this.#end = { ...this.#end, points: this.#sequence };
    this.#statements.keepSequence.run(this.#sequence);
    this.#keepOldest(series, oldest);
    this.#count(series, counts, textBytesOf(series, points, texts), from);
  }

  #keepOldest(series: readonly KnownSeries[], oldest: Float64Array): void {
    for (const [index, one] of series.entries()) {
      const time = oldest[index] as number;
      // A series may be there twice: with points that have been prepared, and with others.
      if (time >= one.oldest) continue;
      this.#statements.keepOldest.run(time, one.id);
      one.oldest = time;
    }
  }

  #count(series: readonly KnownSeries[], counts: Uint32Array, texts: Uint32Array, from: number): void {
    const added = new Map<string, { points: number; logs: number; bytes: number }>();
    for (const [index, { accountId }] of series.entries()) {
      const sum = added.get(accountId) ?? { points: 0, logs: 0, bytes: 0 };
      sum.points += counts[index] as number;
      sum.bytes += (counts[index] as number) * pointBytes + (texts[index] as number);
      added.set(accountId, sum);
    }
    for (const [accountId, sum] of added) this.#counts.add(accountId, sum, from);
  }

  #writeLogs(logs: readonly LogRow[]): void {
    if (logs.length === 0) return;
    const from = this.#sequence;
    const added = new Map<string, { points: number; logs: number; bytes: number }>();
    for (const log of logs) {
      const sum = added.get(log.accountId) ?? { points: 0, logs: 0, bytes: 0 };
      sum.logs += 1;
      sum.bytes += sizeOfLog(log);
      added.set(log.accountId, sum);
    }
    this.#logs.write(logs, () => {
      this.#sequence += 1;
      return this.#sequence;
    });
    this.#end = { ...this.#end, logs: this.#sequence };
    this.#statements.keepSequence.run(this.#sequence);
    for (const [accountId, sum] of added) this.#counts.add(accountId, sum, from);
  }

  #seriesOf(key: BatchKey): KnownSeries {
    const name = nameOf(key);
    const known = this.#series.get(name);
    if (known) return known;
    const { findSeries, addSeries } = this.#statements;
    const found = findSeries.get(key) ?? { id: Number(addSeries.run(key).lastInsertRowid), oldest: null };
    const series = { id: found.id, accountId: key[0], oldest: found.oldest ?? Number.POSITIVE_INFINITY };
    this.#series.set(name, series);
    return series;
  }

  #writeOutbox(changes: OutboxChange[]): void {
    if (changes.length === 0) return;
    const next = () => {
      this.#sequence += 1;
      return this.#sequence;
    };
    for (const change of changes) this.#outbox.write(change, next);
    this.#statements.keepSequence.run(this.#sequence);
  }

  /** A new category is counted for the account that brings it. */
  #categoryId(text: string, accountId: string): number {
    const known = this.#categories.get(text) ?? this.#statements.findCategory.get(text);
    const id = known ?? Number(this.#statements.addCategory.run(text, accountId).lastInsertRowid);
    this.#categories.set(text, id);
    return id;
  }

  #transaction<R>(work: () => R): R {
    const [sequence, end] = [this.#sequence, this.#end];
    this.#statements.begin.run();
    try {
      const result = work();
      commitAsHolder(this.#fence, () => {
        const from = performance.now();
        this.#statements.commit.run();
        this.commitTime = performance.now() - from;
      });
      return result;
    } catch (error) {
      // SQLite itself may have ended the transaction (disk full, I/O error).
      if (this.#file.inTransaction) this.#statements.rollback.run();
      // Ids that were given out in it are void.
      this.#sequence = sequence;
      this.#end = end;
      this.#series.clear();
      this.#categories.clear();
      this.#marks.clear();
      this.#late.clear();
      this.#arrivals.clear();
      this.#removal.clear();
      this.#logs.rolledBack();
      this.#outbox.rolledBack();
      throw error;
    }
  }
}

/** What the texts add to the points of each series. */
function textBytesOf(series: readonly KnownSeries[], points: Float64Array, texts: Map<number, string>): Uint32Array {
  const bytes = new Uint32Array(series.length);
  for (const [point, text] of texts) {
    const index = points[point * pointWidth] as number;
    bytes[index] = (bytes[index] as number) + textSize(Buffer.byteLength(text));
  }
  return bytes;
}

function nameOf(key: BatchKey): string {
  return key.join('/');
}

function prepare(file: Sqlite.Database) {
  return {
    begin: file.prepare('BEGIN IMMEDIATE'),
    commit: file.prepare('COMMIT'),
    rollback: file.prepare('ROLLBACK'),
    sequence: file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'sequence'`).pluck(),
    lastLog: file.prepare<[], number | null>('SELECT max("sequence") FROM "logs"').pluck(),
    keepSequence: file.prepare(`UPDATE "counters" SET "value" = ? WHERE "name" = 'sequence'`),
    pageCount: file.prepare<[], number>('PRAGMA page_count').pluck(),
    freePages: file.prepare<[], number>('PRAGMA freelist_count').pluck(),
    findSeries: file.prepare<[BatchKey], { id: number; oldest: number | null }>(
      `SELECT "id", "oldest" FROM "series"
       WHERE "accountId" = ? AND "deviceId" = ? AND "channelTemplateId" = ? AND "possession" = ? AND "ahead" = ?`,
    ),
    keepOldest: file.prepare<[number, number]>('UPDATE "series" SET "oldest" = ? WHERE "id" = ?'),
    addSeries: file.prepare<[BatchKey]>(
      'INSERT INTO "series" ("accountId", "deviceId", "channelTemplateId", "possession", "ahead") VALUES (?, ?, ?, ?, ?)',
    ),
    findCategory: file.prepare<[string], number>('SELECT "id" FROM "categories" WHERE "text" = ?').pluck(),
    addCategory: file.prepare<[string, string]>('INSERT INTO "categories" ("text", "accountId") VALUES (?, ?)'),
    // Never the last one: its number would be given out again, and readers remember the texts of numbers.
    removeUnused: file
      .prepare<[number], string>(
        `DELETE FROM "categories" WHERE "id" IN (
           SELECT "id" FROM "categories" INDEXED BY "categories_unused"
           WHERE "marks" = 0 AND "id" < (SELECT max("id") FROM "categories") LIMIT ?) RETURNING "text"`,
      )
      .pluck(),
    forget: ['messageCounts', 'arrivals', 'mqttRetainedUse', 'heldBytes'].map((table) =>
      file.prepare<[string]>(`DELETE FROM "${table}" WHERE "accountId" = ?`),
    ),
    addPoint: file.prepare('INSERT INTO "points" VALUES (?, ?, ?, ?, ?, ?)'),
    addAhead: file.prepare<[number, number, number, number]>('INSERT INTO "aheadPoints" VALUES (?, ?, ?, ?)'),
  };
}

const port = parentPort;
if (!port) throw new Error('series-worker runs as a worker thread only.');
const writer = new Writer(workerData as WorkerSettings);
let idle: NodeJS.Immediate | undefined;

port.on('message', (order: Order) => {
  if ('close' in order) {
    clearImmediate(idle);
    writer.close();
    port.close();
    return;
  }
  port.postMessage(carryOut(order));
  indexWhenIdle();
});
port.postMessage({ ready: true, outbox: writer.outboxPending(), ...writer.held } satisfies Answer);
indexWhenIdle();

/** Indexes log entries between orders, a share in each turn; a full disk ends that until the next order. */
function indexWhenIdle(): void {
  clearImmediate(idle);
  if (!writer.isBehind) return;
  idle = setImmediate(() => {
    try {
      writer.indexSome();
    } catch {
      return;
    }
    indexWhenIdle();
  });
}

function carryOut(order: Exclude<Order, { close: true }>): Answer {
  try {
    let more = false;
    if ('write' in order) writer.write(order.write);
    else more = writer.step(order);
    return { more, end: writer.end, commitTime: writer.commitTime, outbox: writer.outboxChanges(), ...writer.held };
  } catch (error) {
    return { failure: failureOf(error) };
  }
}
