/** Writes changes of the outbox; part of the worker of messages.db, inside its transactions. */
import type Sqlite from 'better-sqlite3';
import { outboxSize } from '../../migrations/row-sizes.ts';
import { type AccountBytes, type AmountRow, OutboxAmounts } from './amounts.ts';
import { type OutboxChange, type OutboxMessage, outboxStates } from './rows.ts';

/** Rows that are removed at once to make room; each may hold a payload of the largest size. */
const rowsAtOnce = 64;
/** What a row takes, as triggers count it for its account. */
const size = `(${outboxSize('')})`;

/** A row that has changed: whose it was, and how large. */
interface Changed {
  bridgeId: string;
  bytes: number;
}

export class OutboxWriter {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #amounts: OutboxAmounts;

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
    this.#amounts = new OutboxAmounts(this.#statements.amounts.all());
  }

  /** Bytes that are pending, and so cannot make room. */
  get pendingBytes(): number {
    return this.#amounts.pendingBytes;
  }

  /** The same by account. */
  pending(): AccountBytes[] {
    return this.#amounts.pending();
  }

  /** The transaction is on disk: the accounts whose pending bytes are others now. */
  committed(): AccountBytes[] {
    return this.#amounts.committed();
  }

  rolledBack(): void {
    this.#amounts.rolledBack();
  }

  /** `next` gives the place of a new row. */
  write(change: OutboxChange, next: () => number): void {
    const { add, move, remove } = this.#statements;
    if (change.kind === 'add') {
      const { accountId, message, bridgeIds } = change;
      for (const bridgeId of bridgeIds) {
        const pending = add.get({ ...message, accountId, bridgeId, sequence: next() }) ?? 0;
        this.#amounts.add(bridgeId, { pending }, accountId);
      }
      return;
    }
    if (change.kind === 'take') {
      const { row } = change;
      const bytes = this.#statements.take.get({ ...row, sequence: next() }) ?? 0;
      this.#amounts.add(row.bridgeId, row.state === 0 ? { pending: bytes } : { kept: bytes }, row.accountId);
      return;
    }
    if (change.kind === 'forget') {
      for (const bridgeId of change.bridgeIds)
        for (const state of Object.values(outboxStates)) {
          const bytes = this.#statements.forget.all(bridgeId, state).reduce((sum, one) => sum + one, 0);
          this.#amounts.add(bridgeId, state === 0 ? { pending: -bytes } : { kept: -bytes });
        }
      return;
    }
    const from = outboxStates[change.from];
    for (const sequence of change.sequences) {
      const changed =
        change.kind === 'remove'
          ? remove.get(sequence, from)
          : move.get(outboxStates[change.to], change.time, change.reason, sequence, from);
      if (!changed) continue;
      const { bridgeId, bytes } = changed;
      this.#amounts.add(bridgeId, change.from === 'pending' ? { pending: -bytes } : { kept: -bytes });
      if (change.kind === 'move')
        this.#amounts.add(bridgeId, change.to === 'pending' ? { pending: bytes } : { kept: bytes });
    }
  }

  /** Whether an account has something that is kept only to be replayed or read. */
  keeps(accountId: string): boolean {
    return this.#amounts.largestOf(accountId) !== undefined;
  }

  /** Removes some of that: what was delivered first, then dead letters, each the oldest. How many bytes. */
  evictSome(accountId: string): number {
    const { evict } = this.#statements;
    const next = () => this.#amounts.largestOf(accountId);
    for (let bridgeId = next(); bridgeId !== undefined; bridgeId = next()) {
      for (const state of [outboxStates.delivered, outboxStates.dead]) {
        const bytes = evict.all(bridgeId, state, rowsAtOnce).reduce((sum, one) => sum + one, 0);
        if (bytes === 0) continue;
        this.#amounts.add(bridgeId, { kept: -bytes });
        return bytes;
      }
      this.#amounts.keepsNothing(bridgeId);
    }
    return 0;
  }
}

function prepare(file: Sqlite.Database) {
  const changed = `"bridgeId", ${size} AS "bytes"`;
  return {
    add: file
      .prepare<[OutboxMessage & { accountId: string; bridgeId: string; sequence: number }], number>(
        `INSERT INTO "outbox" VALUES (@sequence, @bridgeId, 0, @time, @id, @deviceId, @organizationId, @deviceTemplateId,
         @channel, @qos, @time, NULL, @payload, @accountId, @properties, @expires) RETURNING ${size}`,
      )
      .pluck(),
    take: file
      .prepare<[Extract<OutboxChange, { kind: 'take' }>['row'] & { sequence: number }], number>(
        `INSERT INTO "outbox" VALUES (@sequence, @bridgeId, @state, @since, @id, @deviceId, @organizationId, @deviceTemplateId,
         @channel, @qos, @time, @reason, @payload, @accountId, @properties, @expires) RETURNING ${size}`,
      )
      .pluck(),
    forget: file
      .prepare<[string, number], number>(`DELETE FROM "outbox" WHERE "bridgeId" = ? AND "state" = ? RETURNING ${size}`)
      .pluck(),
    move: file.prepare<[number, number, string | null, number, number], Changed>(
      `UPDATE "outbox" SET "state" = ?, "since" = ?, "reason" = ? WHERE "sequence" = ? AND "state" = ? RETURNING ${changed}`,
    ),
    remove: file.prepare<[number, number], Changed>(
      `DELETE FROM "outbox" WHERE "sequence" = ? AND "state" = ? RETURNING ${changed}`,
    ),
    amounts: file.prepare<[], AmountRow>(
      `SELECT "bridgeId", max("accountId") AS "accountId",
         coalesce(sum(${size}) FILTER (WHERE "state" = 0), 0) AS "pending",
         coalesce(sum(${size}) FILTER (WHERE "state" <> 0), 0) AS "kept"
       FROM "outbox" GROUP BY "bridgeId"`,
    ),
    evict: file
      .prepare<[string, number, number], number>(
        `DELETE FROM "outbox" WHERE "sequence" IN (
           SELECT "sequence" FROM "outbox" INDEXED BY "outbox_state"
           WHERE "bridgeId" = ? AND "state" = ? ORDER BY "sequence" LIMIT ?) RETURNING ${size}`,
      )
      .pluck(),
  };
}
