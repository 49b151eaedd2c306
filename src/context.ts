/** Composition root: everything that is made once and passed on. Owners close what they open, in reverse order. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import { type Broker, layFoundation, openBroker } from '../broker/index.ts';
import { FirmwareFiles } from '../db/files/firmware.ts';
import { finishReplacement } from '../db/files/incoming.ts';
import { type Fence, takeOver } from '../db/files/lock.ts';
import { MessageStore } from '../db/messages/store.ts';
import { removeAccounts } from '../db/moving/index.ts';
import { Registry } from '../db/registry/index.ts';
import { Slices } from '../db/sqlite/slices.ts';
import { Access } from './access.ts';
import { Audit } from './audit/index.ts';
import { Bridges } from './bridges/index.ts';
import type { BrokerGround, BrokerServices, Downlink, Publisher, Revocations, Streams } from './broker-ports.ts';
import type { Clock } from './clock.ts';
import { type Config, ConfigError } from './config.ts';
import { Commands } from './downlink/commands/commands.ts';
import { OpenDeviceWork } from './downlink/open-work.ts';
import { Collector } from './downlink/packages/contents.ts';
import { FirmwareEngine } from './downlink/rollouts/engine.ts';
import { Progress } from './downlink/rollouts/progress.ts';
import { ControlMessages } from './downlink/ways/control-topics.ts';
import { Downloads } from './downlink/ways/downloads.ts';
import { DownlinkMessages } from './downlink/ways/json.ts';
import { openSenders } from './emails/index.ts';
import { EmailLimits } from './emails/limits.ts';
import type { Mail, Sms } from './emails/mail.ts';
import { Fields } from './entity/fields.ts';
import { SecretAnswers } from './entity/kept-answers.ts';
import { Jobs } from './factory/jobs/engine.ts';
import { LabelDrawer } from './factory/results/label-drawer.ts';
import { Health } from './http/health.ts';
import { RevokedCounts } from './http/revoked-counts.ts';
import { TextedCodes } from './identity/mfa/factors.ts';
import { Passwords } from './identity/secrets/passwords.ts';
import { Sealing } from './identity/secrets/sealing.ts';
import { Secrets } from './identity/secrets/secrets.ts';
import { LoginLimits } from './identity/sessions/login-limits.ts';
import { lifetimeOf, Sessions } from './identity/sessions/sessions.ts';
import { Tokens } from './identity/sessions/tokens.ts';
import { SessionUses } from './identity/sessions/uses.ts';
import { FairQueue } from './limits/fair-queue.ts';
import { Merged } from './limits/merged.ts';
import { causeNow, laneNow, onBehalfOf, openLog } from './log.ts';
import { Keeping } from './messages/keeping.ts';
import { readLogEntry } from './messages/payload/log-entry.ts';
import { PayloadReader } from './messages/payload/reader.ts';
import { Retention } from './messages/retention.ts';
import { Moves } from './moves.ts';
import { Positions } from './network/positions.ts';
import { watchChanges } from './process/changes.ts';
import { holdDirectory } from './process/start-checks.ts';
import { ClientCertificates } from './registry/certificates/client-certificates.ts';
import { checkSecret, isInForce as isInForceIn, knownGeneration } from './registry/credentials/credentials.ts';
import { Overlaps } from './registry/credentials/overlaps.ts';
import { type FieldsWaiting, readState, setState } from './registry/devices/state.ts';
import { LongReads } from './threads/long-reads.ts';

/** Rows of an ordinary piece of a list, and pieces that may wait. */
const ordinaryRead = 50;
const maxReads = { ofCaller: 1000, ofAccount: 4000 };

/** The services that every resource module gets. */
export interface Context {
  config: Config;
  /** Whether this process still holds the data directory. */
  fence: Fence;
  clock: Clock;
  log: Logger;
  /** Accounts on their way to or from another server. */
  moves: Moves;
  registry: Registry;
  messages: MessageStore;
  firmware: FirmwareFiles;
  firmwareEngine: FirmwareEngine;
  downloads: Downloads;
  commands: Commands;
  collector: Collector;
  retention: Retention;
  keeping: Keeping;
  payloads: PayloadReader;
  labels: LabelDrawer;
  /** Pieces of long lists and exports: one is made at a time. */
  reads: FairQueue;
  longReads: LongReads;
  /** Counts of lists that are not kept yet: one of an account is made at a time, or they would take each other's places. */
  firstCounts: FairQueue;
  /** Long lists and exports that are being sent: each holds memory until its reader has taken it. */
  longAnswers: FairQueue;
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
  emailLimits: EmailLimits;
  sms: Sms;
  textedCodes: TextedCodes;
  revocations: Revocations;
  /** What each request has ended. */
  revoked: RevokedCounts;
  publisher: Publisher;
  streams: Streams;
  downlink: Downlink;
  broker: Broker;
  jobs: Jobs;
  health: Health;
}

/** Replacements that tests pass. */
export interface Overrides {
  clock?: Clock;
  log?: Logger;
  mail?: Mail;
  sms?: Sms;
  passwords?: Passwords;
  /** Bytes that are free on the disk of the data directory. */
  freeOnDisk?: () => Promise<number>;
}

/** Everything built on one data directory, and its end. */
export interface Opened {
  ctx: Context;
  close(): Promise<void>;
}

/** Opens the data directory, which `checkStart` has looked at, and builds everything. @throws ConfigError when it cannot be used. */
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
    const fence = takeOver(config.dataDir);
    closers.push(() => fence.close());
    finishReplacement(config.dataDir);
    const moves = Moves.open(config.dataDir);
    clearArrivals(config.dataDir, moves);
    const positions = await openPositions(config, log);
    closers.push(() => positions.close());
    const registry = await Registry.open(config.dataDir, fence.mark, laneNow);
    closers.push(() => registry.close());
    const longReads = new LongReads(join(config.dataDir, 'registry.db'));
    closers.push(() => longReads.close());
    const messages = await MessageStore.open(config.dataDir, { log, mark: fence.mark });
    closers.push(() => messages.close());
    const keeping = await Keeping.start({
      config,
      messages,
      registry,
      longReads,
      log,
      freeOnDisk: overrides.freeOnDisk,
    });
    closers.push(() => keeping.stop());
    const retention = await Retention.open({ config, registry, clock });
    const payloads = new PayloadReader({
      points: config.mqtt.maxPoints || Number.POSITIVE_INFINITY,
      depth: config.mqtt.maxDepth || Number.POSITIVE_INFINITY,
    });
    closers.push(() => payloads.close());
    const labels = new LabelDrawer();
    closers.push(() => labels.close());
    const tokens = await Tokens.open(join(config.dataDir, 'keys'), clock);
    const passwords = overrides.passwords ?? new Passwords();
    const access = new Access(registry);
    const fields = new Fields(registry, config.limits);
    const secretAnswers = await SecretAnswers.open(registry);
    const overlaps = await Overlaps.open({ registry, clock, moves });
    const uses = new SessionUses({ registry, clock, log, moves });
    closers.push(() => uses.close());
    const sessions = new Sessions({ registry, tokens, clock, access, uses, config });
    const audit = new Audit({ registry, clock, log, config, moves });
    closers.push(() => audit.close());
    const sealing = Sealing.open(join(config.dataDir, 'keys'));
    const bridges = await Bridges.open({ config, clock, log, registry, messages, access, sealing, moves });
    closers.push(() => bridges.close());
    const senders = await openSenders(config);
    const sms = overrides.sms ?? senders.sms;
    const firmware = new FirmwareFiles(config.dataDir);
    const isInForce = (entityId: string, generation: number) => isInForceIn({ registry, clock }, entityId, generation);
    const deviceState = (deviceId: string) => readState({ registry, fields }, deviceId);
    const isOpenSession = (id: string) => sessions.isOpen(id);
    const certificates = new ClientCertificates({ registry, access, clock, audit, fields, log, keeping });
    const ground: BrokerGround = {
      ...{ config, clock, log, moves, access, registry, messages, certificates },
      ...{ isOpenSession, isInForce, deviceState },
    };
    const foundation = layFoundation(ground);
    const { downlink } = foundation;
    const firmwareEngine = new FirmwareEngine({
      ...{ config, clock, log, registry, longReads, messages, access, sealing, moves, fields, downlink },
    });
    closers.push(() => firmwareEngine.stop());
    const progress = new Progress({ registry, clock, log, moves }, (ids) => firmwareEngine.watchers.tell(ids));
    closers.push(() => progress.close());
    const downloads = new Downloads(firmware, config.limits.firmwareDownloads, (of, bytes) =>
      progress.received(of, bytes),
    );
    closers.push(() => downloads.endAll());
    const commands = new Commands({ registry, clock, log, config, audit, moves }, downlink);
    closers.push(() => commands.stop());
    const messagesDown = new DownlinkMessages({ access, firmwareEngine, commands, log }, downlink);
    const control = new ControlMessages({ access, registry, firmwareEngine, downloads, progress, log }, downlink);
    closers.push(() => control.close());
    firmwareEngine.listen(messagesDown);
    firmwareEngine.listen(control);
    const base = {
      config,
      fence,
      clock,
      log,
      moves,
      registry,
      messages,
      firmware,
      firmwareEngine,
      downloads,
      commands,
      collector: new Collector({ registry, firmware, clock, log }),
      retention,
      keeping,
      payloads,
      labels,
      longReads,
      reads: new FairQueue(1, { quantum: ordinaryRead, most: maxReads, slices: new Slices() }),
      firstCounts: new FairQueue(Number.POSITIVE_INFINITY, { perAccount: 1, most: maxReads }),
      longAnswers: new FairQueue(Number.POSITIVE_INFINITY, { perAccount: config.limits.longAnswers }),
      bridges,
      access,
      fields,
      secretAnswers,
      overlaps,
      passwords,
      secrets: new Secrets(),
      certificates,
      tokens,
      sessions,
      sealing,
      audit,
      loginLimits: new LoginLimits(registry, clock, config.loginFailures),
      mail: overrides.mail ?? senders.mail,
      emailLimits: new EmailLimits(clock),
      sms,
      textedCodes: new TextedCodes({ clock, sealing, sms }),
      revoked: new RevokedCounts(),
      downlink,
    };
    const openWork = new OpenDeviceWork(base);
    const behind = brokerServices({ ...base, positions, messagesDown, control, openWork });
    const broker = await openBroker(foundation, { ...ground, ...behind });
    const { revocations, publisher, streams } = broker;
    closers.push(() => broker.close());
    const jobs = new Jobs({ ...base, revocations });
    closers.push(() => jobs.stop());
    const health = new Health({ ...base, broker });
    const ctx: Context = { ...base, broker, revocations, publisher, streams, jobs, health };
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

/** Caches to clear after the command line changed something: signing keys, admins, applications, sessions. */
async function takeChanges({ tokens, access, revocations }: Context): Promise<void> {
  await tokens.reload();
  access.identitiesChanged();
  revocations.loginsEnded();
}

/** What is behind the broker. */
function brokerServices({
  positions,
  messagesDown,
  ...base
}: Omit<Context, 'broker' | 'revocations' | 'publisher' | 'streams' | 'jobs' | 'health'> &
  Pick<BrokerServices, 'control' | 'openWork'> & {
    positions: Positions;
    messagesDown: DownlinkMessages;
  }): Omit<BrokerServices, keyof BrokerGround> {
  const { registry, sessions, bridges, control, openWork, overlaps, payloads, retention } = base;
  const waiting: FieldsWaiting = new Merged();
  return {
    ...{ bridges, control, openWork, payloads, retention, onBehalfOf, causeNow, readLogEntry },
    downlink: messagesDown,
    numbers: base.sealing.numbers,
    positionOf: (address) => positions.of(address),
    verifyToken: async (jwt) => {
      const authenticated = await sessions.authenticate(jwt);
      if (!authenticated) return undefined;
      const { caller, session, claims } = authenticated;
      base.audit.used(caller, { over: 'mqtt' }, 'mqtt');
      sessions.used(session.id, session.accountId);
      const expires = Date.parse(session.expires);
      return { caller, sessionId: session.id, expires, tokenLifetime: lifetimeOf(claims) };
    },
    sessionUsed: (id, accountId) => sessions.used(id, accountId),
    hasRested: (id, lifetime) => sessions.hasRested(id, lifetime),
    verifySecret: (entityId, secret, address) => checkSecret(base, entityId, secret, address),
    isProvenSecret: (entityId, secret) => knownGeneration(base, entityId, secret) !== undefined,
    secretConnected: (entityId, generation) => overlaps.connected(entityId, generation),
    endPreviousSecrets: () => overlaps.endDue(),
    generationOf: (entityId) => registry.credential(entityId)?.generation,
    setFields: (caller, deviceId, payload) => setState({ ...base, waiting }, caller, deviceId, payload),
  };
}

/** @throws ConfigError if the configured file is invalid. */
async function openPositions({ geoipDatabase }: Config, log: Logger): Promise<Positions> {
  try {
    return await Positions.open(geoipDatabase, log);
  } catch (error) {
    throw new ConfigError(`SLIPWAY_GEOIP_DATABASE cannot be used: ${geoipDatabase}: ${(error as Error).message}`);
  }
}

/** Removes what an earlier process had got of accounts that count elsewhere: the move begins again, or never. */
function clearArrivals(directory: string, moves: Moves): void {
  for (const { accounts, state } of moves.records) {
    if (state !== 'coming') continue;
    removeAccounts(directory, accounts);
    moves.record(accounts, undefined);
  }
}
