/** Writes changes of the outbox; part of the worker of messages.db, inside its transactions. */
import type Sqlite from 'better-sqlite3';
import { type OutboxChange, type OutboxMessage, outboxStates } from './rows.js';

/** Rows that are removed at once to make room; each may hold a payload of the largest size. */
const rowsAtOnce = 64;

export class OutboxWriter {
  readonly #statements: ReturnType<typeof prepare>;
  #pendingBytes = 0;

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
    this.recount();
  }

  /** Bytes of payload that are pending, and so cannot make room. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** Counts anew what is pending: the transaction that changed it was rolled back. */
  recount(): void {
    this.#pendingBytes = this.#statements.pendingBytes.get() ?? 0;
  }

  /** `next` gives the place of a new row. */
  write(change: OutboxChange, next: () => number): void {
    const { add, move, remove } = this.#statements;
    if (change.kind === 'add') {
      for (const bridgeId of change.bridgeIds) add.run({ ...change.message, bridgeId, sequence: next() });
      this.#pendingBytes += change.message.payload.length * change.bridgeIds.length;
      return;
    }
    const from = outboxStates[change.from];
    const to = change.kind === 'move' ? change.to : undefined;
    for (const sequence of change.sequences) {
      const bytes =
        change.kind === 'remove'
          ? remove.get(sequence, from)
          : move.get(outboxStates[change.to], change.time, change.reason, sequence, from);
      if (change.from === 'pending') this.#pendingBytes -= bytes ?? 0;
      if (to === 'pending') this.#pendingBytes += bytes ?? 0;
    }
  }

  /** Removes some of what was delivered and is kept only to be replayed, of each bridge the oldest; how many. */
  evictDelivered(): number {
    return this.#ofEachBridge((bridgeId) => this.#statements.evictDelivered.run(bridgeId, rowsAtOnce).changes);
  }

  /** Removes some dead letters that were accepted before a time, in milliseconds since 1970; how many. */
  evictDead(before: number): number {
    return this.#ofEachBridge((bridgeId) => this.#statements.evictDead.run(bridgeId, before, rowsAtOnce).changes);
  }

  /** When the oldest dead letter was accepted. */
  oldestDead(): number | undefined {
    let oldest: number | undefined;
    this.#ofEachBridge((bridgeId) => {
      const time = this.#statements.oldestDead.get(bridgeId);
      if (time !== undefined && !(oldest !== undefined && oldest <= time)) oldest = time;
      return 0;
    });
    return oldest;
  }

  #ofEachBridge(work: (bridgeId: string) => number): number {
    const { nextBridge } = this.#statements;
    let sum = 0;
    for (let id = nextBridge.get(''); id; id = nextBridge.get(id)) sum += work(id);
    return sum;
  }
}

function prepare(file: Sqlite.Database) {
  return {
    add: file.prepare<[OutboxMessage & { bridgeId: string; sequence: number }]>(
      `INSERT INTO "outbox" VALUES (@sequence, @bridgeId, 0, @time, @id, @deviceId, @organizationId, @deviceTemplateId,
       @channel, @qos, @time, NULL, @payload)`,
    ),
    move: file
      .prepare<[number, number, string | null, number, number], number>(
        `UPDATE "outbox" SET "state" = ?, "since" = ?, "reason" = ? WHERE "sequence" = ? AND "state" = ?
         RETURNING length("payload")`,
      )
      .pluck(),
    remove: file
      .prepare<[number, number], number>(
        'DELETE FROM "outbox" WHERE "sequence" = ? AND "state" = ? RETURNING length("payload")',
      )
      .pluck(),
    pendingBytes: file
      .prepare<[], number>('SELECT CAST(total(length("payload")) AS INTEGER) FROM "outbox" WHERE "state" = 0')
      .pluck(),
    nextBridge: file
      .prepare<[string], string | null>('SELECT min("bridgeId") FROM "outbox" WHERE "bridgeId" > ?')
      .pluck(),
    evictDelivered: file.prepare<[string, number]>(
      `DELETE FROM "outbox" WHERE "sequence" IN (
         SELECT "sequence" FROM "outbox" INDEXED BY "outbox_state"
         WHERE "bridgeId" = ? AND "state" = 1 ORDER BY "sequence" LIMIT ?)`,
    ),
    evictDead: file.prepare<[string, number, number]>(
      `DELETE FROM "outbox" WHERE "sequence" IN (
         SELECT "sequence" FROM "outbox" INDEXED BY "outbox_state"
         WHERE "bridgeId" = ? AND "state" = 2 AND "time" < ? ORDER BY "sequence" LIMIT ?)`,
    ),
    oldestDead: file
      .prepare<[string], number>(
        `SELECT "time" FROM "outbox" INDEXED BY "outbox_state"
         WHERE "bridgeId" = ? AND "state" = 2 ORDER BY "sequence" LIMIT 1`,
      )
      .pluck(),
  };
}
