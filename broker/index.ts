/** The MQTT broker: Aedes with our hooks. docs/architecture.md follows a message through this folder. */
import type { Server as HttpServer } from 'node:http';
import { Aedes } from 'aedes';
import mqttPacket from 'mqtt-packet';
import type { Broker, BrokerServices } from '../src/broker-ports.ts';
import { controlTopic } from '../src/topics.ts';
import type { BrokerClient, BrokerCore, Incoming, Outgoing, Will } from './aedes-types.ts';
import { Authenticator } from './authenticate.ts';
import { Authority } from './authorize.ts';
import { accountIn } from './connections/client-ids.ts';
import { type Counters, newCounters } from './connections/counters.ts';
import { Limits } from './connections/limits.ts';
import { Listeners } from './connections/listeners.ts';
import { Sessions } from './connections/live-clients.ts';
import { PeerCertificates } from './connections/peer-certificates.ts';
import { faultOf } from './connections/safe-error.ts';
import { ControlTopics } from './control.ts';
import { ConnectHooks } from './hooks/connect.ts';
import { DownlinkNews } from './hooks/downlink-news.ts';
import type { HookParts } from './hooks/parts.ts';
import { PublishHooks } from './hooks/publish.ts';
import { RefusalNotes } from './hooks/refusal-notes.ts';
import { SubscribeHooks } from './hooks/subscribe.ts';
import { DeviceSigns } from './http/device-signs.ts';
import { DirectPublisher } from './http/direct.ts';
import { Marks } from './http/marks.ts';
import { PostedLogs } from './http/posted-logs.ts';
import { Streams } from './http/streams.ts';
import { Ingest } from './ingest/ingest.ts';
import { Reports } from './ingest/reports.ts';
import { AccountMoves } from './moving.ts';
import { Deliveries } from './packets/deliveries.ts';
import { FanOut } from './packets/fan-out.ts';
import { Pace } from './packets/pace.ts';
import { PacketReceiver } from './packets/receiver.ts';
import { tellSession } from './packets/write.ts';
import { Presence } from './presence.ts';
import { Publications } from './publications.ts';
import { Refusals } from './refusals.ts';
import { ReverseDns } from './reverse-dns.ts';
import { Revocation } from './revocation.ts';
import { ServiceChannels } from './service-channels.ts';
import { SessionStore } from './sessions/persistence.ts';
import { matches } from './topics.ts';

/** Milliseconds that a subscriber may take to read a QoS 1 or 2 message before it is disconnected. */
const drainTimeout = 5000;
/** Milliseconds between two looks at what has ended: login sessions behind live connections, stored sessions. */
const sweepInterval = 1000;
/** Aedes' own limit, above any private id that we make. */
const maxPrivateClientIdLength = 1024;
/** For Aedes' own connect timer, which ends when CONNECT arrives; the listeners' deadline lasts until CONNACK. */
const never = 2 ** 31 - 1;
/** Levels that the matcher of Aedes can take. */
const maxTopicLevels = 100;

// Before it first writes a packet it would make a buffer for each number of two bytes: 8 MB, and a pause.
Object.assign(mqttPacket.writeToStream, { cacheNumbers: false });

export interface OpenBroker extends Broker {
  /** Opens the ports. @throws Error when one cannot be had. */
  listen(): Promise<void>;
  /** Shows another certificate to connections that begin from now on. */
  useCertificate: Listeners['useCertificate'];
  /** Serves MQTT over WebSocket at `/mqtt` and `/` of an HTTP server; closing the server ends these connections. */
  attachWebSocket(server: HttpServer): void;
  /** Ends every connection, waits for what is being stored, and marks every device disconnected. */
  close(): Promise<void>;
  /** Whether its ports are open. */
  readonly isListening: boolean;
  readonly counters: Readonly<Counters>;
  /** What it does for accounts that move between servers. */
  readonly moves: AccountMoves;
  /** Current numbers: open sockets, those with a CONNACK, stored sessions, streams. */
  readonly gauges: { sockets: number; connections: number; storedSessions: number; streams: number };
  /**
   * What waits: messages for the store and for the rest of their receivers, changes of sessions for the store, wills of a dead process for its clients to come
   * back, SUBSCRIBEs for what is retained, messages of stored sessions for their readers.
   */
  readonly queues: Record<'ingest' | 'fan_out' | 'sessions' | 'wills' | 'retained' | 'delivery', number>;
}

/** Builds the broker; it accepts connections after `listen`, or through `attachWebSocket`. */
export async function openBroker(services: BrokerServices): Promise<OpenBroker> {
  const { config, log, clock, access } = services;

  /** Nothing thrown in a hook or a listener may end the process. */
  function guarded<R>(
    name: string,
    work: () => R,
    failed?: (error: Error) => void,
    client?: BrokerClient | null,
  ): R | undefined {
    try {
      return work();
    } catch (error) {
      const about = client && limits.about(client.conn);
      log.error({ fault: faultOf(error), stack: (error as Error).stack, ...about }, `broker: ${name} failed`);
      failed?.(new Error(`${name} failed`));
      return undefined;
    }
  }

  const counters = newCounters();
  const limits = new Limits(services, counters);
  const peers = new PeerCertificates();
  const authority = new Authority(services, counters);
  const sessions = new Sessions((live) => connects.ended(live));
  const { maxQueue, sessionExpiry } = config.mqtt;
  const persistence: SessionStore = new SessionStore(
    {
      ...services,
      counters,
      maxQueue,
      maxQueueBytes: config.limits.mqttQueueBytes,
      sessionExpiry,
      maxSessions: config.limits.mqttStoredSessions,
      retainedRoom: { count: config.limits.mqttRetained, bytes: config.limits.mqttRetainedBytes },
      maxUnreleased: config.limits.mqttUnreleased,
    },
    {
      deviceOf: (topic) => authority.deviceOf(topic),
      accountOf: (topic) => authority.accountOf(topic),
      reachOf: (live) => authority.reachOf(live),
      mayStand: (clientId, filter) => authority.mayStand(clientId, filter),
      isGranted: ({ live }, filter) => live?.filters.has(filter) ?? false,
      mayQueue: (clientId, topic) => authority.mayQueue(clientId, topic),
      // What arrives from another server may be here before its owner.
      hasOwner: (clientId) => services.moves.isAway(accountIn(clientId)) || authority.hasOwner(clientId),
      mayBeRetained: (topic) => services.moves.isAway(authority.accountOf(topic)) || authority.namesDevice(topic),
      isAway: (accountId) => services.moves.isAway(accountId),
      sendsRetained: true,
    },
  );

  const authenticator = new Authenticator(services, sessions, authority, limits, peers, (clientId) =>
    persistence.mayBegin(clientId),
  );

  const pace = new Pace({ failed: (error) => log.error({ fault: faultOf(error) }, 'broker: a turn failed') });
  const fanOut = new FanOut({
    pace,
    accountOf: (topic) => authority.receivingAccountOf(topic),
    failed: (error) => log.error({ fault: faultOf(error) }, 'broker: a message was not handed on'),
  });
  const aedes = new Aedes({
    persistence,
    mq: fanOut,
    // With a limit, one subscriber that does not read stalls everyone.
    concurrency: 0,
    drainTimeout,
    connectTimeout: never,
    maxClientsIdLength: maxPrivateClientIdLength,
    maxTopicLevels: config.mqtt.maxTopicLevels || maxTopicLevels,

    preConnect: (client, packet, done) =>
      guarded(
        'preConnect',
        () => connects.preConnect(client as BrokerClient, packet, done),
        (error) => done(error, false),
      ),
    authenticate: (client, username, password, done) =>
      void connects.authenticate(client as BrokerClient, username, password, done),
    authorizePublish: (client, packet, done) =>
      guarded(
        'authorizePublish',
        () => {
          // A will: Aedes asks for nothing else. One whose account is on its way is kept, and sent where the account is then.
          if (client && receiver.isHeld(client as BrokerClient))
            persistence.keepWill(client as BrokerClient, packet as Will);
          else publishes.publish(client as BrokerClient | null, packet as Incoming, done);
        },
        done,
      ),
    authorizeSubscribe: (client, subscription, done) =>
      guarded('authorizeSubscribe', () => subscribes.subscribe(client as BrokerClient, subscription, done), done),
    authorizeForward: (client, packet) =>
      guarded('authorizeForward', () => publishes.forward(client as BrokerClient, packet as Outgoing)),
  }) as BrokerCore;

  const channels = new ServiceChannels(services, aedes);
  const reports = new Reports(services);
  const control = new ControlTopics(services, aedes, reports);
  const refusals = new Refusals(services);
  const marks = new Marks(services.messages);
  const ingest = new Ingest({
    ...{ services, channels, persistence, refusals, marks, counters, reports },
    onPoints: (client, points) => listeners.charge(client.conn, points),
  });
  const postedLogs = new PostedLogs(services, aedes, persistence, marks);
  const names = new ReverseDns(config.dnsServers, clock);
  const presence = new Presence(services, channels, names);
  const signs = new DeviceSigns();
  const publications = new Publications(services, signs);
  const deliveries = new Deliveries({
    forward: (client, packet) => guarded('authorizeForward', () => publishes.forward(client, packet)),
    persistence,
    pace,
  });
  const receiver = new PacketReceiver({
    aedes,
    persistence,
    maxTopicLevels: config.mqtt.maxTopicLevels || maxTopicLevels,
    log,
    isAway: (accountId) => services.moves.isAway(accountId),
    reports,
    sessionUsed: services.sessionUsed,
    hooks: {
      publish: (client, packet, done) =>
        guarded('publish', () => publishes.publish(client, packet, done), done, client),
    },
  });
  const listeners: Listeners = new Listeners({
    ...{ services, limits, peers, receiver, pace },
    levelRefused: (conn, connect) => guarded('levelRefused', () => connects.levelRefused(conn, connect)),
    handle: (conn, request) => {
      const client = aedes.handle(conn, request) as BrokerClient;
      deliveries.attach(client);
      tellSession(conn, () => client.live?.sessionPresent === true && listeners.dialectOf(conn)?.level !== 3);
      return client;
    },
  });
  const parts = { services, aedes, counters, sessions, authenticator, authority, limits, persistence };
  const hookParts: HookParts = {
    ...{ ...parts, channels, control, ingest, pace, presence, publications, signs, listeners },
    notes: new RefusalNotes(services, refusals),
    downlink: new DownlinkNews(services, sessions),
  };
  const connects = new ConnectHooks(hookParts);
  const publishes = new PublishHooks(hookParts);
  const subscribes = new SubscribeHooks(hookParts);
  const streams = new Streams({ ...parts, marks, pace });
  const revocation = new Revocation({ ...parts, streams });
  const secretEnded = (id: string) => revocation.secretEnded(id, (one) => authenticator.isCurrent(one));
  const moves = new AccountMoves({
    aedes,
    sessions,
    listeners,
    persistence,
    streams,
    presence,
    publications,
    refusals,
    connects,
  });
  const direct = new DirectPublisher({ ...parts, channels, ingest, refusals });

  aedes.on('client', (client) => guarded('client', () => connects.registered(client as BrokerClient)));
  aedes.on('connackSent', ({ returnCode }, client) => {
    if (returnCode === 0) guarded('connackSent', () => connects.connackSent(client as BrokerClient));
  });
  aedes.on('clientReady', (client) => guarded('clientReady', () => connects.ready(client as BrokerClient)));
  aedes.on('subscribe', (subscriptions, client) =>
    guarded('subscribe', () => subscribes.subscribed(client as BrokerClient, subscriptions)),
  );
  aedes.on('unsubscribe', (filters, client) =>
    guarded('unsubscribe', () => subscribes.unsubscribed(client as BrokerClient, filters)),
  );
  aedes.on('clientError', (client, error) => {
    limits.ended(error, client.conn);
    guarded('clientError', () => connects.failed(client as BrokerClient, error));
    log.debug({ fault: faultOf(error), clientId: client.id, ...limits.about(client.conn) }, 'connection failed');
  });
  aedes.on('connectionError', ({ conn }, error) => {
    limits.ended(error, conn);
    log.debug({ fault: faultOf(error), ...limits.about(conn) }, 'connection failed before it was proven');
  });
  // Without a listener, an error in the publish path would end the process.
  (aedes as NodeJS.EventEmitter).on('error', (error) => log.error({ fault: faultOf(error) }, 'broker error'));

  await presence.reset();
  await aedes.listen();
  const sweep = setInterval(() => {
    guarded('expiry', () => sessions.endExpired(clock.now(), services.hasRested));
    guarded('expiry', () => streams.endExpired(clock.now()));
    guarded('expiry', () => signs.endExpired(clock.now()));
    void endPreviousSecrets();
    guarded('sweep', () => persistence.sweep());
    for (const will of persistence.takeDueWills()) guarded('will', () => publishes.publishLeftWill(will));
  }, sweepInterval);
  sweep.unref();

  /** Those whose time is over, with the connections made with them. */
  async function endPreviousSecrets(): Promise<void> {
    try {
      for (const id of await services.endPreviousSecrets()) secretEnded(id);
    } catch (error) {
      log.error({ err: error }, 'previous secrets could not be ended');
    }
  }

  return {
    counters,
    moves,
    get gauges() {
      let connections = 0;
      for (const { ready } of sessions.all()) if (ready) connections += 1;
      return { sockets: limits.open, connections, storedSessions: persistence.size.sessions, streams: streams.size };
    },
    get queues() {
      return { ingest: ingest.pending, fan_out: fanOut.waiting, ...persistence.waiting };
    },
    get isListening() {
      return listeners.areOpen;
    },
    get addresses() {
      return listeners.addresses;
    },
    listen: () => listeners.listen(),
    useCertificate: (tls) => listeners.useCertificate(tls),
    attachWebSocket: (server) => listeners.attachWebSocket(server),
    secretReplaced: (entityId) => revocation.secretReplaced(entityId),
    secretOverlaps: secretEnded,
    certificateEnded: (id) => revocation.certificateEnded(id),
    authorityRegistered: () => listeners.forgetTlsSessions(),
    loginEnded: (sessionId) => {
      signs.endSession(sessionId);
      return revocation.loginEnded(sessionId);
    },
    loginsEnded: () => {
      signs.endClosed((id) => services.isOpenSession(id));
      sessions.endClosed((id) => services.isOpenSession(id));
      streams.endClosed((id) => services.isOpenSession(id));
    },
    principalDeleted: async (accountId, id) => {
      signs.endPrincipal(id);
      return revocation.principalDeleted(accountId, id);
    },
    identityChanged: (accountId, userId) => revocation.principalChanged(accountId, userId, access.callerOf(userId)),
    entityChanged: (accountId, id) => revocation.principalChanged(accountId, id, access.callerOfEntity(id)),
    deviceMoved: ({ id, accountId }, before) => revocation.deviceMoved({ deviceId: id, accountId }, before),
    deviceDeleted: ({ id, accountId, organizationId }) =>
      revocation.deviceDeleted({ deviceId: id, accountId }, organizationId),
    organizationMoved: ({ id, accountId }, before) => revocation.organizationMoved(accountId, id, before),
    channelDeleted: (channel) => revocation.channelDeleted(channel),
    prove: (username, password, address) => direct.prove(username, password, address),
    proveCertificate: (socket, username, address) => direct.proveCertificate(socket, username, address),
    publish: (caller, message) => direct.publish(caller, message),
    stream: (caller, request) => streams.open(caller, request),
    endStreams: () => streams.endAll(),
    decide: (caller, action, topic) => authority.decide(caller, action, topic),
    watchDevice: (caller, deviceId, expires) => {
      const isConnected = () =>
        [...sessions.of(deviceId)].some(
          ({ identity, ready }) => ready && identity !== undefined && authenticator.isNewest(identity),
        );
      const watch = signs.open(caller, deviceId, expires, isConnected);
      if (watch) publications.lookAgain(sessions.of(deviceId));
      return watch;
    },
    sendDown: ({ accountId, deviceId }, channel, payload) =>
      channels.sendDown({ accountId, deviceId }, channel, payload),
    listens: ({ accountId, deviceId }, channel) => {
      const own = authority.ownChannelsOf({ kind: 'device', id: deviceId, accountId });
      const topic = channel === 'control' ? controlTopic(config.controlRoot, deviceId, 'cln') : `${own}${channel}`;
      for (const { ready, ended, filters } of sessions.of(deviceId))
        if (ready && !ended) for (const filter of filters) if (matches(filter, topic)) return true;
      return false;
    },
    sendControl: (deviceId, payload, qos) => control.send({ deviceId }, payload, qos),
    endWatches: () => signs.endAll(),
    kept: (accountId) => persistence.kept(accountId),
    refusalsStored: (deviceId) => refusals.stored(deviceId),
    logPosted: ({ id, accountId }, entry, payload) => postedLogs.take({ deviceId: id, accountId }, entry, payload),
    deviceUpdated: ({ id, accountId }, changes) => channels.deviceUpdated({ deviceId: id, accountId }, changes),

    async close() {
      clearInterval(sweep);
      listeners.stop();
      streams.close();
      pace.end();
      // Aedes closes the clients it knows, whose wills fire, and then its own routing.
      await new Promise<void>((resolve) => aedes.close(resolve));
      listeners.end();
      await ingest.idle();
      for (const live of [...sessions.all()]) {
        sessions.remove(live);
        persistence.leave(live.client);
      }
      names.close();
      await presence.close();
      await publications.flush();
      await refusals.flush();
      await persistence.destroy();
    },
  };
}
