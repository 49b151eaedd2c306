/**
 * What each account has stored, in bytes, and in which order it came. Blocks of some 64 KiB keep the sequence at which they begin,
 * so the oldest arrivals are found without an index of points by arrival. Used inside the writer's transactions.
 */
import type Sqlite from 'better-sqlite3';
import { boundedCache } from '../../sqlite/cache.ts';

/** A block is ended when it has so many bytes. */
const blockBytes = 64 * 1024;
/** Blocks that one sweep of eviction goes over at most. */
const maxBlocks = 5000;
const openKept = 10_000;

interface Block {
  first: number;
  bytes: number;
}

export class Arrivals {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #open = boundedCache<string, Block>(openKept);
  #totals: Map<string, number> | undefined;

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
  }

  /** Notes bytes that an account has stored at `sequence`, which only grows. */
  add(accountId: string, bytes: number, sequence: number): void {
    const { last, keep } = this.#statements;
    const totals = this.#known();
    totals.set(accountId, (totals.get(accountId) ?? 0) + bytes);
    let block = this.#open.get(accountId) ?? last.get(accountId);
    if (!block || block.bytes >= blockBytes) block = { first: sequence, bytes: 0 };
    block.bytes += bytes;
    this.#open.set(accountId, block);
    keep.run(accountId, block.first, block.bytes);
  }

  /** Notes that so many bytes of an account are gone. */
  remove(accountId: string, bytes: number): void {
    const totals = this.#known();
    totals.set(accountId, Math.max(0, (totals.get(accountId) ?? 0) - bytes));
  }

  /** What an account has stored. */
  of(accountId: string): number {
    return this.#known().get(accountId) ?? 0;
  }

  /** The account that has stored most. */
  largest(): { accountId: string; bytes: number } | undefined {
    let most: { accountId: string; bytes: number } | undefined;
    for (const [accountId, bytes] of this.#known()) if (bytes > (most?.bytes ?? 0)) most = { accountId, bytes };
    return most;
  }

  /** The sequence before which about `bytes` of an account have come, its oldest; above its newest when that is not all. */
  boundary(accountId: string, bytes: number): number {
    let sum = 0;
    for (const block of this.#statements.oldest.iterate(accountId, maxBlocks)) {
      if (sum >= bytes) return block.first;
      sum += block.bytes;
    }
    return sum >= bytes
      ? (this.#statements.after.get(accountId, maxBlocks) ?? Number.MAX_SAFE_INTEGER)
      : Number.MAX_SAFE_INTEGER;
  }

  /** The blocks before a sequence have been removed. */
  forgetBefore(accountId: string, before: number): void {
    this.#statements.remove.run(accountId, before);
    this.#open.delete(accountId);
  }

  /** Forgets the changes of this transaction. */
  clear(): void {
    this.#open.clear();
    this.#totals = undefined;
  }

  #known(): Map<string, number> {
    this.#totals ??= new Map(this.#statements.totals.all().map(({ accountId, bytes }) => [accountId, bytes]));
    return this.#totals;
  }
}

function prepare(file: Sqlite.Database) {
  return {
    totals: file.prepare<[], { accountId: string; bytes: number }>('SELECT "accountId", "bytes" FROM "messageCounts"'),
    last: file.prepare<[string], Block>(
      'SELECT "first", "bytes" FROM "arrivals" WHERE "accountId" = ? ORDER BY "first" DESC LIMIT 1',
    ),
    keep: file.prepare<[string, number, number]>(
      'INSERT INTO "arrivals" VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "bytes" = "excluded"."bytes"',
    ),
    oldest: file.prepare<[string, number], Block>(
      'SELECT "first", "bytes" FROM "arrivals" WHERE "accountId" = ? ORDER BY "first" LIMIT ?',
    ),
    after: file
      .prepare<[string, number], number>(
        'SELECT "first" FROM "arrivals" WHERE "accountId" = ? ORDER BY "first" LIMIT 1 OFFSET ?',
      )
      .pluck(),
    remove: file.prepare<[string, number]>('DELETE FROM "arrivals" WHERE "accountId" = ? AND "first" < ?'),
  };
}
