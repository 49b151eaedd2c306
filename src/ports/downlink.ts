/** Firmware and commands: what is said to devices, and what they answer. */
import type { Placement } from '../../db/registry/index.ts';
import type { DownlinkChannel } from '../core/topics.ts';
import type { Rejection } from './publisher.ts';

/** What the service itself says to devices. */
export interface Downlink {
  /**
   * Publishes on `_firmware` or `_commands` of a device at QoS 1. Resolves when its connections have taken the message. It
   * is not kept for a device that is away. `expires` in milliseconds since 1970.
   */
  send(device: DeviceAddress, channel: DownlinkChannel, payload: Buffer, expires?: number): Promise<void>;
  /**
   * Publishes on the control topic `<control root>/<device id>/cln`. Resolves when the device's connections have taken
   * the message, so that a caller that awaits it keeps one message in memory. Nothing happens without a subscription.
   */
  sendControl(deviceId: string, payload: Buffer, qos: 0 | 1): Promise<void>;
  /** Whether the device itself is connected and has subscribed to the channel, or to its control topic. */
  listens(device: DeviceAddress, channel: DownlinkChannel | 'control'): boolean;
  /** Publishes the changed fields of a device on its `_updates/fields`. */
  deviceUpdated(device: Placement, changes: Record<string, unknown>): void;
}

/** A device, as messages name it. */
export interface DeviceAddress {
  accountId: string;
  deviceId: string;
}

/** The service behind the channels for firmware and commands. */
export interface DownlinkService {
  /**
   * Takes what a device has published on `_firmware/status` or `_commands/replies`; PUBACK waits until it resolves.
   * Resolves to the rejection when the payload cannot be used.
   */
  takeReport(device: DeviceAddress, channel: string, payload: Buffer): Promise<Rejection | undefined>;
  /**
   * The device itself hears this channel from now on: it has subscribed, or taken up a session that has. `isNamed` when a
   * filter is exactly this topic; otherwise a wildcard matches it.
   */
  listening(device: DeviceAddress, channel: DownlinkChannel, isNamed: boolean): void;
  /** The last connection of the device has ended. */
  disconnected(device: DeviceAddress): void;
}

/** Of a device, of an account, or of a maker. */
export interface WhoseCommands {
  deviceId?: string;
  accountId?: string;
  createdById?: string;
}

/** Commands and offers of firmware that are open. All of it is on disk, and told, when a method resolves. */
export interface DeviceWork {
  cancelCommands(whose: WhoseCommands): Promise<void>;
  /** Cancels commands whose makers reach their devices no longer. */
  cancelLostCommands(whose: WhoseCommands): Promise<void>;
  /** Pauses the rollouts of an account whose makers may roll out firmware no longer. */
  pauseLostRollouts(accountId: string): Promise<void>;
  /** Ends what a device downloads; it may begin again. */
  endDownloads(deviceId: string): void;
  /** The device is in the trash. */
  endOffers(deviceId: string): Promise<void>;
  /** Ends the offer of a device that has moved. The rollout offers again if the device still belongs to it. */
  endOffersAfterMove(deviceId: string): Promise<void>;
  /** Ends the offers to devices of an account that are in the target of their rollout no longer. */
  endOffersOutsideTargets(accountId: string): Promise<void>;
}

/** The service behind the control topics. A device publishes to `<control root>/<device id>/svc`. */
export interface ControlService {
  /**
   * Takes a message of a device; PUBACK waits until it resolves, and the next may come before. Resolves to the rejection when the
   * payload cannot be used: it goes into the device's list of refusals, and the connection stays. If it rejects, there is no PUBACK
   * and the connection ends, so that the device sends the message again.
   */
  takeMessage(device: DeviceAddress, payload: Buffer): Promise<Rejection | undefined>;
  /** The device has subscribed to `<control root>/<device id>/cln`, and its SUBACK is written. */
  listening(device: DeviceAddress): void;
}
