/** The bounds of what is kept: the cap on bytes, and what must stay free on the disk. */

import { statfs } from 'node:fs/promises';
import type { Logger } from 'pino';
import { aboveShare } from '../../db/messages/series/shares.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import type { Config } from '../core/config.ts';
import { PlatformError } from '../core/errors.ts';
import { joinRun } from '../core/scheduler/runs.ts';
import type { Readers } from '../core/threads/readers.ts';
import { DiskShare } from './disk-share.ts';

/** Milliseconds between two looks at the disk. */
const diskInterval = 1000;
/** A look at what the accounts take rests for so many times as long as it has taken. */
const restAfterLook = 20;
/** Milliseconds between two looks at which accounts are above their share. */
const refusedInterval = 100;
/** Milliseconds between two lines of the log about what has been removed. */
const removedInterval = 60_000;
/** Beyond the cap messages are removed until this much of it is in use; beyond the second, accounts above their share are refused. */
const evictTo = 31 / 32;
const refuseAt = 9 / 8;
/** The part of the cap for pending messages of bridges: the rest stays for points and log entries. */
const outboxShare = 1 / 2;
/** Bytes beyond the reserve that must be free again once it was touched; a sixteenth of a small reserve. */
const roomAgain = 64 * 1024 * 1024;

const diskFull = 'The disk has no more free than SLIPWAY_DISK_RESERVE_BYTES.';
const outgrown =
  'The account keeps more than its share of the messages, and not enough of it can be removed (SLIPWAY_MESSAGES_MAX_BYTES, SLIPWAY_ACCOUNT_MAX_BYTES).';

const outboxOutgrown =
  'The bridges of the account have not delivered more than its share of half of SLIPWAY_MESSAGES_MAX_BYTES.';

type Services = {
  config: Config;
  messages: MessageStore;
  registry: Pick<Registry, 'query'>;
  readers: Readers;
  log: Logger;
  /** Bytes that are free on the disk of the data directory. */
  freeOnDisk?: (() => Promise<number>) | undefined;
};

/** Watches disk and store while the service runs; the store refuses what there is no room for. */
export class Keeping {
  readonly #services: Services;
  readonly share: DiskShare;
  #lookAgain = 0;
  /** Bytes; null when the system does not say. */
  diskFree: number | null = null;
  #diskIsFull = false;
  /** Accounts above their share of the cap, while eviction does not make enough room. */
  #refused: ReadonlySet<string> = new Set();
  #refuseAgain = 0;
  /** Nothing more can be removed, and the cap is exceeded. */
  #isStuck = false;
  /** Accounts whose bridges have more to deliver than the account's share, while all together have too much. */
  #outboxesRefused: ReadonlySet<string> = new Set();
  /** Amounts not logged yet, and the time of the next log line. */
  #removed = { points: 0, logs: 0 };
  #sayRemoved = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #runs = new Map<'disk' | 'shares' | 'refusals' | 'eviction', Promise<void>>();
  #stopped = false;

  private constructor(services: Services) {
    this.#services = services;
    this.share = new DiskShare(services);
  }

  /** Resolves when it is known whether there is room. */
  static async start(services: Services): Promise<Keeping> {
    const keeping = new Keeping(services);
    await keeping.#lookAtDisk();
    await keeping.#runs.get('shares');
    keeping.#lookAtSize();
    services.messages.watchSize(() => keeping.#lookAtSize());
    keeping.#timer = setInterval(() => void joinRun(keeping.#runs, 'disk', () => keeping.#lookAtDisk()), diskInterval);
    keeping.#timer.unref();
    return keeping;
  }

  /** Ends it; what is being removed comes to the end of its step. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await this.#runs.get('disk');
    await Promise.all(this.#runs.values());
  }

  /** Why nothing that grows is taken; undefined while the disk has more free than the reserve. */
  get diskFull(): string | undefined {
    return this.#diskIsFull ? diskFull : undefined;
  }

  /** Why nothing of an account is taken that makes a database or its firmware grow by `bytes`; undefined while there is room. */
  refusal(accountId: string, bytes = 0): string | undefined {
    const isFull = this.diskFree !== null && this.diskFree - bytes < this.#services.config.messages.diskReserveBytes;
    return isFull || this.#diskIsFull ? diskFull : this.share.refusal(accountId, bytes);
  }

  /** @throws PlatformError 507 with the refusal. */
  demandRoom(accountId: string, bytes = 0): void {
    const message = this.refusal(accountId, bytes);
    if (message !== undefined) throw new PlatformError('storeFull', { details: [{ message }] });
  }

  async #lookAtDisk(): Promise<void> {
    const { config, log, freeOnDisk = () => freeOn(config.dataDir) } = this.#services;
    const reserve = config.messages.diskReserveBytes;
    try {
      this.diskFree = await freeOnDisk();
    } catch (error) {
      if (this.diskFree !== null) log.warn({ err: error }, 'what is free on the disk is not known');
      this.diskFree = null;
    }
    const free = this.diskFree ?? Number.POSITIVE_INFINITY;
    this.#diskIsFull = free < reserve + (this.#diskIsFull ? Math.min(roomAgain, reserve / 16) : 0);
    this.#reportDisk();
    const { unused } = this.#services.messages;
    // Not awaited: with many accounts it waits for a thread, and the disk fills meanwhile.
    const left = this.diskFree === null ? null : this.diskFree + unused - reserve;
    void joinRun(this.#runs, 'shares', () => this.#lookAtShares(left));
  }

  async #lookAtShares(free: number | null): Promise<void> {
    const from = performance.now();
    if (from < this.#lookAgain) return;
    try {
      await this.share.measureAccounts(free);
    } catch (error) {
      this.#services.log.error({ err: error }, 'what the accounts take on the disk is not known');
    }
    const now = performance.now();
    this.#lookAgain = now + restAfterLook * (now - from) - diskInterval;
    this.#tellAccounts();
  }

  /** Who is refused, and why. */
  #tellAccounts(): void {
    const reasons = new Map<string, string>();
    for (const accountId of this.#refused) reasons.set(accountId, outgrown);
    for (const accountId of this.share.above) reasons.set(accountId, this.share.refusal(accountId) ?? outgrown);
    this.#services.messages.setAccountsFull(reasons);
  }

  #lookAtSize(): void {
    const { config, messages } = this.#services;
    const { maxBytes } = config.messages;
    const accountBytes = config.limits.accountMessagesBytes;
    if (maxBytes > 0) this.#refuseOutboxes(maxBytes * outboxShare);
    const isOver = maxBytes > 0 && messages.size > maxBytes;
    const isAccountOver = accountBytes > 0 && messages.largestAccount > accountBytes;
    if (!isOver) this.#isStuck = false;
    void joinRun(this.#runs, 'refusals', () =>
      this.#refuseAccounts().catch((error) =>
        this.#services.log.error({ err: error }, 'who is above its share of the cap is not known'),
      ),
    );
    if (this.#stopped || !(isOver || isAccountOver)) return;
    const room = maxBytes > 0 ? maxBytes * (isOver ? evictTo : 1) : Number.MAX_SAFE_INTEGER;
    void joinRun(this.#runs, 'eviction', () => this.#evict(room, accountBytes * (isAccountOver ? evictTo : 1)));
  }

  /** Whether eviction does not make enough room below the cap. */
  get #isOutgrown(): boolean {
    const { config, messages } = this.#services;
    const { maxBytes } = config.messages;
    return maxBytes > 0 && (this.#isStuck || messages.size > maxBytes * refuseAt);
  }

  /** While eviction does not make enough room, those above their share are refused, and nobody else. */
  async #refuseAccounts(): Promise<void> {
    const { config, messages, log } = this.#services;
    const accountBytes = config.limits.accountMessagesBytes;
    const isAccountOutgrown = accountBytes > 0 && messages.largestAccount > accountBytes * refuseAt;
    const wasRefusing = this.#refused.size > 0;
    const isOutgrown = this.#isOutgrown;
    if (this.#stopped || (!isOutgrown && !isAccountOutgrown && !wasRefusing)) return;
    if (performance.now() < this.#refuseAgain && (isOutgrown || isAccountOutgrown)) return;
    this.#refuseAgain = performance.now() + refusedInterval;
    const ofCap = isOutgrown ? await messages.accountsAbove(config.messages.maxBytes) : [];
    const ofAccount = isAccountOutgrown ? messages.storedAbove(accountBytes * refuseAt) : [];
    // There may be room again by now.
    const above = this.#isOutgrown ? ofCap.map(({ accountId }) => accountId) : [];
    this.#refused = new Set([...above, ...ofAccount]);
    this.#tellAccounts();
    const refuses = this.#refused.size > 0;
    if (refuses && !wasRefusing)
      log.error({ accounts: [...this.#refused].slice(0, 10) }, `messages of accounts are refused: ${outgrown}`);
    if (!refuses && wasRefusing) log.warn('messages of all accounts are taken again');
  }

  /** A step at a time, each behind the batch that has come meanwhile. Never rejects. */
  async #evict(bytes: number, accountBytes: number): Promise<void> {
    const { messages, log } = this.#services;
    const before = messages.usage();
    try {
      while (!this.#stopped) {
        if (messages.size <= bytes && (accountBytes === 0 || messages.largestAccount <= accountBytes)) break;
        if (await messages.evictSome(bytes, accountBytes)) continue;
        // Not while an account is copied elsewhere: then nothing is removed.
        this.#isStuck = bytes < messages.size && !messages.touched.isWatching;
        break;
      }
      if (this.#isStuck) this.#lookAtSize();
      const { points, logs } = messages.usage();
      this.#removed.points += before.points - points;
      this.#removed.logs += before.logs - logs;
      if (performance.now() < this.#sayRemoved) return;
      this.#sayRemoved = performance.now() + removedInterval;
      const removed = this.#removed;
      this.#removed = { points: 0, logs: 0 };
      log.info(
        { removed, left: { points, logs } },
        'messages have been removed to make room: SLIPWAY_MESSAGES_MAX_BYTES',
      );
    } catch (error) {
      log.error({ err: error }, 'no room could be made for messages');
    }
  }

  /** While bridges have more than `most` bytes to deliver, accounts above their share of it are refused, and nobody else. */
  #refuseOutboxes(most: number): void {
    const { messages, log } = this.#services;
    const wasRefusing = this.#outboxesRefused.size > 0;
    const isOutgrown = messages.outboxPending > most;
    if (!isOutgrown && !wasRefusing) return;
    const pending = Array.from(messages.outboxPendingByAccount, ([accountId, bytes]) => ({ accountId, bytes }));
    const above = isOutgrown ? aboveShare(pending, { size: messages.outboxPending, room: most }) : [];
    this.#outboxesRefused = new Set(above.map(({ accountId }) => accountId));
    messages.setOutboxesFull(this.#outboxesRefused, outboxOutgrown);
    const refuses = this.#outboxesRefused.size > 0;
    if (refuses && !wasRefusing)
      log.error(
        { accounts: [...this.#outboxesRefused].slice(0, 10), pending: messages.outboxPending },
        `messages of level 2 are refused: ${outboxOutgrown}`,
      );
    if (!refuses && wasRefusing) log.warn('messages of level 2 are taken again');
  }

  #reportDisk(): void {
    const { messages, log } = this.#services;
    if (this.#diskIsFull === (messages.full !== undefined)) return;
    messages.setFull(this.#diskIsFull ? diskFull : undefined);
    if (!this.#diskIsFull) log.warn('messages are taken again');
    else log.error({ diskFree: this.diskFree, size: messages.size }, `messages are refused: ${diskFull}`);
  }
}

async function freeOn(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}
