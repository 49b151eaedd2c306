/** Who loses a right loses what was on its way to devices because of it: commands, offers, downloads. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Registry } from '../../db/registry/index.ts';
import { isOpenCommand } from '../commands/command.ts';
import type { Commands } from '../commands/commands.ts';
import type { Access } from '../core/access.ts';
import type { Downloads } from '../firmware/delivery/downloads.ts';
import { openDelivery, openDevices } from '../firmware/rollouts/deliveries.ts';
import type { FirmwareEngine } from '../firmware/rollouts/engine.ts';
import { mayGoOn, pauseLost } from '../firmware/rollouts/responsible.ts';
import type { Target } from '../firmware/rollouts/rollout.ts';
import type { DeviceWork, WhoseCommands } from '../ports/downlink.ts';

interface Parts {
  registry: Registry;
  access: Access;
  firmwareEngine: FirmwareEngine;
  downloads: Downloads;
  commands: Commands;
}

/** Rows that are looked at together: a caller may have made commands, or a rollout offers, for a whole fleet. */
const atOnce = 100;

export class OpenDeviceWork implements DeviceWork {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  cancelCommands(whose: WhoseCommands): Promise<void> {
    return this.#cancel(whose, () => true);
  }

  cancelLostCommands(whose: WhoseCommands): Promise<void> {
    const { access } = this.#parts;
    return this.#cancel(whose, ({ createdById, deviceId }) => {
      const maker = access.callerOfPrincipal(createdById);
      return !maker || !access.reachableDevice(maker, deviceId, 'create', 'command');
    });
  }

  async #cancel(
    { deviceId, accountId, createdById }: WhoseCommands,
    isLost: (command: { id: string; deviceId: string; createdById: string }) => boolean,
  ): Promise<void> {
    const { registry, commands } = this.#parts;
    for (let after = 0; ; ) {
      let open = registry.query
        .selectFrom('commands')
        .select(['id', 'sequence', 'deviceId', 'createdById'])
        .where(isOpenCommand);
      if (deviceId !== undefined) open = open.where('deviceId', '=', deviceId);
      if (accountId !== undefined) open = open.where('accountId', '=', accountId);
      if (createdById !== undefined) open = open.where('createdById', '=', createdById);
      const rows = await open.where('sequence', '>', after).orderBy('sequence').limit(atOnce).execute();
      await commands.cancel(rows.filter(isLost));
      if (rows.length < atOnce) return;
      after = rows.at(-1)?.sequence ?? after;
      await nextTurn();
    }
  }

  async pauseLostRollouts(accountId: string): Promise<void> {
    const { registry, access, firmwareEngine } = this.#parts;
    const open = registry.query.selectFrom('firmwareRollouts').selectAll().where('accountId', '=', accountId);
    const lost = (await open.where('state', 'in', ['scheduled', 'running']).execute()).filter(
      (rollout) => rollout.deleted === null && !mayGoOn(access, rollout),
    );
    for (const rollout of lost) firmwareEngine.changed(await registry.transaction((tx) => pauseLost(tx, rollout)));
  }

  endDownloads(deviceId: string): void {
    this.#parts.downloads.endOf(deviceId);
  }

  async endOffers(deviceId: string): Promise<void> {
    this.endDownloads(deviceId);
    await this.#parts.firmwareEngine.endDeliveries([deviceId], 'cancelled', 'The device was deleted.');
  }

  async endOffersAfterMove(deviceId: string): Promise<void> {
    const { registry, access, firmwareEngine } = this.#parts;
    this.endDownloads(deviceId);
    const delivery = await openDelivery(registry.query, deviceId);
    if (!delivery) return;
    const place = access.placement(deviceId)?.organizationId ?? null;
    if (isWithin(access, await targetOf(registry, delivery.rolloutId), place))
      await firmwareEngine.renewOffer(deviceId);
    else await this.#endMoved([deviceId]);
  }

  async endOffersOutsideTargets(accountId: string): Promise<void> {
    const rollouts = await this.#parts.registry.query
      .selectFrom('firmwareRollouts')
      .select(['id', 'target'])
      .where('accountId', '=', accountId)
      .where('finished', 'is', null)
      .execute();
    for (const { id, target } of rollouts) {
      const wanted = JSON.parse(target) as Target;
      if (wanted.organizationId !== undefined) await this.#endOutside(id, wanted);
    }
  }

  /** Ends the offers of a rollout to devices that are in its target no longer. */
  async #endOutside(rolloutId: string, target: Target): Promise<void> {
    const { registry, access } = this.#parts;
    for (let after: string | undefined = ''; after !== undefined; ) {
      const ids: string[] = await openDevices(registry.query, rolloutId, after, atOnce);
      const gone = ids.filter((one) => !isWithin(access, target, access.placement(one)?.organizationId ?? null));
      for (const one of gone) this.endDownloads(one);
      await this.#endMoved(gone);
      after = ids.length < atOnce ? undefined : ids.at(-1);
      await nextTurn();
    }
  }

  async #endMoved(deviceIds: readonly string[]): Promise<void> {
    const message = 'The device was moved out of the target of the rollout.';
    await this.#parts.firmwareEngine.endDeliveries(deviceIds, 'cancelled', message);
  }
}

async function targetOf({ query }: Registry, rolloutId: string): Promise<Target> {
  const rows = query.selectFrom('firmwareRollouts').select('target').where('id', '=', rolloutId);
  return JSON.parse((await rows.executeTakeFirstOrThrow()).target) as Target;
}

function isWithin(access: Access, { organizationId, filter }: Target, place: string | null): boolean {
  if (organizationId !== undefined) return access.isWithin(place, [organizationId]);
  const wanted = (filter as { organizationId?: string } | undefined)?.organizationId;
  return wanted === undefined || wanted === (place ?? 'null');
}
