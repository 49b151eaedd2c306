/** The bounds of what is kept (decisions 7): the cap on bytes, and what must stay free on the disk. */

import { statfs } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.js';
import type { Config } from '../config.js';

/** Milliseconds between two looks at the disk. */
const diskInterval = 1000;
/** Milliseconds between two lines of the log about what has been removed. */
const removedInterval = 60_000;
/** Once the cap is passed the oldest go until this much of it is in use; past the second nothing more is taken. */
const evictTo = 31 / 32;
const refuseAt = 9 / 8;
/** What bridges have not delivered may take this much of the cap: the rest stays for points and log entries. */
const outboxShare = 1 / 2;
/** Bytes beyond the reserve that must be free again once it was touched; a sixteenth of a small reserve. */
const roomAgain = 64 * 1024 * 1024;

const diskFull = 'The disk has no more free than SLIPWAY_DISK_RESERVE_BYTES.';
const outgrown =
  'Messages take more than SLIPWAY_MESSAGES_MAX_BYTES, and removing the oldest does not help soon enough.';

const outboxOutgrown = 'What bridges have not delivered takes half of SLIPWAY_MESSAGES_MAX_BYTES.';

type Services = { config: Config; messages: MessageStore; log: Logger };

/** Watches disk and store while the service runs; the store refuses what there is no room for. */
export class Keeping {
  readonly #services: Services;
  /** Bytes; null when the system does not say. */
  diskFree: number | null = null;
  #diskIsFull = false;
  #outgrown = false;
  #outboxOutgrown = false;
  /** What the log has not said yet, and when it may say it. */
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
    if (maxBytes === 0) return;
    this.#outgrown = messages.size > maxBytes * refuseAt;
    this.#tellOutbox(messages.outboxPending > maxBytes * outboxShare);
    this.#tell();
    if (messages.size > maxBytes && !this.#stopped) {
      this.#evicting ??= this.#evict(maxBytes * evictTo).finally(() => {
        this.#evicting = undefined;
      });
    }
  }

  /** A step at a time, each behind the batch that has come meanwhile. Never rejects. */
  async #evict(bytes: number): Promise<void> {
    const { messages, log } = this.#services;
    const before = messages.usage();
    try {
      while (messages.size > bytes && !this.#stopped) if (!(await messages.evictSome(bytes))) break;
      const { points, logs } = messages.usage();
      this.#removed.points += before.points - points;
      this.#removed.logs += before.logs - logs;
      if (performance.now() < this.#sayRemoved) return;
      this.#sayRemoved = performance.now() + removedInterval;
      const removed = this.#removed;
      this.#removed = { points: 0, logs: 0 };
      log.info({ removed, left: { points, logs } }, 'the oldest messages have made room: SLIPWAY_MESSAGES_MAX_BYTES');
    } catch (error) {
      log.error({ err: error }, 'the oldest messages could not be removed');
    }
  }

  #tellOutbox(isOutgrown: boolean): void {
    if (isOutgrown === this.#outboxOutgrown) return;
    this.#outboxOutgrown = isOutgrown;
    const { messages, log } = this.#services;
    messages.setOutboxFull(isOutgrown ? outboxOutgrown : undefined);
    if (isOutgrown)
      log.error({ pending: messages.outboxPending }, `messages of level 2 are refused: ${outboxOutgrown}`);
    else log.warn('messages of level 2 are taken again');
  }

  #tell(): void {
    const { messages, log } = this.#services;
    const reason = this.#diskIsFull ? diskFull : this.#outgrown ? outgrown : undefined;
    if (reason === messages.full?.message) return;
    messages.setFull(reason);
    if (reason === undefined) log.warn('messages are taken again');
    else log.error({ diskFree: this.diskFree, size: messages.size }, `messages are refused: ${reason}`);
  }
}
