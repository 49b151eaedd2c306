/** All that the broker needs of the rest of the service. The services themselves, by what they do, are in `src/ports`. */
import type { Logger } from 'pino';
import type { LogInput, MessageStore, Point } from '../db/messages/store.ts';
import type { Registry } from '../db/registry/index.ts';
import type { Access } from './access.ts';
import type { AccountGate } from './account-gate.ts';
import type { Caller } from './caller.ts';
import type { Clock } from './clock.ts';
import type { Config } from './config.ts';
import type { HiddenNumbers } from './formats/hidden-numbers.ts';
import type { causeNow, onBehalfOf } from './log.ts';
import type { Position } from './network/positions.ts';
import type { BridgeService } from './ports/bridges.ts';
import type { ControlService, DeviceWork, DownlinkService } from './ports/downlink.ts';
import type { EnrollmentService } from './ports/enrollment.ts';
import type { CertificateChecks, PresentCredential, SecretCheck, VerifiedSession } from './ports/proofs.ts';
import type { Rejection } from './ports/publisher.ts';
import type { RenewalService } from './ports/renewals.ts';
import type { Lane } from './scheduler/lanes.ts';

export type * from './ports/bridges.ts';
export type * from './ports/broker-state.ts';
export type * from './ports/downlink.ts';
export type * from './ports/enrollment.ts';
export type * from './ports/proofs.ts';
export type * from './ports/publisher.ts';
export type * from './ports/revocations.ts';
export type * from './ports/streams.ts';

/** The points of a payload, or why it holds none. */
export type PointsRead = { points: Point[] } | { reason: string };

/** What the broker stands on. */
export interface BrokerGround {
  config: Config;
  clock: Clock;
  /** By which sessions and messages are over. */
  ages: Clock;
  log: Logger;
  gate: AccountGate;
  access: Access;
  registry: Registry;
  messages: MessageStore;
  certificates: CertificateChecks;
  isOpenSession(sessionId: string): boolean;
  /** Whether the secret of this generation still lets the entity in; it may be the previous one. */
  isInForce(entityId: string, generation: number): boolean;
  /** The whole state of a device as `_updates/fields` shows it to somebody; undefined when it is gone. */
  deviceState(caller: Caller, deviceId: string): Promise<Record<string, unknown> | undefined>;
}

/** The services behind the broker. */
export interface BrokerServices extends BrokerGround {
  /** Where messages of channels with a `streamBridgeDelivery` go. */
  bridges: BridgeService;
  /** Positions in the message store, shown to readers of streams. */
  numbers: HiddenNumbers;
  control: ControlService;
  downlink: DownlinkService;
  deviceWork: DeviceWork;
  enrollment: EnrollmentService;
  /** Where an address is; undefined when nobody knows. */
  positionOf(address: string): Position | undefined;
  /** Undefined when the token is not that of a live session. */
  verifyToken(jwt: string): Promise<VerifiedSession | undefined>;
  /** As verifyToken, of a token that a program has; `sessionId` is the id of the token. */
  verifyAccessToken(text: string, address: string | undefined): Omit<VerifiedSession, 'tokenLifetime'> | undefined;
  /** The ids of the tokens that a person or an application has made. */
  tokensOf(ownerId: string): readonly string[];
  /** A packet has come, or a stream is being read: the login session through which the caller acts is in use. */
  sessionUsed(sessionId: string, accountId: string): void;
  /** Whether a login session has not been used for so many milliseconds. */
  hasRested(sessionId: string, lifetime: number): boolean;
  verifySecret(entityId: string, secret: string, address: string): Promise<SecretCheck>;
  /** Whether this secret has been proven before and is still the one in force: at once, without a hash. */
  isProvenSecret(entityId: string, secret: string): boolean;
  /** A connection with this credential has its CONNACK; whether a former one has ended by that. */
  credentialConnected(entityId: string, credential: PresentCredential): Promise<boolean>;
  /** Ends the former credentials whose time is over; the entities that have had one. */
  endPreviousCredentials(): Promise<string[]>;
  /** The next credential of a device that asks for it on `_credentials`. */
  renewals: RenewalService;
  /** Grows with each secret that is made for an entity; undefined for one that has none. */
  generationOf(entityId: string): number | undefined;
  payloads: {
    /**
     * Points of a payload on a stored channel, whose template says the form, or the reason why it holds none; a promise
     * where a thread reads it, in which lanes take turns. `now` in milliseconds.
     */
    read(lane: Lane, payload: Buffer, now: number, form: string): PointsRead | Promise<PointsRead>;
  };
  retention: {
    /** The points that are young enough to be kept, and why the others are not; `retentionDays` is the channel's own. */
    split(accountId: string, retentionDays: number | null, points: Point[]): { kept: Point[]; reason?: string };
  };
  /** A log entry of a payload on `_log`; any payload makes one. */
  readLogEntry(payload: Buffer, now: number): LogInput;
  /** Logs and writes on behalf of a connection, and names the current cause. */
  onBehalfOf: typeof onBehalfOf;
  causeNow: typeof causeNow;
  /** Applies a `_set/fields` payload, all or nothing; the rejection when it was refused. */
  setFields(caller: Caller, deviceId: string, payload: Buffer): Promise<Rejection | undefined>;
}
