/** When login sessions were last used: at once in memory, half a minute later in the registry. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.ts';
import { rowsOf } from '../../../db/registry/statement.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { Clock } from '../../clock.ts';
import type { Moves } from '../../moves.ts';

/** Uses that are remembered, and those that may wait to be written. Of others the registry knows an earlier time. */
const maxKept = 100_000;
/** Milliseconds between two writes, and between two uses of a session that are told apart. */
const writeInterval = 30_000;
const grain = 1000;
/** Sessions in one transaction, so that other writers get their turn. */
const sessionsPerWrite = 500;

const setUses = `UPDATE "sessions" SET "lastUsed" = "uses"."value"
  FROM json_each(?) AS "uses" WHERE "sessions"."id" = "uses"."key"`;

export class SessionUses {
  readonly #ctx: { registry: Registry; clock: Clock; log: Logger; moves: Pick<Moves, 'isAway'> };
  /** Milliseconds since 1970, by session. */
  readonly #last = boundedCache<string, number>(maxKept);
  readonly #unwritten = new Map<string, { accountId: string; time: number }>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(ctx: { registry: Registry; clock: Clock; log: Logger; moves: Pick<Moves, 'isAway'> }) {
    this.#ctx = ctx;
  }

  /** The session has been used now. Called for every packet of some connections: it costs a look into memory. */
  note(id: string, accountId: string): void {
    const time = this.#ctx.clock.now();
    const before = this.#last.get(id);
    if (before !== undefined && time - before >= 0 && time - before < grain) return;
    this.#last.set(id, time);
    if (this.#unwritten.size >= maxKept && !this.#unwritten.has(id)) return;
    this.#unwritten.set(id, { accountId, time });
    this.#timer ??= setTimeout(() => this.#writeSoon(), writeInterval).unref();
  }

  /** When a session was last used, in milliseconds since 1970; after a crash up to half a minute too early. */
  lastOf({ id, lastUsed }: { id: string; lastUsed: string | null }): number {
    return this.#last.get(id) ?? (lastUsed === null ? 0 : Date.parse(lastUsed));
  }

  /** Writes what has not been written yet, for the last time. */
  async close(): Promise<void> {
    this.#writeSoon();
    await this.#writing;
    clearTimeout(this.#timer);
  }

  #writeSoon(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#writing = this.#writing.then(() => this.#write());
  }

  /** Never rejects. What could not be written is written after the next use: until then the registry has an earlier time. */
  async #write(): Promise<void> {
    const { registry, log, moves } = this.#ctx;
    const uses = [...this.#unwritten];
    this.#unwritten.clear();
    try {
      for (let from = 0; from < uses.length; from += sessionsPerWrite) {
        const share = uses.slice(from, from + sessionsPerWrite).filter(([, { accountId }]) => !moves.isAway(accountId));
        const times = share.map(([id, { time }]) => [id, new Date(time).toISOString()]);
        if (times.length === 0) continue;
        const value = JSON.stringify(Object.fromEntries(times));
        await registry.transaction((tx) => rowsOf(tx, setUses, [value]));
      }
    } catch (error) {
      log.error({ err: error, sessions: uses.length }, 'the last uses of sessions could not be written');
    }
  }
}
