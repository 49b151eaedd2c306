import { setTimeout as sleep } from 'node:timers/promises';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import { type Leave, Scheduler, unbounded } from '../../src/core/scheduler/scheduler.ts';
import { slices } from '../../src/core/scheduler/time-slice.ts';
import { commitAsHolder } from '../files/lock.ts';
import { Commits, isStoreBusy } from './commits.ts';
import type { StatementCache } from './statements.ts';

/** How many transactions share one commit, and for how long (milliseconds) it may be held open for more. */
const groupSize = 256;
const groupAge = 10;
/** Milliseconds for which another program may hold the file, and those between two tries at most. */
const patience = 5000;
const longestPause = 50;
/** Milliseconds of an ordinary transaction, and those that a lane may take in one turn. */
const ordinary = 0.2;
const quantum = 1;
/** What is written on nobody's behalf. */
const ofService: Lane = { accountId: '', callerId: '' };

/** What follows what is written. `elsewhere` is what the thread of long transactions says of its commit. */
export interface Kept {
  committed(elsewhere?: readonly unknown[]): void;
}

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
 * The one writer. Accounts take turns, then the callers of each, by the time of their transactions. Those that come one after
 * another share a commit, each in a savepoint of its own, and none returns before it is on disk.
 */
export class Writer {
  /** Those of long transactions as well. */
  readonly commits = new Commits();
  readonly #turns = new Scheduler({ atOnce: 1, quantum, maxWaiting: unbounded, slice: slices.writes });
  /** Ends the turn of the one who has it, and since when. */
  #leave: Leave = () => {};
  #since = 0;
  #group: Group | undefined;
  /** Since when another program holds the file. */
  #busySince: number | undefined;

  readonly statements: StatementCache;
  readonly fence?: { checkHolder(): void };
  readonly laneNow: () => Lane | undefined;
  readonly kept?: Kept;

  /**
   * Before and after each commit `fence` says whether this process still holds the directory. `laneNow` says on whose behalf
   * a transaction begins; undefined for the service itself. `kept` is told of each commit before anybody else.
   */
  constructor(
    statements: StatementCache,
    fence?: { checkHolder(): void },
    laneNow: () => Lane | undefined = () => undefined,
    kept?: Kept,
  ) {
    this.statements = statements;
    this.fence = fence;
    this.laneNow = laneNow;
    this.kept = kept;
  }

  /** Transactions that wait for their turn. */
  get waiting(): number {
    return this.#turns.waiting;
  }

  async begin(): Promise<void> {
    await this.#takeTurn();
    try {
      if (!this.#group) {
        await this.#open();
        this.#group = new Group();
      }
      this.#run('SAVEPOINT member');
    } catch (error) {
      this.#endTurn();
      throw error;
    }
  }

  /** Another program that holds the file is waited for, without a turn of the event loop: the file has no patience of its own. */
  async #open(): Promise<void> {
    for (let pause = 1; ; pause = Math.min(2 * pause, longestPause)) {
      try {
        this.#run('BEGIN IMMEDIATE');
        if (this.#busySince !== undefined) this.#since = performance.now();
        this.#busySince = undefined;
        return;
      } catch (error) {
        if (!isStoreBusy(error)) throw error;
        this.#busySince ??= performance.now();
        if (performance.now() - this.#busySince >= patience) throw error;
      }
      await sleep(pause);
    }
  }

  /** Keeps the member's work and returns when the whole group is on disk. */
  commit(): Promise<void> {
    const group = this.#group as Group;
    try {
      this.#run('RELEASE member');
    } catch (error) {
      this.#abandon(error);
      this.#endTurn();
      return Promise.reject(error);
    }
    group.size += 1;
    this.#endTurn();
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
    this.#endTurn();
  }

  /** Waits for a turn and gives it away to another connection: nothing of ours is open until the answer is called. */
  async lend(): Promise<() => void> {
    await this.#takeTurn();
    this.#commitGroup();
    // The commit of others takes nothing of this turn.
    this.#since = performance.now();
    return () => this.#endTurn();
  }

  /** Commits what changes nothing, in a turn of its own; no other program is waited for. */
  async proveWritable(): Promise<void> {
    const giveBack = await this.lend();
    try {
      commitAsHolder(this.fence, () => {
        const from = performance.now();
        this.statements.file.exec('UPDATE "migrations" SET "applied" = "applied"');
        this.commits.succeeded(performance.now() - from);
      });
    } catch (error) {
      this.commits.failed(error);
      throw error;
    } finally {
      giveBack();
    }
  }

  /** Commits what is open; used at close. */
  flush(): void {
    if (this.#isAtRest) this.#commitGroup();
  }

  /** Resolves when it is the turn of its lane. */
  async #takeTurn(): Promise<void> {
    this.#leave = await this.#turns.enter(this.laneNow() ?? ofService, ordinary);
    this.#since = performance.now();
  }

  #endTurn(): void {
    // Without the commit, which is for all of the group.
    const more = performance.now() - this.#since - ordinary;
    const group = this.#group;
    if (group && (group.size >= groupSize || Date.now() - group.begun >= groupAge)) this.#commitGroup();
    this.#leave(more);
    if (this.#isAtRest && group && !group.isWatched) this.#watch(group);
  }

  get #isAtRest(): boolean {
    return this.#turns.running === 0 && this.#turns.waiting === 0;
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
      if (!this.#isAtRest || this.#group !== group) return;
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
        try {
          this.#run('COMMIT');
        } finally {
          this.kept?.committed();
        }
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
