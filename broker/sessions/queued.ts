import type { GroupName } from '../message-types.ts';

/** A message in the queue of one stored session, or the PUBREL that has taken its place. */
export interface Queued {
  /** As the disk knows it. */
  readonly id: number;
  /** Its place among all messages. */
  readonly counter: number;
  /** Set once it has been sent, or is about to be. */
  packetId: number | undefined;
  released: boolean;
  /** With which it is sent, each time [MQTT-4.4.0-1]; undefined until that is decided. */
  qos: 1 | 2 | undefined;
  /** Bytes of its topic, payload and properties. */
  readonly size: number;
  /** Milliseconds since 1970. */
  readonly expires: number | undefined;
  /** The group for which its session was chosen; undefined for an ordinary subscription, and after a restart. */
  readonly group: GroupName | undefined;
  /** The device of the message; undefined until it is looked up, if it comes from the disk. */
  device: string | undefined;
}
