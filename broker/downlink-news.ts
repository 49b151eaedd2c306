/** Tells the services that have work for devices (firmware, commands) who listens and who has gone. */
import type { Logger } from 'pino';
import { onBehalfOf } from '../src/core/log.ts';
import { downlinkChannels } from '../src/core/topics.ts';
import type { DeviceAddress, DownlinkService } from '../src/ports/broker-ports.ts';
import { connectedDevice } from './authorize.ts';
import type { LiveClient } from './client-types.ts';
import type { Sessions } from './connections/live-clients.ts';
import { matches } from './topics.ts';

type NewsServices = { downlink: DownlinkService; log: Pick<Logger, 'error'> };

/** Passes on what connections of devices do. Nothing that a receiver throws ends a connection. */
export class DownlinkNews {
  readonly #services: NewsServices;
  readonly #sessions: Pick<Sessions, 'of'>;

  constructor(services: NewsServices, sessions: Pick<Sessions, 'of'>) {
    this.#services = services;
    this.#sessions = sessions;
  }

  /** Tells that this connection of a device has subscribed to channels with work for it; nothing for other callers. */
  subscribed(live: LiveClient, filters: readonly string[]): void {
    const { ownChannels } = live.identity ?? {};
    const device = connectedDevice(live);
    if (!device || ownChannels === undefined || live.ended) return;
    for (const channel of downlinkChannels) {
      const isNamed = filters.includes(ownChannels + channel);
      if (isNamed || filters.some((filter) => matches(filter, ownChannels + channel)))
        this.#tell(device, (downlink) => downlink.listening(device, channel, isNamed));
    }
  }

  /** A connection of a device has ended. If it was the last one, tells that the device is gone. */
  ended(device: DeviceAddress): void {
    if (!this.#isConnected(device)) this.#tell(device, (downlink) => downlink.disconnected(device));
  }

  #isConnected({ deviceId }: DeviceAddress): boolean {
    for (const { ready, ended } of this.#sessions.of(deviceId)) if (ready && !ended) return true;
    return false;
  }

  #tell({ accountId, deviceId }: DeviceAddress, tell: (downlink: DownlinkService) => void): void {
    const { downlink } = this.#services;
    try {
      onBehalfOf({ lane: { accountId, callerId: deviceId } }, () => tell(downlink));
    } catch (error) {
      this.#services.log.error({ err: error }, 'the work for a device could not be looked at');
    }
  }
}
