/** Dead letters and delivered messages that can be replayed. */
import type { Logger } from 'pino';
import { type OutboxChange, type OutboxPlace, type OutboxState, outboxStates } from '../../db/messages/outbox/rows.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import type { AccountGate } from '../core/account-gate.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { LongWork } from '../core/scheduler/long-work.ts';
import type { RowPlace } from '../entity/row-slices.ts';
import { nameMessage } from './target.ts';

/** Rows that are looked at in one turn of the event loop, and changed in one transaction. */
const stepSize = 2000;
/** Milliseconds between two looks at what has been kept for long enough. */
const tidyInterval = 60_000;
/** Counting ends here. */
const maxCounted = 100_000;

const states = Object.keys(outboxStates) as OutboxState[];

interface KeptContext {
  config: Pick<Config, 'bridges' | 'topicRoot'>;
  clock: Clock;
  ages: Clock;
  log: Pick<Logger, 'error'>;
  registry: Registry;
  messages: Pick<MessageStore, 'outbox' | 'recordOutbox'>;
  gate: AccountGate;
}

export class KeptMessages {
  readonly #ctx: KeptContext;
  readonly #timer: NodeJS.Timeout;
  #tidying: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(ctx: KeptContext) {
    this.#ctx = ctx;
    this.#timer = setInterval(() => this.tidySoon(), tidyInterval);
    this.#timer.unref();
  }

  /** How many messages could not be delivered and are kept. */
  deadCount(id: string): number {
    return this.#ctx.messages.outbox.countInState(id, 'dead', Number.MAX_SAFE_INTEGER);
  }

  /** Where a page of what could not be delivered is, newest first. */
  deadPlaces(id: string, limit: number, offset: number): RowPlace<number>[] {
    return this.#ctx.messages.outbox.deadPlaces(id, limit, offset);
  }

  /** Some of what could not be delivered, in any order. */
  deadLetters({ id, accountId }: { id: string; accountId: string }, sequences: number[]) {
    const { config, clock, messages } = this.#ctx;
    return messages.outbox.dead(id, sequences).map((row) => ({
      ...nameMessage(config.topicRoot, accountId, row, clock.now()),
      sequence: row.sequence,
      reason: row.reason,
      since: row.since,
    }));
  }

  /**
   * Makes what was accepted from `from` (inclusive) to `to` (exclusive, both in milliseconds) pending again: dead
   * letters, and what has been delivered and is still kept. Resolves with how many when that is on disk.
   */
  async replay(id: string, from: number, to: number): Promise<number> {
    const pending = { to: 'pending', time: this.#ctx.clock.now(), reason: null } as const;
    let messages = 0;
    for (const state of ['dead', 'delivered'] as const)
      for await (const places of this.#slices(id, state)) {
        const meant = places.filter(({ time }) => time >= from && time < to);
        if (meant.length > 0)
          await this.#write({ kind: 'move', from: state, sequences: sequencesOf(meant), ...pending });
        messages += meant.length;
      }
    return messages;
  }

  /** How many rows these bridges have in the outbox, in any state; counting ends somewhere above a hundred thousand. */
  stored(bridgeIds: readonly string[]): number {
    const { outbox } = this.#ctx.messages;
    return bridgeIds.reduce(
      (sum, id) => states.reduce((more, state) => more + outbox.countInState(id, state, maxCounted), sum),
      0,
    );
  }

  /**
   * Removes what is kept of devices that are being purged; they have said nothing since `before` (milliseconds), so only
   * older rows are looked at. Resolves when it is on disk.
   */
  async forgetDevices(deviceIds: readonly string[], before: number): Promise<void> {
    const { outbox } = this.#ctx.messages;
    for (const id of outbox.bridgeIds())
      for (const state of states)
        for await (const places of this.#slices(id, state)) {
          const [first, last] = [places[0], places.at(-1)];
          // They are in the order of their acceptance.
          if (!first || !last || first.time >= before) break;
          const range = { from: first.sequence, to: last.sequence };
          const sequences = outbox.ofDevices(id, state, deviceIds, range);
          if (sequences.length > 0) await this.#write({ kind: 'remove', from: state, sequences });
        }
  }

  async close(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await this.#tidying;
  }

  /** Removes what is old, and whatever belongs to a bridge that is deleted, after what is under way. */
  tidySoon(): void {
    this.#tidying = this.#tidying
      .then(() => this.#ctx.gate.work(() => this.#tidy()))
      .catch((error) => this.#ctx.log.error({ err: error }, 'the outbox could not be tidied'));
  }

  /** Ends what is old, and whatever belongs to a bridge that is deleted. */
  async #tidy(): Promise<void> {
    const { messages, ages: clock, config, gate, registry } = this.#ctx;
    const { deliveredAge, deadAge } = config.bridges;
    for (const id of messages.outbox.bridgeIds()) {
      const found = registry.query.selectFrom('bridges').select(['accountId', 'deleted']).where('id', '=', id);
      const row = await found.executeTakeFirst();
      // The bridge of a message that comes from another server may come after it.
      if (row ? gate.isAway(row.accountId) : gate.isReceiving) continue;
      const isLive = row?.deleted === null;
      const ages = { pending: Number.POSITIVE_INFINITY, delivered: deliveredAge, dead: deadAge };
      for (const state of ['pending', 'delivered', 'dead'] as const) {
        for await (const places of this.#slices(id, state)) {
          const limit = clock.now() - ages[state];
          const old = places.filter(({ since }) => !isLive || since < limit);
          // The oldest come first.
          if (old.length === 0) break;
          await this.#write({ kind: 'remove', from: state, sequences: sequencesOf(old) });
          if (row && gate.isAway(row.accountId)) break;
        }
      }
    }
  }

  /** Rows of a bridge in one state, some in a slice, until the end of the process or of the rows. */
  async *#slices(id: string, state: OutboxState): AsyncGenerator<OutboxPlace[]> {
    const longWork = new LongWork();
    for (let after = 0; !this.#stopped; await longWork.giveWay()) {
      longWork.beginSlice();
      const places = this.#ctx.messages.outbox.places(id, state, after, stepSize);
      const last = places.at(-1);
      if (!last) return;
      after = last.sequence;
      yield places;
    }
  }

  /** Resolves when it is on disk. */
  #write(change: OutboxChange): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#ctx.messages.recordOutbox([change], (error) => (error ? reject(error) : resolve()));
    });
  }
}

function sequencesOf(places: readonly OutboxPlace[]): number[] {
  return places.map(({ sequence }) => sequence);
}
