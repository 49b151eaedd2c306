/** Channels of devices: those of their template, and those that no list shows. */
import type { ChannelRow } from '../../db/registry/index.ts';
import { type Caller, isAccountWide } from './caller.ts';
import { serviceChannel, serviceChannelNames, serviceChannels } from './topics.ts';

/** A live channel template, and whether it is a service channel. */
export interface Channel extends ChannelRow {
  service: boolean;
}

/** Channels for firmware, commands and credentials: every device has them, and no list shows them. */
export const unlistedChannels: ReadonlyMap<string, Channel> = new Map(
  serviceChannelNames
    .filter((name) => !serviceChannels[name].listed)
    .map((name) => [
      name,
      {
        id: name,
        name,
        accountId: '',
        persistenceType: 'simple',
        streamBridgeDelivery: 0,
        retentionDays: null,
        service: true,
      } as Channel,
    ]),
);

/** Whether this kind of caller may hear a channel of this name on a device in its reach: end-users hear only listed ones. */
export function mayHearChannel(caller: Caller, name: string): boolean {
  if (caller.kind === 'device' || !unlistedChannels.has(name)) return true;
  return isAccountWide(caller) && serviceChannel(name)?.isPrivate !== true;
}
