/** Anyone who loses a right loses what was on its way because of it: offers, downloads, commands, before the answer leaves. */
import type { Registry } from '../../db/registry/index.ts';
import type { Access } from '../access.ts';
import type { Broker } from '../broker-ports.ts';
import { isOpenCommand } from './commands/command.ts';
import type { Commands } from './commands/commands.ts';
import { openDelivery } from './rollouts/deliveries.ts';
import type { FirmwareEngine } from './rollouts/engine.ts';
import { isOpenDelivery, type Target } from './rollouts/rollout.ts';
import type { Downloads } from './ways/downloads.ts';

interface Parts {
  registry: Registry;
  access: Access;
  firmwareEngine: FirmwareEngine;
  downloads: Downloads;
  commands: Commands;
}

/** Rows that are looked at together. */
const atOnce = 500;

/** The broker, whose revocations end the work for devices as well. */
export function endingDownlink<B extends Broker>(broker: B, parts: Parts): B {
  const { downloads } = parts;
  const also: Partial<Broker> = {
    secretReplaced(entityId) {
      // Its URLs are void by the new generation of its secret.
      downloads.endOf(entityId);
      return broker.secretReplaced(entityId);
    },
    async deviceMoved(device, before) {
      const revoked = await broker.deviceMoved(device, before);
      await deviceMoved(parts, device.id);
      await lostByMakers(parts, { deviceId: device.id });
      return revoked;
    },
    async deviceDeleted(device) {
      const revoked = await broker.deviceDeleted(device);
      downloads.endOf(device.id);
      await parts.firmwareEngine.end([device.id], 'cancelled', 'The device was deleted.');
      await cancelCommands(parts, { deviceId: device.id }, () => true);
      return revoked;
    },
    async organizationMoved(organization, before) {
      const revoked = await broker.organizationMoved(organization, before);
      await organizationMoved(parts, organization.accountId);
      await lostByMakers(parts, { accountId: organization.accountId });
      return revoked;
    },
    async identityChanged(accountId, userId) {
      const revoked = await broker.identityChanged(accountId, userId);
      await lostByMakers(parts, { createdById: userId });
      return revoked;
    },
    async entityChanged(accountId, entityId) {
      const revoked = await broker.entityChanged(accountId, entityId);
      await lostByMakers(parts, { createdById: entityId });
      return revoked;
    },
    async principalDeleted(accountId, id) {
      const revoked = await broker.principalDeleted(accountId, id);
      await cancelCommands(parts, { createdById: id }, () => true);
      return revoked;
    },
  };
  return Object.assign(Object.create(broker) as B, also);
}

/** Ends the offers of a device that moved. The rollout offers again if the device still belongs to it. */
async function deviceMoved({ registry, access, firmwareEngine, downloads }: Parts, deviceId: string): Promise<void> {
  downloads.endOf(deviceId);
  const delivery = await openDelivery(registry.query, deviceId);
  if (!delivery) return;
  const place = access.placement(deviceId)?.organizationId ?? null;
  const target = await targetOf(registry, delivery.rolloutId);
  if (isWithin(access, target, place)) await firmwareEngine.renew(deviceId);
  else await firmwareEngine.end([deviceId], 'cancelled', 'The device was moved out of the target of the rollout.');
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

/** Devices of rollouts that are for an organization, and that are in it no longer. */
async function organizationMoved(parts: Parts, accountId: string): Promise<void> {
  const { registry, access, firmwareEngine, downloads } = parts;
  const rollouts = await registry.query
    .selectFrom('firmwareRollouts')
    .select(['id', 'target'])
    .where('accountId', '=', accountId)
    .where('finished', 'is', null)
    .execute();
  for (const { id, target } of rollouts) {
    const wanted = JSON.parse(target) as Target;
    if (wanted.organizationId === undefined) continue;
    for (let after: string | undefined = ''; after !== undefined; ) {
      const page: Array<{ deviceId: string }> = await registry.query
        .selectFrom('firmwareDeliveries')
        .select('deviceId')
        .where('rolloutId', '=', id)
        .where('deviceId', '>', after)
        .where(isOpenDelivery)
        .orderBy('deviceId')
        .limit(atOnce)
        .execute();
      const ids = page.map(({ deviceId }) => deviceId);
      const gone = ids.filter((one) => !isWithin(access, wanted, access.placement(one)?.organizationId ?? null));
      for (const one of gone) downloads.endOf(one);
      await firmwareEngine.end(gone, 'cancelled', 'The device was moved out of the target of the rollout.');
      after = page.length < atOnce ? undefined : ids.at(-1);
    }
  }
}

type Which = { deviceId?: string; accountId?: string; createdById?: string };

/** Commands whose makers reach their devices no longer. */
function lostByMakers(parts: Parts, which: Which): Promise<void> {
  const { access } = parts;
  return cancelCommands(parts, which, ({ createdById, deviceId }) => {
    const maker =
      access.callerOf(createdById) ?? access.callerOfApplication(createdById) ?? access.callerOfEntity(createdById);
    return !maker || !access.may(maker, 'create', 'command') || !access.reachableDevice(maker, deviceId);
  });
}

async function cancelCommands(
  { registry, commands }: Parts,
  { deviceId, accountId, createdById }: Which,
  isLost: (command: { id: string; deviceId: string; createdById: string }) => boolean,
): Promise<void> {
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
  }
}
