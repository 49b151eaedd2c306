/** Composition root: everything that is made once and passed on. Owners close what they open, in reverse order. */
import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { openBroker } from '../broker/index.js';
import { finishReplacement } from '../db/incoming.js';
import { lockDirectory, type Placement, Registry } from '../db/index.js';
import { type LogInput, MessageStore, type Point } from '../db/series.js';
import { Access, type Caller } from './access.js';
import { Audit } from './audit.js';
import { Bridges } from './bridges/index.js';
import { watchChanges } from './changes.js';
import { type Config, ConfigError } from './config.js';
import { Fields } from './entity/fields.js';
import { type Allowance, PlatformError } from './errors.js';
import { Jobs } from './factory/engine.js';
import { Health } from './health.js';
import { SecretAnswers } from './idempotency.js';
import { TextedCodes } from './identity/factors.js';
import { LoginLimits } from './identity/login-limits.js';
import { Passwords } from './identity/passwords.js';
import { Sealing } from './identity/sealing.js';
import { Secrets } from './identity/secrets.js';
import { Sessions } from './identity/sessions.js';
import { Tokens } from './identity/tokens.js';
import { causeNow, onBehalfOf, openLog } from './log.js';
import { Keeping } from './messages/keeping.js';
import { readLogEntry, readPoints } from './messages/payload.js';
import { Retention } from './messages/retention.js';
import { type Position, Positions } from './positions.js';
import { type CreatedAccount, createAccount } from './registry/accounts.js';
import { ClientCertificates } from './registry/client-certificates.js';
import { checkSecret, isInForce, knownGeneration } from './registry/credentials.js';
import { readState, setState } from './registry/device-state.js';
import { Overlaps } from './registry/overlaps.js';
import { Revocations } from './revocations.js';
import { openSenders } from './senders/index.js';
import { LetterLimits } from './senders/letter-limits.js';

/** The time, replaceable in tests. Milliseconds since 1970. */
export interface Clock {
  now(): number;
}

/** Sends letters; resolves when the next one in line has taken it over. */
export interface Mail {
  send(letter: { to: string; subject: string; text: string }): Promise<void>;
}

/** Sends text messages; `to` is a phone number as it was given. */
export interface Sms {
  send(message: { to: string; text: string }): Promise<void>;
}

/** A channel of the device template `entityId`. */
export interface ChannelAddress {
  accountId: string;
  entityId: string;
  name: string;
}

/** What a change of rights has ended over MQTT; a filter counts once for its session, live or stored. */
export interface Revoked {
  connections: number;
  subscriptions: number;
}

/**
 * What a resource may ask of the broker, after its commit and when `access` has been told. All effects have taken place
 * when a method returns or resolves (decisions 5).
 */
export interface Broker {
  /** The secret of a device or entity is another one: connections end, without their wills. */
  secretReplaced(entityId: string): Revoked;
  /** A certificate, or a CA, is registered no more: the connections that it let in end, without their wills. */
  certificateEnded(id: string): Revoked;
  /** A CA is registered: TLS sessions are not resumed any more, for they lack the CAs between it and a device. */
  authorityRegistered(): void;
  /** Another secret is in force besides the former one: connections made with an older one end, without their wills. */
  secretOverlaps(entityId: string): Revoked;
  /** A login session is over: its connections end, without their wills. */
  loginEnded(sessionId: string): Revoked;
  /** As loginEnded, for every session that another process has ended. */
  loginsEnded(): void;
  /** An identity or an application is gone, with its connections and stored sessions. */
  principalDeleted(accountId: string, id: string): Revoked;
  /** What an identity may act as may be less now; with nothing left in reach it is as good as gone. */
  identityChanged(accountId: string, userId: string): Promise<Revoked>;
  /** As identityChanged, for an end-user or account user that has a secret of its own. */
  entityChanged(accountId: string, entityId: string): Promise<Revoked>;
  /** A device stands in another organization than `before`. */
  deviceMoved(device: Placement, before: string | null): Promise<Revoked>;
  /** A device is in the trash. */
  deviceDeleted(device: Placement): Promise<Revoked>;
  /** An organization stood below `before`, and stands elsewhere in the tree. */
  organizationMoved(organization: { id: string; accountId: string }, before: string | null): Promise<Revoked>;
  /** A channel of a device template is in the trash. */
  channelDeleted(channel: ChannelAddress): Promise<Revoked>;
  /** Publishes the changed fields of a device on its `_updates/fields`. */
  deviceUpdated(device: Placement, changes: Record<string, unknown>): void;
  /**
   * Proves a username and password as CONNECT does, under the same limits: late where too many have failed, and not at
   * all where too many were wrong for one username from one address.
   */
  prove(username: string, password: string, address: string): Promise<ProvenCaller | ProofRefusal>;
  /**
   * Publishes as a caller that has no connection (decisions 7): what PUBACK promises is true when it resolves. Refusals
   * are explained as over MQTT, and here.
   * @throws PlatformError 429/-199 past the rates of one client; what the store says when it takes nothing more.
   */
  publish(caller: Caller, message: Direct): Promise<Published>;
  /**
   * Live messages as server-sent events (decisions 7), under the rights of SUBSCRIBE; destroyed when the caller is cut
   * off or does not read. Destroy it when the reader is gone.
   */
  stream(caller: Caller, request: StreamRequest): Readable | StreamRefusal;
  /** Ends every stream; readers may come back. */
  endStreams(): void;
  /**
   * Stores a log entry that came over HTTP and delivers it on the device's `_log`; its id when it is on disk, as before
   * a PUBACK. Rejects when it could not be stored.
   */
  logPosted(device: Placement, entry: LogInput & { received: number }, payload: Buffer): Promise<string>;
  /** What would become of a caller's PUBLISH on a topic, or of its SUBSCRIBE to a filter: the decision itself. */
  decide(caller: Caller, action: 'publish' | 'subscribe', topic: string): 'granted' | 'refused' | 'malformed';
  /**
   * Waits for signs of life of a device, until its login session is over at `expires` (milliseconds since 1970). Undefined
   * when the caller waits for too many; close it in every case.
   */
  watchDevice(caller: Caller, deviceId: string, expires: number): DeviceWatch | undefined;
  /** Ends every such wait: the process ends. */
  endWatches(): void;
  /** Resolves when what has been noted of a device's refusals can be read. */
  refusalsStored(deviceId: string): Promise<void>;
  /** Where it listens; the port that was chosen when the configuration said 0. */
  readonly addresses: { mqtt: number; mqtts: number | undefined };
}

/** What somebody hears who waits for a device: it did something; the caller is logged out; the process ends. */
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
}

/** Why a secret was not accepted: unknown or wrong, or right for an entity that may not connect now (in the trash). */
export type SecretCheck =
  | { result: 'proven'; caller: Caller; generation: number }
  | { result: 'wrong' }
  | { result: 'refused' };

/** What a client has shown in the TLS handshake, having proven that it holds the key of the first. */
export interface PresentedCertificate {
  own: X509Certificate;
  /** What it has sent along: CAs between it and one that is registered. */
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

/** What a refused message says on `_rejected` (decisions 5). */
export interface Rejection {
  code: number;
  message: string;
  details: Array<{ message: string; path?: string }>;
}

/** Who has proven a password. */
export interface ProvenCaller {
  caller: Caller;
  /** As what it may act now; undefined when it has been cut off since. */
  standing(): Caller | undefined;
}

/**
 * Why a username and password were not accepted: `wrong` (a token that is none, too), right for an entity that may not
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

/** What the broker needs of the rest. It imports nothing else of `src` at run time but the access rules. */
export interface BrokerServices {
  config: Config;
  clock: Clock;
  log: Logger;
  access: Access;
  registry: Registry;
  messages: MessageStore;
  /** Where messages of channels with a `streamBridgeDelivery` go. */
  bridges: Pick<Bridges, 'takes' | 'refusal' | 'take'>;
  /** Where an address is; undefined when nobody knows. */
  positionOf(address: string): Position | undefined;
  /** Undefined when the token is not that of a live session. */
  verifyToken(jwt: string): Promise<VerifiedSession | undefined>;
  isOpenSession(sessionId: string): boolean;
  certificates: Pick<ClientCertificates, 'areUsed' | 'isKnown' | 'isLive' | 'check'>;
  verifySecret(entityId: string, secret: string): Promise<SecretCheck>;
  /** Whether this secret has been proven before and is still the one in force: at once, without a hash. */
  isProvenSecret(entityId: string, secret: string): boolean;
  /** Whether the secret of this generation still lets the entity in; it may be the previous one (decisions 6). */
  isInForce(entityId: string, generation: number): boolean;
  /** A secret has let a connection in; whether the previous one, which worked besides it, has ended by that. */
  secretConnected(entityId: string, generation: number): Promise<boolean>;
  /** Ends the previous secrets whose time is over; the entities that have had one. */
  endPreviousSecrets(): Promise<string[]>;
  /** Grows with each secret that is made for an entity; undefined for one that has none. */
  generationOf(entityId: string): number | undefined;
  /** Points of a payload on a stored channel, or the reason why it holds none. `now` in milliseconds. */
  readPoints(payload: Buffer, now: number): { points: Point[] } | { reason: string };
  /** The points that are young enough to be kept, and why the others are not; `retentionDays` is the channel's own. */
  withinRetention(accountId: string, retentionDays: number | null, points: Point[]): { kept: Point[]; reason?: string };
  /** A log entry of a payload on `_log`; any payload makes one. */
  readLogEntry(payload: Buffer, now: number): LogInput;
  /** What logs on behalf of a connection, and on whose behalf something is done now. */
  onBehalfOf: typeof onBehalfOf;
  causeNow: typeof causeNow;
  /** Applies a `_set/fields` payload, all or nothing; the rejection when it was refused. */
  setFields(caller: Caller, deviceId: string, payload: Buffer): Promise<Rejection | undefined>;
  /** The whole state of a device as `_updates/fields` shows it; undefined when it is gone. */
  deviceState(deviceId: string): Promise<Record<string, unknown> | undefined>;
}

/** What every resource is given. */
export interface Context {
  config: Config;
  clock: Clock;
  log: Logger;
  registry: Registry;
  messages: MessageStore;
  retention: Retention;
  keeping: Keeping;
  bridges: Bridges;
  access: Access;
  fields: Fields;
  secretAnswers: SecretAnswers;
  overlaps: Overlaps;
  passwords: Passwords;
  secrets: Secrets;
  certificates: ClientCertificates;
  tokens: Tokens;
  sessions: Sessions;
  sealing: Sealing;
  audit: Audit;
  loginLimits: LoginLimits;
  mail: Mail;
  letterLimits: LetterLimits;
  sms: Sms;
  textedCodes: TextedCodes;
  revocations: Revocations;
  broker: Awaited<ReturnType<typeof openBroker>>;
  jobs: Jobs;
  health: Health;
}

/** What tests put in the place of the real thing. */
export interface Overrides {
  clock?: Clock;
  log?: Logger;
  mail?: Mail;
  sms?: Sms;
}

/** Everything built on one data directory, and its end. */
export interface Opened {
  ctx: Context;
  close(): Promise<void>;
}

/** Opens the data directory and builds everything. @throws ConfigError when the directory cannot be used. */
export async function openContext(config: Config, overrides: Overrides = {}): Promise<Opened> {
  const clock = overrides.clock ?? { now: () => Date.now() };
  const log = overrides.log ?? openLog(config.logLevel);
  const closers: Array<() => unknown> = [];
  const close = async () => {
    for (const closer of closers.splice(0).reverse()) await closer();
  };
  try {
    const lock = holdDirectory(config.dataDir);
    closers.push(() => lock.release());
    finishReplacement(config.dataDir);
    const positions = await openPositions(config, log);
    closers.push(() => positions.close());
    const registry = await Registry.open(config.dataDir);
    closers.push(() => registry.close());
    const messages = await MessageStore.open(config.dataDir, { log, now: () => clock.now() });
    closers.push(() => messages.close());
    const keeping = await Keeping.start({ config, messages, log });
    closers.push(() => keeping.stop());
    const retention = await Retention.open({ config, registry, clock });
    const tokens = await Tokens.open(join(config.dataDir, 'keys'), clock);
    const passwords = new Passwords();
    const access = new Access(registry);
    const fields = new Fields(registry);
    const secretAnswers = await SecretAnswers.open(registry);
    const overlaps = await Overlaps.open(registry, clock);
    const sessions = new Sessions({ registry, tokens, clock, access });
    const audit = new Audit({ registry, clock, log });
    closers.push(() => audit.close());
    const sealing = Sealing.open(join(config.dataDir, 'keys'));
    const bridges = await Bridges.open({ config, clock, log, registry, messages, access, sealing });
    closers.push(() => bridges.close());
    const senders = await openSenders(config);
    const sms = overrides.sms ?? senders.sms;
    const base = {
      config,
      clock,
      log,
      registry,
      messages,
      retention,
      keeping,
      bridges,
      access,
      fields,
      secretAnswers,
      overlaps,
      passwords,
      secrets: new Secrets(),
      certificates: new ClientCertificates({ registry, access, clock, audit, fields, log }),
      tokens,
      sessions,
      sealing,
      audit,
      loginLimits: new LoginLimits(registry, clock, config.loginFailures),
      mail: overrides.mail ?? senders.mail,
      letterLimits: new LetterLimits(clock),
      sms,
      textedCodes: new TextedCodes({ clock, sealing, sms }),
      revocations: new Revocations(),
    };
    const broker = await openBroker(brokerServices({ ...base, positions }, () => ctx));
    closers.push(() => broker.close());
    const jobs = new Jobs({ ...base, broker });
    closers.push(() => jobs.stop());
    const ctx: Context = { ...base, broker, jobs, health: new Health({ ...base, broker }) };
    const watching = watchChanges(
      config.dataDir,
      () => takeChanges(ctx),
      (error) => log.error({ err: error }, 'changes of the command line could not be taken over'),
    );
    closers.push(() => watching.stop());
    return { ctx, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** What the command line can change beside a running server: signing keys, admins, applications, sessions. */
async function takeChanges({ tokens, access, broker }: Context): Promise<void> {
  await tokens.reload();
  access.identitiesChanged();
  broker.loginsEnded();
}

/** The broker is built before the context is whole; what it asks for later goes through `ctx()`. */
function brokerServices(
  { positions, ...base }: Omit<Context, 'broker' | 'jobs' | 'health'> & { positions: Positions },
  ctx: () => Context,
): BrokerServices {
  const { registry, sessions, retention } = base;
  return {
    ...base,
    positionOf: (address) => positions.of(address),
    verifyToken: async (jwt) => {
      const authenticated = await sessions.authenticate(jwt);
      if (!authenticated) return undefined;
      const { caller, session } = authenticated;
      base.audit.used(caller, { over: 'mqtt' }, 'mqtt');
      return { caller, sessionId: session.id, expires: Date.parse(session.expires) };
    },
    isOpenSession: (id) => sessions.isOpen(id),
    verifySecret: (entityId, secret) => checkSecret(base, entityId, secret),
    isProvenSecret: (entityId, secret) => knownGeneration(base, entityId, secret) !== undefined,
    isInForce: (entityId, generation) => isInForce(base, entityId, generation),
    secretConnected: (entityId, generation) => base.overlaps.connected(entityId, generation),
    endPreviousSecrets: () => base.overlaps.endDue(),
    generationOf: (entityId) => registry.credential(entityId)?.generation,
    onBehalfOf,
    causeNow,
    readPoints,
    withinRetention: (accountId, days, points) => retention.split(accountId, days, points),
    readLogEntry,
    setFields: (caller, deviceId, payload) => setState(ctx(), caller, deviceId, payload),
    deviceState: (deviceId) => readState(base, deviceId),
  };
}

/** @throws ConfigError when the configured file is none. */
async function openPositions({ geoipDatabase }: Config, log: Logger): Promise<Positions> {
  try {
    return await Positions.open(geoipDatabase, log);
  } catch (error) {
    throw new ConfigError(`SLIPWAY_GEOIP_DATABASE cannot be used: ${geoipDatabase}: ${(error as Error).message}`);
  }
}

/** @throws ConfigError in one sentence: the system's own does not say which directory, nor who has chosen it. */
function holdDirectory(directory: string): { release(): void } {
  try {
    return lockDirectory(directory);
  } catch (error) {
    throw new ConfigError(`SLIPWAY_DATA_DIR cannot be used: ${directory}: ${(error as Error).message}`);
  }
}

/**
 * The first account, when there is none yet (decisions 1): its password is in the answer and nowhere else.
 * @throws ConfigError when the configured e-mail or password breaks the rules.
 */
export async function createFirstAccount({ config, ...services }: Context): Promise<CreatedAccount | undefined> {
  const existing = await services.registry.query.selectFrom('accounts').select('id').limit(1).executeTakeFirst();
  if (existing) return undefined;
  const { id, name, adminEmail = 'admin@slipway.local', adminPassword } = config.firstAccount;
  try {
    return await createAccount(services, { id, name, adminEmail, adminPassword });
  } catch (error) {
    const [detail] = error instanceof PlatformError ? error.details : [];
    if (!detail) throw error;
    const variable = detail.path === 'adminPassword' ? 'SLIPWAY_ADMIN_PASSWORD' : 'SLIPWAY_ADMIN_EMAIL';
    throw new ConfigError(`${variable} ${detail.message}.`);
  }
}
