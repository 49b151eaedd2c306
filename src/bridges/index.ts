/** The live bridges of every account: what passes through the broker goes in here, and out to their targets. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Logger } from 'pino';
import {
  type OutboxChange,
  type OutboxPlace,
  type OutboxRow,
  type OutboxState,
  outboxStates,
} from '../../db/messages/outbox/rows.js';
import type { MessageStore } from '../../db/messages/store.js';
import type { Registry } from '../../db/registry/index.js';
import type { Row } from '../../db/registry/records.js';
import type { Access, Channel } from '../access.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config.js';
import { FairQueue } from '../fair-queue.js';
import type { Sealing } from '../identity/secrets/sealing.js';
import { newId } from '../ids.js';
import { onBehalfOf } from '../log.js';
import { formatTopic } from '../topics.js';
import { BestEffort } from './best-effort.js';
import { Guaranteed } from './guaranteed.js';
import { kindOf, kinds } from './kinds.js';
import type { BridgedMessage, Form, Outcome, Target } from './target.js';

/** Batches under way at once, of all bridges and of those of one account: a slow target holds its place for long. */
const mostUnderWay = { ofAll: 64, ofAccount: 16 };
/** Bridges wait here with one batch each, or two, so their number is the bound. */
const unbounded = { ofCaller: Number.POSITIVE_INFINITY, ofAccount: Number.POSITIVE_INFINITY };
/** Bytes of payload that count as one message, and messages of an ordinary batch. */
const messageBytes = 1000;
const ordinaryBatch = 100;
/** Rows that are looked at in one turn of the event loop, and changed in one transaction. */
const stepSize = 2000;
/** Dead letters that are read at once. */
const deadAtOnce = 8;
/** Milliseconds between two looks at what has been kept for long enough. */
const tidyInterval = 60_000;
/** Counting ends here: whoever is behind by more is far behind. */
const mostCounted = 100_000;

/** Where a test message comes from: no device has this id, and no channel of a template this name. */
const noDevice = '00000000-0000-0000-0000-000000000000';
const testChannel = '_test';

const states = Object.keys(outboxStates) as OutboxState[];
export type BridgeRow = Row<'bridges'>;
type BridgesContext = {
  config: Config;
  clock: Clock;
  log: Logger;
  registry: Registry;
  messages: MessageStore;
  access: Access;
  sealing: Sealing;
};

/** A message that has been accepted on a channel, whoever published it. */
export interface AcceptedMessage {
  accountId: string;
  deviceId: string;
  channel: Channel;
  qos: number;
  payload: Uint8Array;
}

/** What all bridges have done since the start. */
export interface BridgeCounters {
  delivered: number;
  /** Batches that were not accepted. */
  failed: number;
  /** Best effort: messages that found no room, or that their target would not have. */
  dropped: number;
  dead: number;
}

interface Bridge {
  row: BridgeRow;
  target: Target;
  bestEffort: BestEffort;
  guaranteed: Guaranteed;
  dropped: number;
  lastDelivered: number | undefined;
  lastFailure: { time: number; reason: string } | undefined;
  /** Between the first failure and the next delivery: only that is logged. */
  failing: boolean;
}

export class Bridges {
  readonly counters: BridgeCounters = { delivered: 0, failed: 0, dropped: 0, dead: 0 };
  readonly #ctx: BridgesContext;
  readonly #bridges = new Map<string, Bridge>();
  readonly #byAccount = new Map<string, Bridge[]>();
  readonly #queue = new FairQueue(mostUnderWay.ofAll, {
    perAccount: mostUnderWay.ofAccount,
    most: unbounded,
    quantum: ordinaryBatch,
  });
  readonly #timer: NodeJS.Timeout;
  #tidying: Promise<void> = Promise.resolve();
  #stopped = false;

  private constructor(ctx: BridgesContext) {
    this.#ctx = ctx;
    this.#timer = setInterval(() => this.#tidySoon(), tidyInterval);
    this.#timer.unref();
  }

  /** Starts delivering what earlier processes have left. */
  static async open(ctx: BridgesContext): Promise<Bridges> {
    const bridges = new Bridges(ctx);
    const rows = await ctx.registry.query.selectFrom('bridges').selectAll().where('deleted', 'is', null).execute();
    for (const row of rows) {
      try {
        bridges.changed(row);
      } catch (error) {
        // Sealed with another key, say: what is pending for it stays.
        ctx.log.error({ err: error, bridgeId: row.id }, 'a bridge cannot be opened');
      }
    }
    bridges.#tidySoon();
    return bridges;
  }

  /** Whether messages of this channel go to a bridge of the account. */
  takes({ accountId, channel }: Pick<AcceptedMessage, 'accountId' | 'channel'>): boolean {
    return channel.streamBridgeDelivery > 0 && this.#byAccount.has(accountId);
  }

  /** Why a message of this channel cannot be guaranteed now: there is no room for what the account has pending. */
  refusal({ accountId, channel }: Pick<AcceptedMessage, 'accountId' | 'channel'>): Error | undefined {
    if (channel.streamBridgeDelivery !== 2 || !this.#byAccount.has(accountId)) return undefined;
    return this.#ctx.messages.outboxFullFor(accountId);
  }

  /**
   * Takes a message over. `done` is called once: for level 2 when it is on disk, in one transaction with what was given
   * to the message store right before, or with the error for which it is not; for level 1 at once.
   */
  take({ accountId, deviceId, channel, qos, payload }: AcceptedMessage, done: (error?: Error) => void): void {
    const { access, clock, messages } = this.#ctx;
    const bridges = this.#byAccount.get(accountId);
    const device = access.placement(deviceId);
    if (!bridges || !device || channel.streamBridgeDelivery === 0) {
      done();
      return;
    }
    const time = clock.now();
    const { organizationId, deviceTemplateId } = device;
    // The bytes alone: a part of a read buffer would keep, and send, all of it.
    const content = { qos, time, payload: new Uint8Array(payload) };
    const message = {
      id: newId(accountId),
      deviceId,
      organizationId,
      deviceTemplateId,
      channel: channel.name,
      ...content,
    };
    if (channel.streamBridgeDelivery === 1) {
      for (const { bestEffort } of bridges) bestEffort.offer(this.#named(accountId, message));
      done();
      return;
    }
    const bridgeIds = bridges.map(({ row }) => row.id);
    messages.recordOutbox([{ kind: 'add', accountId, message, bridgeIds }], (error) => {
      if (!error) for (const { guaranteed } of bridges) guaranteed.wake();
      done(error);
    });
  }

  /** A bridge has been made, changed or deleted; told after the commit. */
  changed(row: BridgeRow): void {
    const known = this.#bridges.get(row.id);
    if (row.deleted !== null || row.sealedSecret === null) {
      if (known) this.#end(known);
      this.#tidySoon();
      return;
    }
    const target = this.#open(row, row.sealedSecret);
    if (!known) {
      this.#add(row, target);
      return;
    }
    const former = known.target;
    Object.assign(known, { row, target });
    known.bestEffort.retarget(target);
    known.guaranteed.retarget(target);
    former.close();
  }

  /** Sends one marked message of no device, past everything that waits. Resolves with what became of it. */
  test({ id, accountId }: BridgeRow): Promise<Outcome> {
    const { clock, config } = this.#ctx;
    const target = this.#bridges.get(id)?.target;
    const unopened: Outcome = { result: 'retry', about: 'target', reason: 'the bridge cannot be opened' };
    if (!target) return Promise.resolve(unopened);
    const names = { deviceId: noDevice, organizationId: null, deviceTemplateId: noDevice, channel: testChannel };
    const topic = formatTopic(config.topicRoot, accountId, noDevice, testChannel);
    const payload = Buffer.from(JSON.stringify({ test: true }));
    const message = {
      id: newId(accountId),
      accountId,
      ...names,
      topic,
      qos: 1,
      time: clock.now(),
      payload,
      test: true,
    } as const;
    return target.send([message], { guaranteed: true });
  }

  /** How a bridge gets on. */
  status(id: string) {
    const { outbox } = this.#ctx.messages;
    const bridge = this.#bridges.get(id);
    const date = (time: number | undefined) => (time === undefined ? null : new Date(time).toISOString());
    const { time, reason } = bridge?.lastFailure ?? {};
    return {
      pending: outbox.count(id, 'pending', mostCounted),
      deadLetters: outbox.count(id, 'dead', mostCounted),
      dropped: bridge?.dropped ?? 0,
      lastDelivered: date(bridge?.lastDelivered),
      lastFailure: date(time),
      lastFailureReason: reason ?? null,
    };
  }

  /** How many messages could not be delivered and are kept. */
  deadCount(id: string): number {
    return this.#ctx.messages.outbox.count(id, 'dead', Number.MAX_SAFE_INTEGER);
  }

  /** One page of what could not be delivered, newest first, a few at a time: each may have the largest payload. */
  *deadLetters({ id, accountId }: BridgeRow, page: number, pageSize: number) {
    const { outbox } = this.#ctx.messages;
    let before = Number.MAX_SAFE_INTEGER;
    let offset = (page - 1) * pageSize;
    for (let left = pageSize; left > 0; left -= deadAtOnce, offset = 0) {
      const wanted = Math.min(left, deadAtOnce);
      const rows = outbox.dead(id, before, wanted, offset);
      const last = rows.at(-1);
      if (!last) return;
      before = last.sequence;
      yield rows.map((row) => ({ ...this.#named(accountId, row), reason: row.reason, since: row.since }));
      if (rows.length < wanted) return;
    }
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
    if (messages > 0) this.#bridges.get(id)?.guaranteed.rewind();
    return messages;
  }

  /** How many rows an account has in the outbox, in any state; counting ends somewhere above a hundred thousand. */
  stored(accountId: string): number {
    const { outbox } = this.#ctx.messages;
    const bridges = this.#byAccount.get(accountId) ?? [];
    return bridges.reduce(
      (sum, { row }) => states.reduce((more, state) => more + outbox.count(row.id, state, mostCounted), sum),
      0,
    );
  }

  /** Guaranteed messages on their way to the targets of each kind; counting ends at a hundred thousand in all. */
  pendingByKind(): Record<string, number> {
    const { outbox } = this.#ctx.messages;
    const counts: Record<string, number> = Object.fromEntries(kinds.map((kind) => [kind, 0]));
    let left = mostCounted;
    for (const { row } of this.#bridges.values()) {
      if (left === 0) break;
      const pending = outbox.count(row.id, 'pending', left);
      counts[row.kind] = (counts[row.kind] ?? 0) + pending;
      left -= pending;
    }
    return counts;
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
          // They stand in the order of their acceptance.
          if (!first || !last || first.time >= before) break;
          const range = { from: first.sequence, to: last.sequence };
          const sequences = outbox.ofDevices(id, state, deviceIds, range);
          if (sequences.length > 0) await this.#write({ kind: 'remove', from: state, sequences });
        }
  }

  /** Ends what is under way; what is not delivered stays. */
  async close(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    for (const bridge of [...this.#bridges.values()]) this.#end(bridge);
    await this.#tidying;
  }

  #open(row: BridgeRow, sealedSecret: string): Target {
    const { sealing, clock, config } = this.#ctx;
    const { timeout, allowPrivate } = config.bridges;
    const target = kindOf(row.kind).open(
      {
        bridgeId: row.id,
        url: new URL(sealing.open(urlOwner(row.id), row.sealedUrl)),
        form: row.form as Form,
        settings: JSON.parse(row.settings),
        credentials: readCredentials(row.kind, sealing.open(secretOwner(row.id), sealedSecret)),
      },
      { clock, headerPrefix: config.headerPrefix, timeout, allowPrivate },
    );
    const lane = { accountId: row.accountId, callerId: row.id };
    const send: Target['send'] = (batch, options) =>
      this.#queue.run(lane, costOf(batch), () => target.send(batch, options));
    return { send, close: () => target.close() };
  }

  #add(row: BridgeRow, target: Target): void {
    const { clock, log, messages, config } = this.#ctx;
    const reports = {
      delivered: (count: number) => this.#delivered(bridge, count),
      failed: (reason: string) => this.#failed(bridge, reason),
      dropped: (count: number) => {
        bridge.dropped += count;
        this.counters.dropped += count;
      },
      died: (count: number) => {
        this.counters.dead += count;
      },
    };
    const show = (stored: OutboxRow) => this.#named(row.accountId, stored);
    const around = { clock, log, messages, reports, show, ...config.bridges };
    const bridge: Bridge = {
      row,
      target,
      bestEffort: new BestEffort(target, around),
      guaranteed: new Guaranteed(row.id, target, around),
      dropped: 0,
      lastDelivered: undefined,
      lastFailure: undefined,
      failing: false,
    };
    this.#bridges.set(row.id, bridge);
    this.#byAccount.set(row.accountId, [...(this.#byAccount.get(row.accountId) ?? []), bridge]);
  }

  #end(bridge: Bridge): void {
    const { id, accountId } = bridge.row;
    this.#bridges.delete(id);
    const others = this.#byAccount.get(accountId)?.filter((other) => other !== bridge) ?? [];
    if (others.length > 0) this.#byAccount.set(accountId, others);
    else this.#byAccount.delete(accountId);
    bridge.bestEffort.stop();
    bridge.guaranteed.stop();
    bridge.target.close();
  }

  #named(accountId: string, message: Omit<OutboxRow, 'sequence' | 'since'>): BridgedMessage {
    const { id, deviceId, organizationId, deviceTemplateId, channel, qos, time, payload } = message;
    const topic = formatTopic(this.#ctx.config.topicRoot, accountId, deviceId, channel);
    return { id, topic, accountId, deviceId, organizationId, deviceTemplateId, channel, qos, time, payload };
  }

  #delivered(bridge: Bridge, messages: number): void {
    this.counters.delivered += messages;
    bridge.lastDelivered = this.#ctx.clock.now();
    // Deliveries go on long after the request that has begun them.
    if (bridge.failing)
      onBehalfOf(undefined, () => this.#ctx.log.info({ bridgeId: bridge.row.id }, 'a bridge delivers again'));
    bridge.failing = false;
  }

  #failed(bridge: Bridge, reason: string): void {
    this.counters.failed += 1;
    bridge.lastFailure = { time: this.#ctx.clock.now(), reason };
    if (!bridge.failing)
      onBehalfOf(undefined, () =>
        this.#ctx.log.warn({ bridgeId: bridge.row.id, reason }, 'a bridge could not deliver'),
      );
    bridge.failing = true;
  }

  // What has been kept for long enough

  #tidySoon(): void {
    this.#tidying = this.#tidying
      .then(() => this.#tidy())
      .catch((error) => this.#ctx.log.error({ err: error }, 'the outbox could not be tidied'));
  }

  /** Ends what is old, and whatever belongs to a bridge that is deleted. */
  async #tidy(): Promise<void> {
    const { messages, clock, config, registry } = this.#ctx;
    const { deliveredAge, deadAge } = config.bridges;
    for (const id of messages.outbox.bridgeIds()) {
      const live = registry.query.selectFrom('bridges').select('id').where('id', '=', id).where('deleted', 'is', null);
      const isLive = (await live.executeTakeFirst()) !== undefined;
      const ages = { pending: Number.POSITIVE_INFINITY, delivered: deliveredAge, dead: deadAge };
      for (const state of ['pending', 'delivered', 'dead'] as const) {
        for await (const places of this.#slices(id, state)) {
          const limit = clock.now() - ages[state];
          const old = places.filter(({ since }) => !isLive || since < limit);
          // The oldest come first.
          if (old.length === 0) break;
          await this.#write({ kind: 'remove', from: state, sequences: sequencesOf(old) });
        }
      }
    }
  }

  /** Rows of a bridge in one state, some in a turn of the event loop, until the end of the process or of the rows. */
  async *#slices(id: string, state: OutboxState): AsyncGenerator<OutboxPlace[]> {
    for (let after = 0; !this.#stopped; await nextTurn()) {
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

/** What the sealed texts of a bridge belong to. */
export const secretOwner = (id: string) => `bridge/${id}/secret`;
export const urlOwner = (id: string) => `bridge/${id}/url`;

/** What a batch costs those who wait: messages, and the bytes of large ones. */
function costOf(batch: readonly BridgedMessage[]): number {
  return batch.reduce((cost, { payload }) => cost + 1 + payload.length / messageBytes, 0);
}

/** Webhooks seal their secret alone, all others a JSON object. */
function readCredentials(kind: string, text: string): Record<string, string> {
  return kind === 'webhook' ? { secret: text } : JSON.parse(text);
}
