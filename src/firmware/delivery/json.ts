/** Firmware and commands over MQTT, as JSON on the service channels of a device. */
import type { Logger } from 'pino';
import type { Commands } from '../../commands/commands.ts';
import { readReply } from '../../commands/replies.ts';
import type { Access } from '../../core/access.ts';
import { failure, PlatformError } from '../../core/errors.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { DownlinkChannel } from '../../core/topics.ts';
import type { DeviceAddress, Downlink, DownlinkService } from '../../ports/downlink.ts';
import type { Rejection } from '../../ports/publisher.ts';
import type { FirmwareEngine, Listener } from '../rollouts/engine.ts';
import { readReport } from '../rollouts/reports.ts';

interface Parts {
  access: Access;
  firmwareEngine: FirmwareEngine;
  commands: Commands;
  log: Logger;
}

/** Devices that are told of a change at a time. */
export const toldAtOnce = 100;

/** Tells devices that listen on `_firmware` and `_commands`, and takes what they say. */
export class DownlinkMessages implements DownlinkService, Listener {
  readonly #parts: Parts;
  readonly #downlink: Pick<Downlink, 'send' | 'listens'>;

  constructor(parts: Parts, downlink: Pick<Downlink, 'send' | 'listens'>) {
    this.#parts = parts;
    this.#downlink = downlink;
  }

  async takeReport(device: DeviceAddress, channel: string, payload: Buffer): Promise<Rejection | undefined> {
    const { firmwareEngine, commands } = this.#parts;
    try {
      if (channel === '_commands/replies') await commands.reply(device, readReply(payload));
      else
        await firmwareEngine.report(
          { kind: 'device', id: device.deviceId, accountId: device.accountId },
          readReport(payload),
        );
      return undefined;
    } catch (error) {
      if (!(error instanceof PlatformError) || error.kind === 'server') throw error;
      return failure(error.kind, error);
    }
  }

  /** A device that has not asked for this very topic is not told that there is nothing. */
  listening(device: DeviceAddress, channel: DownlinkChannel, isNamed: boolean): void {
    const { commands } = this.#parts;
    if (channel === '_commands') commands.listening(device);
    else void this.#told(device, isNamed);
  }

  /** As #tell. Never rejects. */
  #told(device: DeviceAddress, orNone: boolean): Promise<void> {
    const { log } = this.#parts;
    return this.#sendOffer(device, orNone).catch((error) =>
      log.error({ err: error, deviceId: device.deviceId }, 'an offer could not be sent'),
    );
  }

  disconnected(device: DeviceAddress): void {
    this.#parts.commands.disconnected(device);
  }

  async offersChanged(deviceIds: readonly string[]): Promise<void> {
    const longWork = new LongWork();
    // Offers are noted together: one after the other, each would wait for its own transaction.
    const told: Array<Promise<void>> = [];
    for (const deviceId of deviceIds) {
      await longWork.giveWay();
      if (told.length >= toldAtOnce) await Promise.all(told.splice(0));
      const placement = this.#parts.access.placement(deviceId);
      if (!placement || placement.deleted !== null) continue;
      const device = { deviceId, accountId: placement.accountId };
      if (this.#downlink.listens(device, '_firmware')) told.push(this.#told(device, true));
    }
    await Promise.all(told);
  }

  /** Sends the offer of a device; `orNone` says that there is none, too. */
  async #sendOffer(device: DeviceAddress, orNone: boolean): Promise<void> {
    const { offers } = this.#parts.firmwareEngine;
    const offer = await offers.makeOffer(device.deviceId);
    if (!offer && !orNone) return;
    const said = offer ? offers.show(offer) : { files: [] };
    await this.#downlink.send(device, '_firmware', Buffer.from(JSON.stringify(said)));
  }
}
