import { commitAsHolder } from '../files/lock.ts';
import { Commits } from './commits.ts';
import { FairLanes, type Lane } from './fair-lanes.ts';
import { Slices } from './slices.ts';
import type { StatementCache } from './statements.ts';

/** How many transactions share one commit, and for how long (milliseconds) it may be held open for more. */
const groupSize = 256;
const groupAge = 10;
/** Milliseconds of an ordinary transaction, and those that a lane may take in one turn. */
const ordinary = 0.2;
const quantum = 1;
/** What is written on nobody's behalf. */
const ofService: Lane = { accountId: '', callerId: '' };

/** Waits for the commit that makes the transactions of one group durable. */
class Group {
  readonly begun = Date.now();
  size = 0;
  isWatched = false;
  readonly durable: Promise<void>;
  succeed!: () => void;
  fail!: (error: unknown) => void;

  constructor() {
    this.durable = new Promise((resolve, reject) => {
      this.succeed = resolve;
      this.fail = reject;
    });
    // Every member awaits this itself; without members nobody needs to hear of it.
    this.durable.catch(() => {});
  }
}

/**
 * The one writer. Accounts take turns, then the callers of each, by the time that their transactions take; and after a few
 * milliseconds of transactions the event loop goes round. Those that come one after another share a commit (each in a
 * savepoint of its own), so that many small writes cost one fsync, and none returns before it is on disk.
 */
export class Writer {
  /** Those of long transactions as well. */
  readonly commits = new Commits();
  readonly #lanes = new FairLanes<() => void>(quantum);
  readonly #slices = new Slices();
  #busy = false;
  /** Whose turn it is, and since when. */
  #holder = ofService;
  #since = 0;
  #group: Group | undefined;

  readonly statements: StatementCache;
  readonly fence?: { check(): void };
  readonly laneNow: () => Lane | undefined;

  /**
   * Before and after each commit `fence` says whether this process still holds the directory. `laneNow` says on whose behalf
   * a transaction begins; undefined for the service itself.
   */
  constructor(
    statements: StatementCache,
    fence?: { check(): void },
    laneNow: () => Lane | undefined = () => undefined,
  ) {
    this.statements = statements;
    this.fence = fence;
    this.laneNow = laneNow;
  }

  /** Transactions that wait for their turn. */
  get waiting(): number {
    return this.#lanes.size;
  }

  async begin(): Promise<void> {
    await this.#turn();
    try {
      if (!this.#group) {
        this.#run('BEGIN IMMEDIATE');
        this.#group = new Group();
      }
      this.#run('SAVEPOINT member');
    } catch (error) {
      this.#next();
      throw error;
    }
  }

  /** Keeps the member's work and returns when the whole group is on disk. */
  commit(): Promise<void> {
    const group = this.#group as Group;
    try {
      this.#run('RELEASE member');
    } catch (error) {
      this.#abandon(error);
      this.#next();
      return Promise.reject(error);
    }
    group.size += 1;
    this.#next();
    return group.durable;
  }

  rollback(): void {
    try {
      this.#run('ROLLBACK TO member');
      this.#run('RELEASE member');
    } catch (error) {
      // SQLite itself ended the transaction (disk full, I/O error): nobody in the group has been kept.
      this.#abandon(error);
    }
    this.#next();
  }

  /** Waits for a turn and gives it away to another connection: nothing of ours is open until the answer is called. */
  async lend(): Promise<() => void> {
    await this.#turn();
    this.#commitGroup();
    // The commit of others takes nothing of this turn.
    this.#since = performance.now();
    return () => this.#next();
  }

  /** Commits what changes nothing, in a turn of its own; no other program is waited for, because the event loop would stand. */
  async prove(): Promise<void> {
    const giveBack = await this.lend();
    const { file } = this.statements;
    const patience = file.pragma('busy_timeout', { simple: true });
    try {
      file.pragma('busy_timeout = 0');
      commitAsHolder(this.fence, () => {
        const from = performance.now();
        file.exec('UPDATE "migrations" SET "applied" = "applied"');
        this.commits.succeeded(performance.now() - from);
      });
    } catch (error) {
      this.commits.failed(error);
      throw error;
    } finally {
      file.pragma(`busy_timeout = ${patience}`);
      giveBack();
    }
  }

  /** Commits what is open; used at close. */
  flush(): void {
    if (!this.#busy) this.#commitGroup();
  }

  /** Resolves when it is the turn of its lane. */
  async #turn(): Promise<void> {
    const lane = this.laneNow() ?? ofService;
    if (this.#busy || this.#slices.isUsedUp)
      await new Promise<void>((resolve) => {
        this.#lanes.push(lane, ordinary, resolve);
        if (!this.#busy) this.#passOn();
      });
    this.#busy = true;
    this.#slices.begin();
    this.#holder = lane;
    this.#since = performance.now();
  }

  #next(): void {
    // Before the commit, which is for all of the group.
    this.#lanes.charge(this.#holder, Math.max(0, performance.now() - this.#since - ordinary));
    const group = this.#group;
    if (group && (group.size >= groupSize || Date.now() - group.begun >= groupAge)) this.#commitGroup();
    if (this.#lanes.size > 0) {
      this.#passOn();
      return;
    }
    this.#busy = false;
    if (group && !group.isWatched) this.#watch(group);
  }

  /** Gives the turn to the next that waits: at once, or when the event loop has gone round. */
  #passOn(): void {
    this.#busy = true;
    const next = () => this.#lanes.shift()?.();
    if (this.#slices.isUsedUp) setImmediate(next);
    else next();
  }

  /**
   * Commits a group after a turn of the event loop in which nobody joined it: requests that are on their way share the
   * commit, and one that is alone waits for nobody.
   */
  #watch(group: Group): void {
    group.isWatched = true;
    const { size } = group;
    setImmediate(() => {
      group.isWatched = false;
      if (this.#busy || this.#group !== group) return;
      if (group.size > size && Date.now() - group.begun < groupAge) this.#watch(group);
      else this.#commitGroup();
    });
  }

  #commitGroup(): void {
    const group = this.#group;
    if (!group) return;
    this.#group = undefined;
    try {
      commitAsHolder(this.fence, () => {
        const from = performance.now();
        this.#run('COMMIT');
        this.commits.succeeded(performance.now() - from);
      });
      group.succeed();
    } catch (error) {
      this.commits.failed(error);
      group.fail(error);
      if (this.statements.file.inTransaction) this.#run('ROLLBACK');
    }
  }

  #abandon(error: unknown): void {
    this.commits.failed(error);
    this.#group?.fail(error);
    this.#group = undefined;
    if (this.statements.file.inTransaction) this.#run('ROLLBACK');
  }

  #run(sql: string): void {
    this.statements.run({ sql, parameters: [] });
  }
}
