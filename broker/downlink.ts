import type { Placement } from '../db/registry/index.ts';
import { controlTopic, type DownlinkChannel } from '../src/core/topics.ts';
import type { BrokerBase, DeviceAddress, Downlink } from '../src/ports/broker-ports.ts';
import type { Authority } from './authorize.ts';
import type { Sessions } from './connections/live-clients.ts';
import type { ServiceChannels } from './service-channels.ts';
import { matches } from './topics.ts';

interface Parts {
  services: Pick<BrokerBase, 'config'>;
  authority: Pick<Authority, 'ownChannelsOf'>;
  sessions: Pick<Sessions, 'of'>;
  channels: ServiceChannels;
}

export class DeviceDownlink implements Downlink {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  send(
    { accountId, deviceId }: DeviceAddress,
    channel: DownlinkChannel,
    payload: Buffer,
    expires?: number,
  ): Promise<void> {
    return this.#parts.channels.sendDown({ accountId, deviceId }, channel, payload, expires);
  }

  sendControl(deviceId: string, payload: Buffer, qos: 0 | 1): Promise<void> {
    return this.#parts.channels.sendControl(deviceId, payload, qos);
  }

  listens({ accountId, deviceId }: DeviceAddress, channel: DownlinkChannel | 'control'): boolean {
    const { services, authority, sessions } = this.#parts;
    const own = authority.ownChannelsOf({ kind: 'device', id: deviceId, accountId });
    const topic =
      channel === 'control' ? controlTopic(services.config.controlRoot, deviceId, 'cln') : `${own}${channel}`;
    for (const { ready, ended, filters } of sessions.of(deviceId))
      if (ready && !ended) for (const filter of filters) if (matches(filter, topic)) return true;
    return false;
  }

  deviceUpdated({ id, accountId }: Placement, changes: Record<string, unknown>): void {
    this.#parts.channels.deviceUpdated({ deviceId: id, accountId }, changes);
  }
}
