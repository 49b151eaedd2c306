/** The live bridges of every account: what passes through the broker goes in here, and out to their targets. */
import type { Logger } from 'pino';
import type { OutboxRow } from '../../db/messages/outbox/rows.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Registry } from '../../db/registry/index.ts';
import { bridgeKinds } from '../../db/registry/records/bridges.ts';
import type { Access } from '../core/access.ts';
import type { AccountGate } from '../core/account-gate.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { newId } from '../core/ids.ts';
import { onBehalfOf } from '../core/log.ts';
import { formatTopic } from '../core/topics.ts';
import type { Sealing } from '../identity/secrets/sealing.ts';
import type { AcceptedMessage } from '../ports/bridges.ts';
import { BestEffort } from './best-effort.ts';
import { Guaranteed } from './guaranteed.ts';
import { KeptMessages } from './kept.ts';
import { type BridgeRow, Opening } from './opening.ts';
import { Refusing } from './refusing.ts';
import { type Fate, nameMessage, type Target } from './target.ts';

/** Counting ends here: a bridge that is behind by more is far behind. */
const maxCounted = 100_000;
const maxOfAccount = 1000;
/** Bridges that metrics name, those that are furthest behind. */
const maxNamed = 50;

/** Where a test message comes from: no device has this id, and no channel of a template this name. */
const noDevice = '00000000-0000-0000-0000-000000000000';
const testChannel = '_test';

/** What a bridge says whose target has been gone for a day. */
const pausedNote =
  'Paused: the webhook has answered 410 for a day. Change its URL, or send a test that it accepts, to go on.';

export type { BridgeRow };

type BridgesContext = {
  config: Config;
  clock: Clock;
  ages: Clock;
  log: Logger;
  registry: Registry;
  messages: MessageStore;
  access: Access;
  sealing: Sealing;
  gate: AccountGate;
};

/** Counts of all bridges since the start. */
export interface BridgeCounters {
  delivered: number;
  /** Batches that were not accepted. */
  failed: number;
  /** Best effort: messages that found no room, or that their target would not have. */
  dropped: number;
  /** Messages that were not sent, because they had expired. */
  expired: number;
  dead: number;
}

interface Bridge {
  row: BridgeRow;
  target: Target;
  bestEffort: BestEffort;
  guaranteed: Guaranteed;
  refusing: Refusing;
  dropped: number;
  expired: number;
  lastDelivered: number | undefined;
  lastFailure: { time: number; reason: string } | undefined;
  /** Between the first failure and the next delivery: only that is logged. */
  failing: boolean;
}

export class Bridges {
  readonly counters: BridgeCounters = { delivered: 0, failed: 0, dropped: 0, expired: 0, dead: 0 };
  readonly #ctx: BridgesContext;
  readonly #bridges = new Map<string, Bridge>();
  readonly #byAccount = new Map<string, Bridge[]>();
  readonly #opening: Opening;
  /** Dead letters, and what has been delivered and can be replayed. */
  readonly kept: KeptMessages;

  private constructor(ctx: BridgesContext) {
    this.#ctx = ctx;
    this.#opening = new Opening(ctx);
    this.kept = new KeptMessages(ctx);
  }

  /** Starts delivering what earlier processes have left. */
  static async open(ctx: BridgesContext): Promise<Bridges> {
    const bridges = new Bridges(ctx);
    const rows = await ctx.registry.query.selectFrom('bridges').selectAll().where('deleted', 'is', null).execute();
    for (const row of rows) {
      // What counts in another server is delivered there.
      if (ctx.gate.isAway(row.accountId)) continue;
      try {
        bridges.changed(row);
      } catch (error) {
        // Sealed with another key, say: what is pending for it stays.
        ctx.log.error({ err: error, bridgeId: row.id }, 'a bridge cannot be opened');
      }
    }
    bridges.kept.tidySoon();
    return bridges;
  }

  /** Whether messages of this channel go to a bridge of the account. */
  takes({ accountId, channel }: Pick<AcceptedMessage, 'accountId' | 'channel'>): boolean {
    return channel.streamBridgeDelivery > 0 && this.#byAccount.has(accountId);
  }

  /** How many rows of the outbox a message of this channel takes: one for each bridge of the account. */
  outboxRowsOf({ accountId, channel }: Pick<AcceptedMessage, 'accountId' | 'channel'>): number {
    return channel.streamBridgeDelivery === 2 ? (this.#byAccount.get(accountId)?.length ?? 0) : 0;
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
  takeMessage(
    { accountId, deviceId, channel, qos, payload, properties, expires }: AcceptedMessage,
    done: (error?: Error) => void,
  ): void {
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
    const content = { qos, time, payload: new Uint8Array(payload), properties, expires };
    const message = {
      id: newId(accountId),
      deviceId,
      organizationId,
      deviceTemplateId,
      channel: channel.name,
      ...content,
    };
    if (channel.streamBridgeDelivery === 1) {
      for (const { bestEffort } of bridges) bestEffort.offer(message);
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
      if (known) this.#endBridge(known);
      this.kept.tidySoon();
      return;
    }
    const target = this.#opening.open(row, row.sealedSecret);
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

  /** Delivers nothing more of an account, which counts elsewhere; what is pending stays. */
  endOf(accountId: string): void {
    for (const bridge of [...(this.#byAccount.get(accountId) ?? [])]) this.#endBridge(bridge);
  }

  /** Begins to deliver what an account has pending. */
  async beginOf(accountId: string): Promise<void> {
    const rows = this.#ctx.registry.query.selectFrom('bridges').selectAll().where('accountId', '=', accountId);
    for (const row of await rows.where('deleted', 'is', null).execute()) {
      try {
        this.changed(row);
      } catch (error) {
        this.#ctx.log.error({ err: error, bridgeId: row.id }, 'a bridge cannot be opened');
      }
    }
  }

  /** Sends one marked message of no device, past everything that waits. Resolves with what became of it. */
  async test({ id, accountId }: BridgeRow): Promise<{ fate: Fate; note?: string | undefined }> {
    const { clock, config } = this.#ctx;
    const bridge = this.#bridges.get(id);
    const target = bridge?.target;
    if (!target) return { fate: { result: 'retry', about: 'target', reason: 'the bridge cannot be opened' } };
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
      size: payload.length,
      test: true,
    } as const;
    const [part] = await target.send([message], { guaranteed: true });
    if (part?.result === 'accepted' && bridge?.refusing.pausedSince !== undefined) {
      bridge.bestEffort.resume();
      bridge.guaranteed.resume();
    }
    return { fate: part ?? { result: 'retry', about: 'batch', reason: 'no answer in time' }, note: target.note };
  }

  /** The state of a bridge. */
  status(id: string) {
    const { outbox } = this.#ctx.messages;
    const bridge = this.#bridges.get(id);
    const date = (time: number | undefined) => (time === undefined ? null : new Date(time).toISOString());
    const { time, reason } = bridge?.lastFailure ?? {};
    return {
      pending: outbox.countInState(id, 'pending', maxCounted),
      deadLetters: outbox.countInState(id, 'dead', maxCounted),
      oldestPending: date(outbox.places(id, 'pending', 0, 1)[0]?.since),
      waiting: bridge?.bestEffort.waiting ?? 0,
      dropped: bridge?.dropped ?? 0,
      expired: bridge?.expired ?? 0,
      paused: date(bridge?.refusing.pausedSince),
      lastDelivered: date(bridge?.lastDelivered),
      lastFailure: date(time),
      lastFailureReason: reason ?? null,
      note: bridge?.refusing.pausedSince === undefined ? (bridge?.target.note ?? null) : pausedNote,
    };
  }

  /** As `kept.replay`, and the messages are sent at once. */
  async replay(id: string, from: number, to: number): Promise<number> {
    const messages = await this.kept.replay(id, from, to);
    if (messages > 0) this.#bridges.get(id)?.guaranteed.rewind();
    return messages;
  }

  /** How many rows an account has in the outbox, in any state; counting ends somewhere above a hundred thousand. */
  stored(accountId: string): number {
    return this.kept.stored((this.#byAccount.get(accountId) ?? []).map(({ row }) => row.id));
  }

  /** The bridges of an account, with what is wrong with each; counting ends at a thousand. */
  troubleOf(accountId: string) {
    const { clock, messages } = this.#ctx;
    const { outbox } = messages;
    return (this.#byAccount.get(accountId) ?? []).map(({ row: { id, name }, failing: isFailing }) => {
      const since = outbox.places(id, 'pending', 0, 1)[0]?.since ?? clock.now();
      const [pending, dead] = [
        outbox.countInState(id, 'pending', maxOfAccount),
        outbox.countInState(id, 'dead', maxOfAccount),
      ];
      return { id, name, isFailing, pending, dead, seconds: (clock.now() - since) / 1000 };
    });
  }

  /** Bridges that have guaranteed messages pending: how many, and for how many seconds the oldest; the slowest first. */
  behind(): Array<{ id: string; kind: string; pending: number; seconds: number }> {
    const { clock, messages } = this.#ctx;
    const { outbox } = messages;
    const found = [...this.#bridges.values()].flatMap(({ row }) => {
      const since = outbox.places(row.id, 'pending', 0, 1)[0]?.since;
      return since === undefined ? [] : [{ row, since }];
    });
    const slowest = found.sort((a, b) => a.since - b.since).slice(0, maxNamed);
    return slowest.map(({ row: { id, kind }, since }) => {
      const seconds = Math.max(0, clock.now() - since) / 1000;
      return { id, kind, pending: outbox.countInState(id, 'pending', maxCounted / maxNamed), seconds };
    });
  }

  /** Guaranteed messages on their way to the targets of each kind; counting ends at a hundred thousand in all. */
  pendingByKind(): Record<string, number> {
    const { outbox } = this.#ctx.messages;
    const counts: Record<string, number> = Object.fromEntries(bridgeKinds.map((kind) => [kind, 0]));
    let left = maxCounted;
    for (const { row } of this.#bridges.values()) {
      if (left === 0) break;
      const pending = outbox.countInState(row.id, 'pending', left);
      counts[row.kind] = (counts[row.kind] ?? 0) + pending;
      left -= pending;
    }
    return counts;
  }

  /** Ends what is under way; what is not delivered stays. */
  async close(): Promise<void> {
    for (const bridge of [...this.#bridges.values()]) this.#endBridge(bridge);
    await this.kept.close();
  }

  #add(row: BridgeRow, target: Target): void {
    const { ages, clock, log, messages, config } = this.#ctx;
    const reports = {
      delivered: (count: number) => this.#delivered(bridge, count),
      failed: (reason: string) => this.#failed(bridge, reason),
      dropped: (count: number) => {
        bridge.dropped += count;
        this.counters.dropped += count;
      },
      expired: (count: number) => {
        bridge.expired += count;
        this.counters.expired += count;
      },
      paused: () =>
        onBehalfOf({}, () => log.warn({ bridgeId: row.id }, 'a bridge sends nothing more, its target is gone')),
      died: (count: number) => {
        this.counters.dead += count;
      },
    };
    const refusing = new Refusing();
    const show = (stored: OutboxRow) => nameMessage(config.topicRoot, row.accountId, stored, clock.now());
    const around = { ages, clock, log, messages, reports, refusing, show, ...config.bridges };
    const bridge: Bridge = {
      row,
      target,
      bestEffort: new BestEffort(row.id, target, around),
      guaranteed: new Guaranteed(row.id, target, around),
      refusing,
      dropped: 0,
      expired: 0,
      lastDelivered: undefined,
      lastFailure: undefined,
      failing: false,
    };
    this.#bridges.set(row.id, bridge);
    this.#byAccount.set(row.accountId, [...(this.#byAccount.get(row.accountId) ?? []), bridge]);
  }

  #endBridge(bridge: Bridge): void {
    const { id, accountId } = bridge.row;
    this.#bridges.delete(id);
    const others = this.#byAccount.get(accountId)?.filter((other) => other !== bridge) ?? [];
    if (others.length > 0) this.#byAccount.set(accountId, others);
    else this.#byAccount.delete(accountId);
    bridge.bestEffort.stop();
    bridge.guaranteed.stop();
    bridge.target.close();
  }

  #delivered(bridge: Bridge, messages: number): void {
    this.counters.delivered += messages;
    bridge.lastDelivered = this.#ctx.clock.now();
    // Deliveries go on long after the request that has begun them.
    if (bridge.failing)
      onBehalfOf({}, () => this.#ctx.log.info({ bridgeId: bridge.row.id }, 'a bridge delivers again'));
    bridge.failing = false;
  }

  #failed(bridge: Bridge, reason: string): void {
    this.counters.failed += 1;
    bridge.lastFailure = { time: this.#ctx.clock.now(), reason };
    if (!bridge.failing)
      onBehalfOf({}, () => this.#ctx.log.warn({ bridgeId: bridge.row.id, reason }, 'a bridge could not deliver'));
    bridge.failing = true;
  }
}
