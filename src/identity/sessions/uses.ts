/** When login sessions and tokens were last used: at once in memory, within half a minute in the registry. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.ts';
import { rowsOf } from '../../../db/registry/statement.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Clock } from '../../core/clock.ts';
import { type Entry, Gathered } from '../../core/limits/gathered.ts';
import { networkOf } from '../../core/limits/networks.ts';

/** Uses that are remembered, and those that may wait to be written. Of others the registry knows an earlier time. */
const maxKept = 100_000;
/** Milliseconds between two writes, and between two uses of a session that are told apart. */
const writeInterval = 30_000;
const grain = 1000;
/** Milliseconds until what could not be written is tried again. */
const retryDelay = 2000;
/** Sessions in one transaction, so that other writers get their turn. */
const sessionsPerWrite = 500;

const setUses = `UPDATE "sessions" SET "lastUsed" = "uses"."value" ->> 'time'
  FROM json_each(?) AS "uses" WHERE "sessions"."id" = "uses"."key"`;
const setTokenUses = `UPDATE "accessTokens" SET "lastUsed" = "uses"."value" ->> 'time',
    "lastAddress" = coalesce("uses"."value" ->> 'network', "lastAddress")
  FROM json_each(?) AS "uses" WHERE "accessTokens"."id" = "uses"."key"`;

/** Milliseconds since 1970, and the network, where it is known. */
interface Use {
  time: number;
  network: string | undefined;
}

export class SessionUses {
  readonly #ctx: { registry: Registry; clock: Clock; log: Logger; gate: Pick<AccountGate, 'isAway'> };
  readonly #last = boundedCache<string, Use>(maxKept);
  readonly #unwritten = new Gathered<Use>({
    ...{ interval: writeInterval, atOnce: sessionsPerWrite, most: maxKept },
    write: (entries) => this.#write(entries),
  });
  #closing = false;

  constructor(ctx: { registry: Registry; clock: Clock; log: Logger; gate: Pick<AccountGate, 'isAway'> }) {
    this.#ctx = ctx;
  }

  /** The session has been used now. Called for every packet of some connections: it costs a look into memory. */
  noteUse(id: string, accountId: string, address?: string): void {
    const time = this.#ctx.clock.now();
    const before = this.#last.get(id)?.time;
    if (before !== undefined && time - before >= 0 && time - before < grain) return;
    const use = { time, network: address === undefined ? undefined : networkOf(address) };
    this.#last.set(id, use);
    this.#unwritten.putValue(accountId, id, use);
  }

  /** When a session was last used, in milliseconds since 1970; after a crash up to half a minute too early. */
  lastOf({ id, lastUsed }: { id: string; lastUsed: string | null }): number {
    return this.#last.get(id)?.time ?? (lastUsed === null ? 0 : Date.parse(lastUsed));
  }

  /** The last use of a token: as it is remembered, or as it is stored. */
  useOf({ id, lastUsed, lastAddress }: { id: string; lastUsed: string | null; lastAddress: string | null }) {
    const use = this.#last.get(id);
    if (!use) return { lastUsed, lastAddress };
    return { lastUsed: new Date(use.time).toISOString(), lastAddress: use.network ?? lastAddress };
  }

  /** Writes what has not been written yet, for the last time. */
  async close(): Promise<void> {
    this.#closing = true;
    await this.#unwritten.flush();
  }

  /** Never rejects. */
  async #write(entries: ReadonlyArray<Entry<Use>>): Promise<void> {
    const { registry, log, gate } = this.#ctx;
    const here = entries.filter(({ accountId }) => !gate.isAway(accountId));
    if (here.length === 0) return;
    const uses = here.map(({ key, value }) => [key, { ...value, time: new Date(value.time).toISOString() }]);
    const text = JSON.stringify(Object.fromEntries(uses));
    try {
      await registry.transaction(async (tx) => {
        await rowsOf(tx, setUses, [text]);
        await rowsOf(tx, setTokenUses, [text]);
      });
    } catch (error) {
      log.error({ err: error, sessions: here.length }, 'the last uses of sessions could not be written');
      if (!this.#closing) this.#unwritten.putBack(here, retryDelay);
    }
  }
}
