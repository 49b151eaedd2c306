/**
 * Continuous rollouts: each attaches its fleet. A device that begins to match after the stages gets the package at once, one that ceases to
 * match before it has begun loses it. Which devices have left is on disk, so that after a start the fleet tells what happened meanwhile.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Logger } from 'pino';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Access } from '../../core/access.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { queueRun } from '../../core/scheduler/runs.ts';
import type { Attached, AttachedFleets } from '../../registry/devices/attached-fleets.ts';
import { packageOf } from './deliveries.ts';
import { mayGoOn, pauseLost } from './responsible.ts';
import { hasEnded, isOpenDelivery, type Rollout, type StoredTarget, stagesOf } from './rollout.ts';
import { settled } from './stages.ts';
import { takeUp } from './take-up.ts';

/** Devices that are taken, or withdrawn, in one transaction; and that are read together. */
const atOnce = 100;
const pageSize = 500;

interface Services {
  registry: Registry;
  access: Access;
  clock: Clock;
  ages: Clock;
  gate: AccountGate;
  log: Logger;
  attachedFleets: AttachedFleets;
}

/** After a commit: rollouts that it has changed, and devices that have another offer than before, or none. */
type Announce = (rollouts: readonly Rollout[], deviceIds: readonly string[]) => Promise<void>;

export class ContinuousRollouts {
  readonly #services: Services;
  readonly #announce: Announce;
  readonly #living = new Map<string, { attached: Attached }>();
  /** By rollout: devices enter and leave one after the other. */
  readonly #runs = new Map<string, Promise<void>>();

  constructor(services: Services, announce: Announce) {
    this.#services = services;
    this.#announce = announce;
  }

  /** Attaches the fleets of those that have begun to live here, and detaches those of others. */
  async followAll(away: readonly string[]): Promise<void> {
    const { registry, attachedFleets } = this.#services;
    const rows = registry.query.selectFrom('firmwareRollouts').selectAll().where('continuous', '=', 1);
    const living = await rows.where('finished', 'is', null).where('accountId', 'not in', away).execute();
    const ids = new Set(living.map(({ id }) => id));
    for (const [id, { attached }] of this.#living)
      if (!ids.has(id)) {
        attached.detach();
        this.#living.delete(id);
      }
    for (const rollout of living) {
      const { id, accountId, target } = rollout;
      const { fleetId } = JSON.parse(target) as StoredTarget;
      if (this.#living.has(id) || fleetId === undefined) continue;
      const attached = attachedFleets.attach(
        { id: fleetId, accountId },
        {
          entered: (deviceIds) => this.#queue(rollout, deviceIds, (some) => this.#enter(rollout, some)),
          left: (deviceIds) => this.#queue(rollout, deviceIds, (some) => this.#withdraw(rollout, some)),
          known: () => this.#known(id),
        },
      );
      this.#living.set(id, { attached });
    }
  }

  async stop(): Promise<void> {
    for (const { attached } of this.#living.values()) attached.detach();
    this.#living.clear();
    await Promise.all(this.#runs.values());
  }

  /** What could not be done is told again after the next start. */
  #queue(
    { id, accountId }: Rollout,
    deviceIds: readonly string[],
    work: (some: readonly string[]) => Promise<void>,
  ): void {
    const { gate, log } = this.#services;
    const run = queueRun(this.#runs, id, async () => {
      for (let at = 0; at < deviceIds.length && this.#living.has(id); at += atOnce) {
        const some = deviceIds.slice(at, at + atOnce);
        await gate.workFor(accountId, () => work(some));
        await nextTurn();
      }
    });
    run.catch((error) => {
      log.error({ err: error, rolloutId: id }, 'devices of a continuous rollout could not be changed');
      // Attached anew, the fleet tells the difference to what is on disk.
      this.#living.get(id)?.attached.detach();
      this.#living.delete(id);
    });
  }

  /** Until its last stage has begun, stages take who matches then. One that is paused takes them too, and offers nothing. */
  async #enter({ id }: Rollout, deviceIds: readonly string[]): Promise<void> {
    const { registry, access, clock, ages } = this.#services;
    const result = await registry.transaction(async (tx) => {
      const found = await findEntity(tx, 'firmwareRollouts', id);
      if (!found || hasEnded(found) || found.stage < stagesOf(found).length - 1) return undefined;
      const problem = this.#living.get(id)?.attached.problem ?? null;
      const why = problem === null ? undefined : `The filter of the target no longer works. ${problem}`;
      const isLost = found.state === 'running' && (why !== undefined || !mayGoOn(access, found));
      const rollout = isLost ? await pauseLost(tx, found, why) : found;
      const own = await this.#ownOf(tx, rollout, deviceIds);
      const deadline = ages.now() + rollout.deviceDeadlineSeconds * 1000;
      const { arisen, replaced } = await takeUp(tx, clock, rollout, own, deadline, true);
      const rollouts = [rollout];
      for (const one of new Set([id, ...replaced.map(({ rolloutId }) => rolloutId)]))
        rollouts.push(...((await settled(tx, clock, one)) ?? []));
      return { rollouts, arisen };
    });
    if (!result) return;
    await nextTurn();
    await this.#announce(result.rollouts, result.arisen);
  }

  /** Those that are of its template, and not of a newer continuous one, which decides also before its stages have come to them. */
  async #ownOf(tx: Tx, rollout: Rollout, deviceIds: readonly string[]): Promise<string[]> {
    const { id, accountId } = rollout;
    const { deviceTemplateId } = await packageOf(tx, { rolloutId: id });
    const devices = tx.selectFrom('devices').select('id').where('id', 'in', deviceIds).where('deleted', 'is', null);
    const found = await devices.where('deviceTemplateId', '=', deviceTemplateId).execute();
    const newer = await tx
      .selectFrom('firmwareRollouts as r')
      .innerJoin('firmwarePackages as p', 'p.id', 'r.firmwarePackageId')
      .select('r.id')
      .where('r.continuous', '=', 1)
      .where('r.finished', 'is', null)
      .where('r.accountId', '=', accountId)
      .where('r.id', '>', id)
      .where('p.deviceTemplateId', '=', deviceTemplateId)
      .execute();
    const holders = newer.flatMap((one) => this.#living.get(one.id)?.attached ?? []);
    return found.map((device) => device.id).filter((one) => !holders.some((attached) => attached.has(one)));
  }

  /** Notes that they have left; those that have not begun lose the offer. */
  async #withdraw({ id }: Rollout, deviceIds: readonly string[]): Promise<void> {
    const { registry, clock } = this.#services;
    const { rollouts, withdrawn } = await registry.transaction(async (tx) => {
      const own = tx.updateTable('firmwareDeliveries').where('rolloutId', '=', id).where('deviceId', 'in', deviceIds);
      await own.set({ left: 1 }).execute();
      const end = { state: 'cancelled', message: 'It has ceased to match the fleet.', updated: timestamp(clock) };
      const ended = own.set(end).where(isOpenDelivery).where('state', 'in', ['pending', 'offered']);
      const withdrawn = (await ended.returning('deviceId').execute()).map(({ deviceId }) => deviceId);
      return { withdrawn, rollouts: withdrawn.length > 0 ? ((await settled(tx, clock, id)) ?? []) : [] };
    });
    if (withdrawn.length === 0) return;
    const rollout = await findEntity(registry.query, 'firmwareRollouts', id);
    await nextTurn();
    await this.#announce([...(rollout ? [rollout] : []), ...rollouts], withdrawn);
  }

  /** The devices that it has, or had, and that have not left. */
  async *#known(rolloutId: string): AsyncGenerator<string[]> {
    for (let after: string | undefined = ''; after !== undefined; ) {
      const rows: Array<{ deviceId: string }> = await this.#services.registry.query
        .selectFrom('firmwareDeliveries')
        .select('deviceId')
        .where('rolloutId', '=', rolloutId)
        .where('deviceId', '>', after)
        .where('left', '=', 0)
        .orderBy('deviceId')
        .limit(pageSize)
        .execute();
      yield rows.map(({ deviceId }) => deviceId);
      after = rows.length < pageSize ? undefined : rows.at(-1)?.deviceId;
    }
  }
}
