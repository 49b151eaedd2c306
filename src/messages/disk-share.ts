/** How much of the disk an account may take while there is another one, and which accounts have taken it. */
import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import { amountsOfAccount, registryBytes } from '../core/limits/kept.ts';
import type { Readers } from '../core/threads/readers.ts';

/** Of what is free above the reserve and of what all accounts take. */
const part = 1 / 2;
/** The log, and its usage, name an account that takes so much of its share, and again once it has taken less than the second in between. */
const warned = { from: 0.8, until: 0.75 };
/** An account is refused all that grows from the first part of its share on, until it takes less than the second. */
const refused = { from: 31 / 32, until: 15 / 16 };

const reason =
  'The account has taken its share of the disk: half of what is free above SLIPWAY_DISK_RESERVE_BYTES and of what all accounts take.';

type Services = {
  registry: Pick<Registry, 'query'>;
  readers: Readers;
  messages: Pick<MessageStore, 'heldByAccount' | 'promised'>;
  log: Logger;
};

/** Rows that the event loop looks at: some 15 milliseconds. */
const maxRowsOnLoop = 10_000;
/** What is read on nobody's behalf. */
const ofService = { accountId: '', callerId: '' };

export class DiskShare {
  readonly #services: Services;
  #taken: ReadonlyMap<string, number> = new Map();
  #bytes: number | null = null;
  /** Accounts above their share, and those that the log has named. */
  #above: ReadonlySet<string> = new Set();
  #named: ReadonlySet<string> = new Set();

  constructor(services: Services) {
    this.#services = services;
  }

  /** The share of each account, in bytes on disk; null while there is one account, or nobody knows what is free. */
  get bytes(): number | null {
    return this.#bytes;
  }

  /** What an account takes of its share, in whole percent; null while that is too little for the log to name it. */
  percentOf(accountId: string): number | null {
    if (this.#bytes === null || !this.#named.has(accountId)) return null;
    return Math.min(100, Math.floor((100 * this.takenBy(accountId)) / this.#bytes));
  }

  /** What an account takes in both databases and as firmware, in bytes on disk, about. */
  takenBy(accountId: string): number {
    return this.#taken.get(accountId) ?? 0;
  }

  /** The most that any account takes. */
  get highest(): number {
    return [...this.#taken.values()].reduce((most, bytes) => Math.max(most, bytes), 0);
  }

  /** Accounts of which nothing is taken that grows. */
  get above(): ReadonlySet<string> {
    return this.#above;
  }

  /** Why an account gets no `bytes` more; undefined while it may. */
  refusal(accountId: string, bytes = 0): string | undefined {
    const isAbove = this.#above.has(accountId) || this.#services.messages.promised.refused.has(accountId);
    const isFull = isAbove || (this.#bytes !== null && this.takenBy(accountId) + bytes > this.#bytes);
    return isFull ? reason : undefined;
  }

  /** Looks at what all accounts take. `free` is what the disk has above the reserve; null when nobody knows. */
  async measureAccounts(free: number | null): Promise<void> {
    const { registry, readers, messages } = this.#services;
    const amounts = registryBytes(registry.query);
    messages.promised.beginLook();
    const areFew = this.#taken.size * amountsOfAccount <= maxRowsOnLoop;
    const [accounts, inRegistry, inMessages] = await Promise.all([
      registry.query.selectFrom('accounts').select('id').limit(2).execute(),
      areFew ? amounts.execute() : readers.read(ofService, amounts.compile()),
      messages.heldByAccount(),
    ]);
    const taken = new Map(inRegistry.map(({ accountId, bytes }) => [accountId, bytes]));
    for (const { accountId, bytes } of inMessages) taken.set(accountId, (taken.get(accountId) ?? 0) + bytes);
    const all = [...taken.values()].reduce((sum, bytes) => sum + bytes, 0);
    this.#taken = taken;
    this.#bytes = accounts.length > 1 && free !== null ? Math.floor((Math.max(0, free) + all) * part) : null;
    this.#decide();
    const { bytes: share } = this;
    messages.promised.endLook(share === null ? undefined : { of: (id) => share - this.takenBy(id), reason });
  }

  #decide(): void {
    const { log, messages } = this.#services;
    const share = this.#bytes ?? Number.POSITIVE_INFINITY;
    const [above, named] = [new Set<string>(), new Set<string>()];
    for (const [accountId, bytes] of this.#taken) {
      const about = { accountId, bytes, share };
      const [wasAbove, wasNamed] = [this.#above.has(accountId), this.#named.has(accountId)];
      const isRefused = messages.promised.refused.has(accountId);
      if (isRefused || bytes > share * (wasAbove ? refused.until : refused.from)) above.add(accountId);
      if (bytes > share * (wasNamed ? warned.until : warned.from)) named.add(accountId);
      if (named.has(accountId) && !wasNamed)
        log.warn(about, `an account takes ${warned.from * 100} % of its share of the disk`);
      if (above.has(accountId) && !wasAbove)
        log.error(about, 'an account is refused: it has taken its share of the disk');
      if (wasAbove && !above.has(accountId)) log.warn(about, 'an account is not refused any more');
    }
    this.#above = above;
    this.#named = named;
  }
}
