/** The interfaces between the broker and the rest of the service. At run time they share only the access rules. */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import type { LogInput, MessageStore, Point } from '../db/messages/store.ts';
import type { Placement, Registry } from '../db/registry/index.ts';
import type { Access, Caller, Channel } from './access.ts';
import type { AccountGate } from './account-gate.ts';
import type { Clock } from './clock.ts';
import type { Config } from './config.ts';
import type { Allowance, Failure } from './errors.ts';
import type { HiddenNumbers } from './formats/hidden-numbers.ts';
import { type Entry, Gathered } from './limits/gathered.ts';
import { keepNewest } from './limits/kept.ts';
import { laneOfAddress } from './limits/lanes.ts';
import { exceeded } from './limits/table.ts';
import type { Cause, causeNow, onBehalfOf } from './log.ts';
import { listenWide } from './network/accepting.ts';
import { endEvents } from './network/event-bodies.ts';
import { Handshakes } from './network/handshakes.ts';
import type { Position } from './network/positions.ts';
import type { Lane } from './scheduler/lanes.ts';
import type { DownlinkChannel } from './topics.ts';

export {
  type Cause,
  type Entry,
  endEvents,
  exceeded,
  Gathered,
  Handshakes,
  type HiddenNumbers,
  keepNewest,
  type Lane,
  laneOfAddress,
  listenWide,
};

/** The points of a payload, or why it holds none. */
export type PointsRead = { points: Point[] } | { reason: string };

/** A channel of the device template `entityId`. */
export interface ChannelAddress {
  accountId: string;
  entityId: string;
  name: string;
}

/** Counts of what a change of rights ended over MQTT; a filter counts once for its session, live or stored. */
export interface Revoked {
  connections: number;
  subscriptions: number;
}

/**
 * What follows when somebody loses a right: call it after the commit, and when `access` has been told. All effects have taken
 * place when a method returns or resolves.
 */
export interface Revocations {
  /** The secret of a device or entity is another one: connections end, without their wills. */
  secretReplaced(entityId: string): Revoked;
  /** Another secret is in force besides the former one: connections made with an older one end, without their wills. */
  secretOverlaps(entityId: string): Revoked;
  /** A certificate, or a CA, is registered no more: the connections that it let in end, without their wills. */
  certificateEnded(id: string): Revoked;
  /** A CA is registered: TLS sessions are not resumed any more, for they lack the CAs between it and a device. */
  authorityRegistered(): void;
  /** A login session is over: its connections end, without their wills. */
  loginEnded(sessionId: string): Revoked;
  /** As loginEnded, for every session that another process has ended. */
  loginsEnded(): void;
  /** An identity or an application is gone, with its connections and stored sessions. */
  principalDeleted(accountId: string, id: string): Promise<Revoked>;
  /** The rights of an identity may have shrunk; an identity without any reach counts as deleted. */
  identityChanged(accountId: string, userId: string): Promise<Revoked>;
  /** As identityChanged, for an end-user or account user that has a secret of its own. */
  entityChanged(accountId: string, entityId: string): Promise<Revoked>;
  /** A device is in another organization than `before`. */
  deviceMoved(device: Placement, before: string | null): Promise<Revoked>;
  /** A device is in the trash. */
  deviceDeleted(device: Placement): Promise<Revoked>;
  /** An organization stood below `before`, and stands elsewhere in the tree. */
  organizationMoved(organization: { id: string; accountId: string }, before: string | null): Promise<Revoked>;
  /** A channel of a device template is in the trash. */
  channelDeleted(channel: ChannelAddress): Promise<Revoked>;
}

/** Messages of callers that have no connection. */
export interface Publisher {
  /**
   * Proves a username and password as CONNECT does, under the same limits: late where too many have failed, and not at
   * all where too many were wrong for one username from one address.
   */
  prove(username: string, password: string, address: string): Promise<ProvenCaller | ProofRefusal>;
  /**
   * Proves the client certificate of a socket, under the same limits. `username` is the id of the device or of its account,
   * or empty. Undefined if the socket has none.
   */
  proveCertificate(socket: Socket, username: string, address: string): Promise<ProvenCaller | ProofRefusal | undefined>;
  /** The decision about a caller's PUBLISH on a topic, or SUBSCRIBE to a filter, without carrying it out. */
  decide(caller: Caller, action: 'publish' | 'subscribe', topic: string): 'granted' | 'refused' | 'malformed';
  /**
   * Publishes as a caller that has no connection: what PUBACK promises is true when it resolves. Refusals
   * are explained as over MQTT, and here.
   * @throws PlatformError 429/-199 past the rates of one client; what the store says when it takes nothing more.
   */
  publish(caller: Caller, message: Direct): Promise<Published>;
  /**
   * Stores a log entry that came over HTTP and delivers it on the device's `_log`; its id when it is on disk, as before
   * a PUBACK. Rejects when it could not be stored.
   */
  logPosted(device: Placement, entry: LogInput & { received: number }, payload: Buffer): Promise<string>;
}

/** Callers over HTTP that hear what happens. */
export interface Streams {
  /**
   * Live messages as server-sent events, under the rights of SUBSCRIBE; destroyed when the caller is cut
   * off or does not read. Destroy it when the reader is gone.
   */
  open(caller: Caller, request: StreamRequest): Readable | StreamRefusal;
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

/** What the service itself says to devices. */
export interface Downlink {
  /**
   * Publishes on `_firmware` or `_commands` of a device at QoS 1. Resolves when its connections have taken the message. It
   * is not kept for a device that is away.
   */
  send(device: DeviceName, channel: DownlinkChannel, payload: Buffer): Promise<void>;
  /**
   * Publishes on the control topic `<control root>/<device id>/cln`. Resolves when the device's connections have taken
   * the message, so that a caller that awaits it keeps one message in memory. Nothing happens without a subscription.
   */
  sendControl(deviceId: string, payload: Buffer, qos: 0 | 1): Promise<void>;
  /** Whether the device itself is connected and has subscribed to the channel, or to its control topic. */
  listens(device: DeviceName, channel: DownlinkChannel | 'control'): boolean;
  /** Publishes the changed fields of a device on its `_updates/fields`. */
  deviceUpdated(device: Placement, changes: Record<string, unknown>): void;
}

/** What the broker says of itself. */
export interface BrokerState {
  /** Where it listens; the port that was chosen when the configuration said 0. */
  readonly addresses: { mqtt: number; mqtts: number | undefined };
  /** The account's amounts here, as its limits count them. */
  kept(accountId: string): BrokerKept;
  /** Resolves when what has been noted of a device's refusals can be read. */
  refusalsStored(deviceId: string): Promise<void>;
}

/** The amounts that the broker keeps for an account: numbers, and the bytes of retained messages. */
export interface BrokerKept {
  storedSessions: number;
  /** In the queues of stored sessions: a message counts for each of its places. */
  queueBytes: number;
  retained: number;
  retainedBytes: number;
  unreleased: number;
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

/** A user's connection is valid until the session ends; `expires` in milliseconds since 1970. */
export interface VerifiedSession {
  caller: Caller;
  sessionId: string;
  expires: number;
  /** Milliseconds: the connection ends when the session has not been used for so long. */
  tokenLifetime: number;
}

/** Why a secret was not accepted: unknown or wrong, or right for an entity that may not connect now (in the trash). */
export type SecretCheck =
  | { result: 'proven'; caller: Caller; generation: number }
  | { result: 'wrong' }
  | { result: 'refused' };

/** The certificate of a client, which has proven in the TLS handshake that it holds the key. */
export interface PresentedCertificate {
  own: X509Certificate;
  /** Further certificates that it sent: CAs between it and a registered one. */
  others: readonly X509Certificate[];
}

/**
 * As SecretCheck, of a certificate; `certificateId` is what let it in, it or a CA, until `expires` (milliseconds). A refusal
 * names the device where the certificate is its.
 */
export type CertificateCheck =
  | { result: 'proven'; caller: Caller; certificateId: string; expires: number }
  | { result: 'wrong'; reason: string; deviceId?: string }
  | { result: 'refused'; reason: string; deviceId: string };

/** Why a message was refused or not stored; `errorBody` makes of it what `_rejected` says. */
export type Rejection = Failure;

/** The caller that has proven a password. */
export interface ProvenCaller {
  caller: Caller;
  /** As what it may act now; undefined when it has been cut off since. */
  currentCaller(): Caller | undefined;
}

/**
 * Why a username and password were not accepted: `wrong` (an invalid token, too), right for an entity that may not
 * speak now (in the trash, say), or not looked at, past the limit whose variable is `limit`.
 */
export interface ProofRefusal {
  refused: 'wrong' | 'notNow' | 'tooMany';
  limit?: string;
  allowance?: Allowance;
}

/** A message that comes without a connection. */
export interface Direct {
  topic: string;
  payload: Buffer;
  qos: 0 | 1 | 2;
  retain: boolean;
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

/**
 * What has become of it: refused when it was not delivered; delivered with a rejection when it could not be stored, all of
 * it. `points` are those that were.
 */
export interface Published {
  delivered: boolean;
  rejection?: Rejection | undefined;
  points?: number;
}

/** A device, as messages name it. */
export interface DeviceName {
  accountId: string;
  deviceId: string;
}

/** The service behind the channels for firmware and commands. */
export interface DownlinkService {
  /**
   * Takes what a device has published on `_firmware/status` or `_commands/replies`; PUBACK waits until it resolves.
   * Resolves to the rejection when the payload cannot be used.
   */
  take(device: DeviceName, channel: string, payload: Buffer): Promise<Rejection | undefined>;
  /**
   * The device itself hears this channel from now on: it has subscribed, or taken up a session that has. `isNamed` when a
   * filter is exactly this topic; otherwise a wildcard matches it.
   */
  listening(device: DeviceName, channel: DownlinkChannel, isNamed: boolean): void;
  /** The last connection of the device has ended. */
  disconnected(device: DeviceName): void;
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
   * Takes a message of a device; PUBACK waits until it resolves. The messages of one connection come in order, and the
   * next may come before this one resolves. Resolves to the rejection when the payload cannot be used: it goes into the
   * device's list of refusals and counts as a refused message, and the connection stays.
   */
  take(device: { accountId: string; deviceId: string }, payload: Buffer): Promise<Rejection | undefined>;
  /** The device has subscribed to `<control root>/<device id>/cln`, and its SUBACK is written. */
  listening(device: { accountId: string; deviceId: string }): void;
}

/** Checks a client's certificate against registered certificates and CAs. */
export interface CertificateChecks {
  /** Whether any certificate or CA is registered; until then clients are not asked for one. */
  areUsed(): boolean;
  /** Whether the owner is known without checking signatures. */
  isKnown(presented: PresentedCertificate): boolean;
  /** Whether a certificate, or a CA, is registered and has not expired. */
  isLive(id: string): boolean;
  /** Finds the device of a certificate, or creates it where a CA allows it. `username` is its id, or empty. */
  check(presented: PresentedCertificate, username: string, address: string | undefined): Promise<CertificateCheck>;
}

/** A message that has been accepted on a channel, no matter who published it. */
export interface AcceptedMessage {
  accountId: string;
  deviceId: string;
  channel: Channel;
  qos: number;
  payload: Uint8Array;
}

/** The bridges of accounts: they take over messages of channels with a `streamBridgeDelivery`. */
export interface BridgeService {
  /** Whether messages of this channel go to a bridge of the account. */
  takes(message: Pick<AcceptedMessage, 'accountId' | 'channel'>): boolean;
  /** How many rows of the outbox a message of this channel takes: one for each bridge of the account. */
  outboxRowsOf(message: Pick<AcceptedMessage, 'accountId' | 'channel'>): number;
  /** The reason why a message of this channel cannot be guaranteed now: no room for what the account has pending. */
  refusal(message: Pick<AcceptedMessage, 'accountId' | 'channel'>): Error | undefined;
  /** Calls `done` once: for level 2 when the message is on disk, or with the error for which it is not; for level 1 at once. */
  take(message: AcceptedMessage, done: (error?: Error) => void): void;
}

/** What the broker stands on. It imports nothing else of `src` at run time but the access rules. */
export interface BrokerGround {
  config: Config;
  clock: Clock;
  log: Logger;
  gate: AccountGate;
  access: Access;
  registry: Registry;
  messages: MessageStore;
  certificates: CertificateChecks;
  isOpenSession(sessionId: string): boolean;
  /** Whether the secret of this generation still lets the entity in; it may be the previous one. */
  isInForce(entityId: string, generation: number): boolean;
  /** The whole state of a device as `_updates/fields` shows it; undefined when it is gone. */
  deviceState(deviceId: string): Promise<Record<string, unknown> | undefined>;
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
  /** Where an address is; undefined when nobody knows. */
  positionOf(address: string): Position | undefined;
  /** Undefined when the token is not that of a live session. */
  verifyToken(jwt: string): Promise<VerifiedSession | undefined>;
  /** A packet has come, or a stream is being read: the login session through which the caller acts is in use. */
  sessionUsed(sessionId: string, accountId: string): void;
  /** Whether a login session has not been used for so many milliseconds. */
  hasRested(sessionId: string, lifetime: number): boolean;
  verifySecret(entityId: string, secret: string, address: string): Promise<SecretCheck>;
  /** Whether this secret has been proven before and is still the one in force: at once, without a hash. */
  isProvenSecret(entityId: string, secret: string): boolean;
  /** A secret has let a connection in; whether the previous one, which worked besides it, has ended by that. */
  secretConnected(entityId: string, generation: number): Promise<boolean>;
  /** Ends the previous secrets whose time is over; the entities that have had one. */
  endPreviousSecrets(): Promise<string[]>;
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
