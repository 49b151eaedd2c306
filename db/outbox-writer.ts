/** Writes changes of the outbox; part of the worker of messages.db, inside its transactions. */
import type Sqlite from 'better-sqlite3';
import { type OutboxChange, type OutboxMessage, outboxStates } from './outbox.js';

export class OutboxWriter {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
  }

  /** `next` gives the place of a new row. */
  write(change: OutboxChange, next: () => number): void {
    const { add, move, remove } = this.#statements;
    if (change.kind === 'add') {
      for (const bridgeId of change.bridgeIds) add.run({ ...change.message, bridgeId, sequence: next() });
      return;
    }
    const from = outboxStates[change.from];
    for (const sequence of change.sequences) {
      if (change.kind === 'remove') remove.run(sequence, from);
      else move.run(outboxStates[change.to], change.time, change.reason, sequence, from);
    }
  }
}

function prepare(file: Sqlite.Database) {
  return {
    add: file.prepare<[OutboxMessage & { bridgeId: string; sequence: number }]>(
      `INSERT INTO "outbox" VALUES (@sequence, @bridgeId, 0, @time, @id, @deviceId, @organizationId, @deviceTemplateId,
       @channel, @qos, @time, NULL, @payload)`,
    ),
    move: file.prepare<[number, number, string | null, number, number]>(
      'UPDATE "outbox" SET "state" = ?, "since" = ?, "reason" = ? WHERE "sequence" = ? AND "state" = ?',
    ),
    remove: file.prepare<[number, number]>('DELETE FROM "outbox" WHERE "sequence" = ? AND "state" = ?'),
  };
}
