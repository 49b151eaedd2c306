/**
 * Runs rollouts: their stages and deadlines, what devices are offered, and what they say of it. Everything is a row with the
 * time at which somebody has to look at it, so one timer is enough, and an end of the process loses nothing.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { MessageStore, Severity } from '../../../db/messages/store.ts';
import type { Registry } from '../../../db/registry/index.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Caller } from '../../core/caller.ts';
import { newId } from '../../core/ids.ts';
import { Merged } from '../../core/limits/merged.ts';
import { onBehalfOf } from '../../core/log.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { Readers } from '../../core/threads/readers.ts';
import { Watchers } from '../../core/watchers.ts';
import type { AttachedFleets } from '../../registry/devices/attached-fleets.ts';
import { type StateContext, stateChanged } from '../../registry/devices/changes.ts';
import { ContinuousRollouts } from './continuous.ts';
import {
  currentDelivery,
  endOpen,
  isEnd,
  packageOf,
  type Report,
  type Reported,
  renewOffer,
  settleRollout,
  takeReport,
} from './deliveries.ts';
import { areProgress, type FileReport, takeFileReport } from './file-reports.ts';
import { type OfferServices, Offers } from './offers.ts';
import { type Delivery, isOpen, isOpenDelivery, type Rollout } from './rollout.ts';
import { advance } from './stages.ts';

export type EngineServices = OfferServices & {
  registry: Registry;
  readers: Readers;
  messages: MessageStore;
  log: Logger;
  gate: AccountGate;
  attachedFleets: AttachedFleets;
} & StateContext;

/** Events of the engine for the ways that tell devices about updates. */
export interface Listener {
  /** These devices have an offer, or another one, or none any more. */
  offersChanged(deviceIds: readonly string[]): Promise<void>;
}

/** Milliseconds until the next look at the latest: the clock of the machine may be set. */
const maxWait = 1000;
/** Milliseconds until a rollout is tried again that could not go on. */
const retryAfter = 30_000;
/** Deadlines that are looked at in one transaction. */
const atOnce = 100;

export class FirmwareEngine {
  readonly offers: Offers;
  readonly watchers = new Watchers();
  readonly #services: EngineServices;
  readonly #listeners: Listener[] = [];
  readonly #continuous: ContinuousRollouts;
  readonly #reports = new Merged<Report, Reported>((before, later) => !isEnd(before.state) && !isEnd(later.state));
  readonly #fileReports = new Merged<FileReport, Reported>(areProgress);
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  #again = false;
  #stopped = false;

  constructor(services: EngineServices) {
    this.#services = services;
    this.offers = new Offers(services, (ids) => this.watchers.tellWatchers(ids));
    this.#continuous = new ContinuousRollouts(services, async (rollouts, deviceIds) => {
      this.changed(...rollouts);
      await this.#offersChanged(deviceIds);
    });
  }

  addListener(listener: Listener): void {
    this.#listeners.push(listener);
  }

  /** Goes on with what there is. `url` is where devices find the service. */
  startServing(url: string): void {
    this.offers.servedAt(url);
    this.wake();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#looking;
    await this.#continuous.stop();
  }

  /** Something may be due now. */
  wake(): void {
    if (this.#stopped) return;
    if (this.#looking) {
      this.#again = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#looking = onBehalfOf({}, () => this.#handleDue()).finally(() => {
      this.#looking = undefined;
      const again = this.#again;
      this.#again = false;
      if (!this.#stopped) this.#schedule(again ? 0 : maxWait);
    });
  }

  #schedule(wait: number): void {
    this.#timer = setTimeout(() => this.wake(), wait);
    this.#timer.unref();
  }

  /** One look at everything that is due. Never rejects. */
  async #handleDue(): Promise<void> {
    try {
      if (!this.#stopped) await this.#services.gate.work((away) => this.#continuous.followAll(away));
      while (!this.#stopped && (await this.#advanceSome())) await nextTurn();
      while (!this.#stopped && (await this.#services.gate.work((away) => this.#timeOutSome(away)))) await nextTurn();
    } catch (error) {
      this.#services.log.error({ err: error }, 'rollouts could not go on');
    }
  }

  /** One step of the rollout of each account that has waited longest; whether there may be more. */
  async #advanceSome(): Promise<boolean> {
    const { registry, ages, gate } = this.#services;
    const due = await registry.query
      .selectFrom('firmwareRollouts')
      .selectAll()
      .where('due', 'is not', null)
      .where('due', '<=', ages.now())
      .where('deleted', 'is', null)
      .where('accountId', 'not in', gate.away)
      .orderBy('due')
      .execute();
    const first = new Map<string, Rollout>();
    for (const rollout of due) if (!first.has(rollout.accountId)) first.set(rollout.accountId, rollout);
    const longWork = new LongWork();
    for (const rollout of first.values()) {
      if (this.#stopped) return false;
      await gate.workFor(rollout.accountId, () => this.#advance(rollout));
      await longWork.giveWay();
    }
    return due.length > 0;
  }

  /** One that cannot go on is tried again later, and holds up no other. */
  async #advance(rollout: Rollout): Promise<void> {
    const { registry, ages, log } = this.#services;
    try {
      const { rollouts, arisen } = await advance(this.#services, rollout);
      this.changed(...rollouts);
      await nextTurn();
      await this.#offersChanged(arisen);
    } catch (error) {
      log.error({ err: error, rolloutId: rollout.id }, 'a rollout could not go on');
      const later = registry.query.updateTable('firmwareRollouts').set({ due: ages.now() + retryAfter });
      await later.where('id', '=', rollout.id).where('due', 'is not', null).execute();
    }
  }

  async #timeOutSome(away: readonly string[]): Promise<boolean> {
    const { registry, ages } = this.#services;
    const late = await registry.query
      .selectFrom('firmwareDeliveries')
      .select('deviceId')
      .where('deadline', '<=', ages.now())
      .where('accountId', 'not in', away)
      .where(isOpenDelivery)
      .limit(atOnce)
      .execute();
    if (late.length === 0) return false;
    const ids = late.map(({ deviceId }) => deviceId);
    await this.endDeliveries(ids, 'timedOut', 'The device has not ended the update in time.');
    return late.length === atOnce;
  }

  /** Ends what these devices have before them; their rollouts are looked at. On disk, and told, when it resolves. */
  async endDeliveries(
    deviceIds: readonly string[],
    state: 'timedOut' | 'cancelled',
    message: string,
  ): Promise<Delivery[]> {
    const { registry, ages, clock } = this.#services;
    const { ended, rollouts } = await registry.transaction(async (tx) => {
      const due = state === 'timedOut' ? await stillLate(tx, deviceIds, ages.now()) : deviceIds;
      const ended = await endOpen(tx, clock, due, state, message);
      const rollouts: Rollout[] = [];
      for (const id of new Set(ended.map(({ rolloutId }) => rolloutId))) {
        const changed = await settleRollout(tx, clock, id);
        if (changed) rollouts.push(changed);
      }
      return { ended, rollouts };
    });
    await nextTurn();
    for (const delivery of ended) if (state === 'timedOut') this.#writeLog(delivery, 'warn', `Firmware: ${message}`);
    this.changed(...rollouts);
    this.watchers.tellWatchers(new Set(ended.map(({ rolloutId }) => rolloutId)));
    await nextTurn();
    await this.#offersChanged(ended.map(({ deviceId }) => deviceId));
    return ended;
  }

  /** Voids the offers of a device, which gets another one while it has a place in a rollout. */
  async renewOffer(deviceId: string): Promise<void> {
    const { registry, clock } = this.#services;
    if (await registry.transaction((tx) => renewOffer(tx, clock, deviceId))) await this.#offersChanged([deviceId]);
  }

  /** Takes what a device says; on disk when it resolves. @throws PlatformError as takeReport. */
  report(device: Caller, report: Report): Promise<Reported> {
    const { registry, clock } = this.#services;
    return this.#reports.writeMerged(device.id, report, async (said) =>
      this.#announce(await registry.transaction((tx) => takeReport(tx, clock, device.id, said))),
    );
  }

  /**
   * A device has said on `_set/fields` what it runs, which is noted. An update to this version has succeeded by it, and a success
   * of another one has not lasted; of an update under way it says nothing.
   */
  async versionSaid(device: Caller, firmwareVersion: string): Promise<void> {
    const { query } = this.#services.registry;
    const delivery = await currentDelivery(query, device.id);
    if (!delivery) return;
    const isOfUpdate = (await packageOf(query, delivery)).firmwareVersion === firmwareVersion;
    if (isOpen(delivery) ? isOfUpdate : delivery.state === 'succeeded' && !isOfUpdate)
      await this.report(device, { state: 'succeeded', firmwareVersion });
  }

  /** As `report`, what it says of one file. @throws PlatformError as takeFileReport. */
  reportFile(device: Caller, report: FileReport): Promise<Reported> {
    const { registry, clock } = this.#services;
    return this.#fileReports.writeMerged(device.id, report, async (said) =>
      this.#announce(await registry.transaction((tx) => takeFileReport(tx, clock, device.id, said))),
    );
  }

  /** Announces what a report has changed, after its commit. */
  #announce(reported: Reported): Reported {
    const { delivery, firmwareVersion, rollout, ended } = reported;
    if (reported.device) stateChanged(this.#services, reported.device);
    if (ended) {
      const { code, message } = delivery;
      const withCode = code === null ? '' : ` with code ${code}`;
      const why = message === null ? `${withCode}.` : `${withCode}: ${message}`;
      if (delivery.state === 'succeeded') this.#writeLog(delivery, 'info', `Firmware ${firmwareVersion} is installed.`);
      else this.#writeLog(delivery, 'error', `Firmware ${firmwareVersion} failed${why}`);
    }
    if (rollout) this.changed(rollout);
    this.watchers.tellWatchers([delivery.rolloutId]);
    return reported;
  }

  /** To be told after the commit that has changed rollouts. */
  changed(...rollouts: readonly Rollout[]): void {
    this.watchers.tellWatchers(rollouts.map(({ id }) => id));
    if (rollouts.some(({ due }) => due !== null)) this.wake();
  }

  /** To be told when these devices may be offered something else than before. */
  offersChanged(deviceIds: readonly string[]): Promise<void> {
    return this.#offersChanged(deviceIds);
  }

  async #offersChanged(deviceIds: readonly string[]): Promise<void> {
    if (deviceIds.length === 0) return;
    for (const listener of this.#listeners)
      await listener
        .offersChanged(deviceIds)
        .catch((error) => this.#services.log.error({ err: error }, 'devices could not be told of their firmware'));
  }

  #writeLog({ accountId, deviceId, code }: Delivery, severity: Severity, message: string): void {
    const { messages, clock, log } = this.#services;
    const now = clock.now();
    const entry = { id: newId(accountId), accountId, deviceId, time: now, received: now, severity, message };
    const own = {
      code: code === null ? null : String(code),
      details: null,
      tags: ['firmware'],
      custom: null,
      byService: true,
    };
    messages.appendLog({ ...entry, ...own }, (error) => {
      if (error)
        log[messages.isNoRoom(error) ? 'debug' : 'error']({ err: error, deviceId }, 'a log entry could not be stored');
    });
  }
}

async function stillLate(
  tx: Parameters<Parameters<Registry['transaction']>[0]>[0],
  deviceIds: readonly string[],
  now: number,
): Promise<string[]> {
  const rows = tx.selectFrom('firmwareDeliveries').select('deviceId').where('deviceId', 'in', deviceIds);
  return (await rows.where('deadline', '<=', now).where(isOpenDelivery).execute()).map(({ deviceId }) => deviceId);
}
