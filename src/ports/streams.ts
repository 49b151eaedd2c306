/** Callers over HTTP that hear what happens. */
import type { Readable } from 'node:stream';
import type { Caller } from '../core/caller.ts';

/** Callers over HTTP that hear what happens. */
export interface Streams {
  /**
   * Live messages as server-sent events, under the rights of SUBSCRIBE; destroyed when the caller is cut
   * off or does not read. Destroy it when the reader is gone.
   */
  open(caller: Caller, request: StreamRequest): Readable | StreamRefusal;
  /** Tells the admins and back-ends of an account who listen, whatever they listen to, that a device has enrolled. */
  tellEnrollment(accountId: string, enrollment: Readonly<Record<string, string>>): void;
  /** Tells those readers of the account who may read both that a device has begun or ceased to match a fleet. */
  tellFleet(change: FleetChange): void;
  /** Ends every stream; readers may come back. */
  endAll(): void;
  /**
   * Waits for signs of life of a device, until its login session is over at `expires` (milliseconds since 1970). Undefined
   * when the caller waits for too many; close it in every case.
   */
  watchDevice(caller: Caller, deviceId: string, expires: number): DeviceWatch | undefined;
  /** Ends every such wait: the process ends. */
  endWatches(): void;
}

/** The fleet and the device with the places by which callers reach them; `time` in ISO 8601. */
export interface FleetChange {
  accountId: string;
  fleet: { id: string; organizationId: string | null };
  device: { id: string; organizationId: string | null };
  entered: boolean;
  time: string;
}

/** Events for a caller that waits for a device: it acted; the caller is logged out; the process ends. */
export type DeviceSign = 'sign' | 'cutOff' | 'stopping';

/** Somebody waits for a device. */
export interface DeviceWatch {
  /** Whether the device is connected now, with its newest credential. */
  readonly isConnected: boolean;
  /** The next sign from now on: take it before the look, so that nothing falls in between. */
  next(): Promise<DeviceSign>;
  close(): void;
}

/** `after` is the id of the last event that was received; `expires` in milliseconds since 1970. */
export interface StreamRequest {
  filters: readonly string[];
  after: string | undefined;
  expires: number;
}

/** Why there is no stream: logged out, none or too many filters, the one at `place` (from 1), the id, or too many streams. */
export interface StreamRefusal {
  refused: 'cutOff' | 'number' | 'malformed' | 'outOfReach' | 'id' | 'tooMany';
  place?: number;
}
