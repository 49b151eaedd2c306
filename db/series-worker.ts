/**
 * The writer of messages.db, in a thread of its own: one batch is one transaction, answered after its commit. It shares
 * no memory with the main thread and decides nothing; what it is sent has been checked.
 */
import { parentPort, workerData } from 'node:worker_threads';
import type Sqlite from 'better-sqlite3';
import { boundedCache } from './cache.js';
import { LogWriter } from './log-writer.js';
import { MqttWriter } from './mqtt-writer.js';
import {
  type Answer,
  type Batch,
  type Order,
  type Purged,
  pointWidth,
  type WorkerSettings,
} from './series-protocol.js';
import { openSqlite } from './sqlite.js';

/** How many rows of a purged device go in one transaction, so that points arriving meanwhile wait for little. */
const purgeSize = 20_000;
/** About 32 MB of log between checkpoints: points of many series share pages, which are then written back once. */
const checkpointPages = 8000;
const seriesKept = 50_000;
const categoriesKept = 10_000;

class Writer {
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #mqtt: MqttWriter;
  readonly #logs: LogWriter;
  readonly #series = boundedCache<string, number>(seriesKept);
  readonly #categories = boundedCache<string, number>(categoriesKept);
  #sequence: number;

  constructor(path: string) {
    this.#file = openSqlite(path);
    this.#file.pragma(`wal_autocheckpoint = ${checkpointPages}`);
    this.#statements = prepare(this.#file);
    this.#mqtt = new MqttWriter(this.#file);
    this.#logs = new LogWriter(this.#file);
    this.#sequence = this.#statements.sequence.get() ?? 0;
  }

  write(batch: Batch): void {
    this.#transaction(() => {
      this.#writePoints(batch);
      this.#logs.write(batch.logs);
      for (const change of batch.changes) this.#mqtt.write(change);
    });
  }

  /** One share of the rows; false when nothing is left. */
  deleteSome(purged: Purged): boolean {
    const { seriesOfDevice, seriesOfChannel, deleteLogs } = this.#statements;
    return this.#transaction(() => {
      const series =
        'deviceId' in purged ? seriesOfDevice.get(purged.deviceId) : seriesOfChannel.get(purged.channelTemplateId);
      if (series !== undefined) {
        const removed = this.#statements.deletePoints.run({ series, limit: purgeSize }).changes;
        if (removed < purgeSize) {
          this.#statements.deleteSeries.run(series);
          this.#series.clear();
        }
        return true;
      }
      return 'deviceId' in purged && deleteLogs.run(purged.deviceId, purgeSize).changes > 0;
    });
  }

  /** Whether log entries are waiting to be indexed. */
  get isBehind(): boolean {
    return this.#logs.isBehind;
  }

  indexSome(): void {
    this.#transaction(() => this.#logs.indexSome());
  }

  tidy(): void {
    this.#transaction(() => this.#mqtt.tidy());
  }

  close(): void {
    this.#file.close();
  }

  #writePoints({ keys, categories, points, texts }: Batch): void {
    if (points.length === 0) return;
    const series: number[] = [];
    for (let at = 0; at < keys.length; at += 3) series.push(this.#seriesId(keys.slice(at, at + 3)));
    const categoryIds = categories.map((text) => this.#categoryId(text));
    const { addPoint } = this.#statements;
    for (let point = 0, at = 0; at < points.length; point += 1, at += pointWidth) {
      const number = points[at + 3] as number;
      this.#sequence += 1;
      addPoint.run(
        series[points[at] as number] as number,
        points[at + 1] as number,
        this.#sequence,
        categoryIds[points[at + 2] as number] as number,
        Number.isNaN(number) ? null : number,
        texts.get(point) ?? null,
      );
    }
    this.#statements.keepSequence.run(this.#sequence);
  }

  #seriesId(key: string[]): number {
    const name = key.join('/');
    const known = this.#series.get(name) ?? this.#statements.findSeries.get(key);
    const id = known ?? Number(this.#statements.addSeries.run(key).lastInsertRowid);
    this.#series.set(name, id);
    return id;
  }

  #categoryId(text: string): number {
    const known = this.#categories.get(text) ?? this.#statements.findCategory.get(text);
    const id = known ?? Number(this.#statements.addCategory.run(text).lastInsertRowid);
    this.#categories.set(text, id);
    return id;
  }

  #transaction<R>(work: () => R): R {
    const sequence = this.#sequence;
    this.#statements.begin.run();
    try {
      const result = work();
      this.#statements.commit.run();
      return result;
    } catch (error) {
      // SQLite itself may have ended the transaction (disk full, I/O error).
      if (this.#file.inTransaction) this.#statements.rollback.run();
      // Ids that were given out in it are void.
      this.#sequence = sequence;
      this.#series.clear();
      this.#categories.clear();
      this.#logs.rolledBack();
      throw error;
    }
  }
}

function prepare(file: Sqlite.Database) {
  return {
    begin: file.prepare('BEGIN IMMEDIATE'),
    commit: file.prepare('COMMIT'),
    rollback: file.prepare('ROLLBACK'),
    sequence: file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'sequence'`).pluck(),
    keepSequence: file.prepare(`UPDATE "counters" SET "value" = ? WHERE "name" = 'sequence'`),
    findSeries: file
      .prepare<[string[]], number>(
        'SELECT "id" FROM "series" WHERE "accountId" = ? AND "deviceId" = ? AND "channelTemplateId" = ?',
      )
      .pluck(),
    addSeries: file.prepare<[string[]]>(
      'INSERT INTO "series" ("accountId", "deviceId", "channelTemplateId") VALUES (?, ?, ?)',
    ),
    findCategory: file.prepare<[string], number>('SELECT "id" FROM "categories" WHERE "text" = ?').pluck(),
    addCategory: file.prepare<[string]>('INSERT INTO "categories" ("text") VALUES (?)'),
    addPoint: file.prepare('INSERT INTO "points" VALUES (?, ?, ?, ?, ?, ?)'),
    seriesOfDevice: file.prepare<[string], number>('SELECT "id" FROM "series" WHERE "deviceId" = ? LIMIT 1').pluck(),
    seriesOfChannel: file
      .prepare<[string], number>('SELECT "id" FROM "series" WHERE "channelTemplateId" = ? LIMIT 1')
      .pluck(),
    deletePoints: file.prepare<[{ series: number; limit: number }]>(
      `DELETE FROM "points" WHERE "series" = @series AND ("time", "sequence") IN
       (SELECT "time", "sequence" FROM "points" WHERE "series" = @series ORDER BY "time", "sequence" LIMIT @limit)`,
    ),
    deleteSeries: file.prepare<[number]>('DELETE FROM "series" WHERE "id" = ?'),
    deleteLogs: file.prepare<[string, number]>(
      'DELETE FROM "logs" WHERE "sequence" IN (SELECT "sequence" FROM "logs" WHERE "deviceId" = ? LIMIT ?)',
    ),
  };
}

const port = parentPort;
if (!port) throw new Error('series-worker runs as a worker thread only.');
const writer = new Writer((workerData as WorkerSettings).path);
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
port.postMessage({ ready: true } satisfies Answer);
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
    if ('deleteSome' in order) return { more: writer.deleteSome(order.deleteSome) };
    if ('tidy' in order) writer.tidy();
    else writer.write(order.write);
    return { more: false };
  } catch (error) {
    const { message, code } = error as { message: string; code?: string };
    return { failure: { message, code } };
  }
}
