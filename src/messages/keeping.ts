/** The bounds of what is kept: the cap on bytes, and what must stay free on the disk. */

import { statfs } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.js';
import type { Config } from '../config.js';

/** Milliseconds between two looks at the disk. */
const diskInterval = 1000;
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
  'The account stores messages faster than they can be removed (SLIPWAY_MESSAGES_MAX_BYTES, SLIPWAY_ACCOUNT_MAX_BYTES).';

const outboxOutgrown =
  'The bridges of the account have not delivered more than its share of half of SLIPWAY_MESSAGES_MAX_BYTES.';

type Services = { config: Config; messages: MessageStore; log: Logger };

/** Watches disk and store while the service runs; the store refuses what there is no room for. */
export class Keeping {
  readonly #services: Services;
  /** Bytes; null when the system does not say. */
  diskFree: number | null = null;
  #diskIsFull = false;
  /** Accounts above their share, while eviction is not fast enough. */
  #refused: ReadonlySet<string> = new Set();
  #refuseAgain = 0;
  /** Accounts whose bridges have more to deliver than the account's share, while all together have too much. */
  #outboxesRefused: ReadonlySet<string> = new Set();
  /** Amounts not logged yet, and the time of the next log line. */
  #removed = { points: 0, logs: 0 };
  #sayRemoved = 0;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  #evicting: Promise<void> | undefined;
  #stopped = false;

  private constructor(services: Services) {
    this.#services = services;
  }

  /** Resolves when it is known whether there is room. */
  static async start(services: Services): Promise<Keeping> {
    const keeping = new Keeping(services);
    await keeping.#lookAtDisk();
    keeping.#lookAtSize();
    services.messages.watchSize(() => keeping.#lookAtSize());
    keeping.#timer = setInterval(() => {
      keeping.#looking ??= keeping.#lookAtDisk().finally(() => {
        keeping.#looking = undefined;
      });
    }, diskInterval);
    keeping.#timer.unref();
    return keeping;
  }

  /** Ends it; what is being removed comes to the end of its step. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await this.#looking;
    await this.#evicting;
  }

  /** Why nothing that grows is taken; undefined while the disk has more free than the reserve. */
  get diskFull(): string | undefined {
    return this.#diskIsFull ? diskFull : undefined;
  }

  async #lookAtDisk(): Promise<void> {
    const { config, log } = this.#services;
    const reserve = config.messages.diskReserveBytes;
    try {
      const { bavail, bsize } = await statfs(config.dataDir);
      this.diskFree = bavail * bsize;
    } catch (error) {
      if (this.diskFree !== null) log.warn({ err: error }, 'what is free on the disk is not known');
      this.diskFree = null;
    }
    const free = this.diskFree ?? Number.POSITIVE_INFINITY;
    this.#diskIsFull = free < reserve + (this.#diskIsFull ? Math.min(roomAgain, reserve / 16) : 0);
    this.#tell();
  }

  #lookAtSize(): void {
    const { config, messages } = this.#services;
    const { maxBytes } = config.messages;
    const accountBytes = config.limits.accountMessagesBytes;
    if (maxBytes > 0) this.#refuseOutboxes(maxBytes * outboxShare);
    const isOver = maxBytes > 0 && messages.size > maxBytes;
    const isAccountOver = accountBytes > 0 && messages.largestAccount > accountBytes;
    this.#refuseAccounts(maxBytes > 0 && messages.size > maxBytes * refuseAt);
    if (this.#stopped || !(isOver || isAccountOver)) return;
    const room = maxBytes > 0 ? maxBytes * (isOver ? evictTo : 1) : Number.MAX_SAFE_INTEGER;
    this.#evicting ??= this.#evict(room, accountBytes * (isAccountOver ? evictTo : 1)).finally(() => {
      this.#evicting = undefined;
    });
  }

  /** While eviction is not fast enough, those above their share are refused, and nobody else. */
  #refuseAccounts(isOutgrown: boolean): void {
    const { config, messages, log } = this.#services;
    const accountBytes = config.limits.accountMessagesBytes;
    const isAccountOutgrown = accountBytes > 0 && messages.largestAccount > accountBytes * refuseAt;
    const wasRefusing = this.#refused.size > 0;
    if (!isOutgrown && !isAccountOutgrown && !wasRefusing) return;
    if (performance.now() < this.#refuseAgain && (isOutgrown || isAccountOutgrown)) return;
    this.#refuseAgain = performance.now() + refusedInterval;
    const stored = [...messages.bytesByAccount()].filter(([, bytes]) => bytes > 0);
    const share = isOutgrown ? config.messages.maxBytes / Math.max(1, stored.length) : Number.POSITIVE_INFINITY;
    const most = Math.min(share, accountBytes > 0 ? accountBytes * refuseAt : Number.POSITIVE_INFINITY);
    this.#refused = new Set(stored.flatMap(([accountId, bytes]) => (bytes > most ? accountId : [])));
    messages.setAccountsFull(this.#refused, outgrown);
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
        if (!(await messages.evictSome(bytes, accountBytes))) break;
      }
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
    const pending = [...messages.outboxPendingByAccount];
    const share = most / Math.max(1, pending.length);
    const above = isOutgrown ? pending.filter(([, bytes]) => bytes > share) : [];
    this.#outboxesRefused = new Set(above.map(([accountId]) => accountId));
    messages.setOutboxesFull(this.#outboxesRefused, outboxOutgrown);
    const refuses = this.#outboxesRefused.size > 0;
    if (refuses && !wasRefusing)
      log.error(
        { accounts: [...this.#outboxesRefused].slice(0, 10), pending: messages.outboxPending },
        `messages of level 2 are refused: ${outboxOutgrown}`,
      );
    if (!refuses && wasRefusing) log.warn('messages of level 2 are taken again');
  }

  #tell(): void {
    const { messages, log } = this.#services;
    const reason = this.#diskIsFull ? diskFull : undefined;
    if (reason === messages.full?.message) return;
    messages.setFull(reason);
    if (reason === undefined) log.warn('messages are taken again');
    else log.error({ diskFree: this.diskFree, size: messages.size }, `messages are refused: ${reason}`);
  }
}
