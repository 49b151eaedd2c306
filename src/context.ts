/** Composition root: everything that is made once and passed on. Owners close what they open, in reverse order. */
import type { Logger } from 'pino';
import type { Placement, Registry } from '../db/index.js';
import type { LogInput, MessageStore, Point } from '../db/series.js';
import type { Access, Caller } from './access.js';
import type { Config } from './config.js';

/** The time, replaceable in tests. Milliseconds since 1970. */
export interface Clock {
  now(): number;
}

/** What a resource may ask of the broker. All effects have taken place when a method returns. */
export interface Broker {
  /** Ends every connection of a device, without its will; the number ended. */
  disconnectDevice(deviceId: string): number;
  /** Ends every connection that was opened in a session, without its will; the number ended. */
  disconnectSession(sessionId: string): number;
  /** Looks again at the connections of an identity: those with nothing left in reach end. */
  identityChanged(userId: string): number;
  /** Publishes the changed fields of a device on its `_updates/fields`. */
  deviceUpdated(device: Placement, changes: Record<string, unknown>): void;
  /** Where it listens; the port that was chosen when the configuration said 0. */
  readonly addresses: { mqtt: number; mqtts: number | undefined };
}

/** A user's connection is valid until the session ends; `expires` in milliseconds since 1970. */
export interface VerifiedSession {
  caller: Caller;
  sessionId: string;
  expires: number;
}

/** Why a secret was not accepted: unknown or wrong, or right for an entity that may not connect now (in the trash). */
export type SecretCheck =
  | { result: 'proven'; caller: Caller; generation: number }
  | { result: 'wrong' }
  | { result: 'refused' };

/** What a refused message says on `_rejected` (decisions 5). */
export interface Rejection {
  code: number;
  message: string;
  details: Array<{ message: string; path?: string }>;
}

/** What the broker needs of the rest. It imports nothing else of `src` at run time but the access rules. */
export interface BrokerServices {
  config: Config;
  clock: Clock;
  log: Logger;
  access: Access;
  registry: Registry;
  messages: MessageStore;
  /** Undefined when the token is not that of a live session. */
  verifyToken(jwt: string): Promise<VerifiedSession | undefined>;
  verifySecret(entityId: string, secret: string): Promise<SecretCheck>;
  /** Whether the credential that was proven is still the one in force. */
  isCurrentGeneration(deviceId: string, generation: number): boolean;
  /** Points of a payload on a stored channel, or the reason why it holds none. `now` in milliseconds. */
  readPoints(payload: Buffer, now: number): { points: Point[] } | { reason: string };
  /** A log entry of a payload on `_log`; any payload makes one. */
  readLogEntry(payload: Buffer, now: number): LogInput;
  /** Applies a `_set/fields` payload, all or nothing; the rejection when it was refused. */
  setFields(caller: Caller, deviceId: string, payload: Buffer): Promise<Rejection | undefined>;
  /** The whole state of a device as `_updates/fields` shows it; undefined when it is gone. */
  deviceState(deviceId: string): Promise<Record<string, unknown> | undefined>;
}
