/** What devices are told, and what they say of themselves. */
import type { Caller } from '../core/caller.ts';
import type { ControlService, DownlinkService } from './downlink.ts';
import type { Rejection } from './publisher.ts';

export interface DeviceStates {
  /** The whole state of a device as `_updates/fields` shows it to somebody; undefined when it is gone. */
  state(caller: Caller, deviceId: string): Promise<Record<string, unknown> | undefined>;
}

export interface DeviceService extends DeviceStates {
  /** Applies a `_set/fields` payload, all or nothing; the rejection when it was refused. */
  setFields(caller: Caller, deviceId: string, payload: Buffer): Promise<Rejection | undefined>;
  downlink: DownlinkService;
  control: ControlService;
}
