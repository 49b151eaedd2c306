/** The MQTT broker: Aedes with our hooks. README, "flows walked", follows a message through this folder. */
import type { Server as HttpServer } from 'node:http';
import { Aedes, type AuthenticateError, type ConnectPacket, type Subscription } from 'aedes';
import type { Placement } from '../db/index.js';
import type { Broker, BrokerServices } from '../src/context.js';
import type { BrokerClient, BrokerCore, Incoming, Outgoing } from './aedes-types.js';
import { Authenticator, ConnectRefused } from './authenticate.js';
import { Authority } from './authorize.js';
import { type Counters, newCounters } from './counters.js';
import { Ingest } from './ingest.js';
import { Listeners } from './listeners.js';
import { SessionStore } from './persistence.js';
import { Presence } from './presence.js';
import { ServiceChannels, silence } from './service-channels.js';
import { type LiveClient, refreshFilters, Sessions } from './sessions.js';

/** Milliseconds that a subscriber may take to read a QoS 1 or 2 message; everyone else waits with it as a publisher. */
const drainTimeout = 5000;
/** Milliseconds between two looks at the login sessions behind live connections. */
const expirySweep = 1000;
/** Aedes' own limit, longer than any id that our prefix and limit can make. */
const longestPrivateClientId = 1024;
/** Aedes' own timers; ours is the deadline of the listeners. */
const never = 2 ** 31 - 1;
/** Levels that the matcher of Aedes can take. */
const mostTopicLevels = 100;

export interface OpenBroker extends Broker {
  /** Opens the ports. @throws Error when one cannot be had. */
  listen(): Promise<void>;
  /** Serves MQTT over WebSocket at `/mqtt` of an HTTP server. */
  attachWebSocket(server: HttpServer): void;
  /** Ends every connection, waits for what is being stored, and marks every device disconnected. */
  close(): Promise<void>;
  readonly counters: Readonly<Counters>;
}

/** Builds the broker; it accepts connections after `listen`, or through `attachWebSocket`. */
export async function openBroker(services: BrokerServices): Promise<OpenBroker> {
  const { config, log, clock } = services;
  const counters = newCounters();
  const authority = new Authority(services, counters);
  const sessions = new Sessions((live) => noteDisconnected(live));
  const authenticator = new Authenticator(services, sessions, authority);
  const persistence = new SessionStore(
    {
      isGranted: (client, filter) => client.live?.filters.has(filter) ?? false,
      mayQueue: (clientId, topic) => authority.mayQueue(clientId, topic),
      storeOnce,
    },
    counters,
  );

  const aedes = new Aedes({
    persistence,
    // With a limit, one subscriber that does not read stalls everyone.
    concurrency: 0,
    drainTimeout,
    connectTimeout: never,
    maxClientsIdLength: longestPrivateClientId,
    maxTopicLevels: config.mqtt.maxTopicLevels || mostTopicLevels,
    preConnect: (client, packet, done) => guard('preConnect', done, () => preConnect(client, packet, done)),
    authenticate: (client, username, password, done) => void authenticate(client, username, password, done),
    authorizePublish: (client, packet, done) => guard('publish', done, () => authorizePublish(client, packet, done)),
    authorizeSubscribe: (client, subscription, done) =>
      guard('subscribe', done, () => authorizeSubscribe(client, subscription, done)),
    authorizeForward: (client, packet) => guarded('forward', () => authorizeForward(client, packet)),
    published: (_packet, _client, done) => done(),
  }) as BrokerCore;
  const channels = new ServiceChannels(services, aedes);
  const ingest = new Ingest(services, aedes, channels);
  const presence = new Presence(services, channels);
  const listeners = new Listeners(services, (conn, request) => aedes.handle(conn, request) as BrokerClient);

  aedes.on('client', (client) => guarded('client', () => onRegistered(client as BrokerClient)));
  aedes.on('clientReady', (client) => guarded('clientReady', () => onReady(client as BrokerClient)));
  aedes.on('connackSent', (packet, client) => {
    if (packet.returnCode === 0) listeners.ready(client.conn);
  });
  aedes.on('subscribe', (subscriptions, client) => guarded('subscribed', () => onSubscribed(client, subscriptions)));
  aedes.on('unsubscribe', (_filters, client) => guarded('unsubscribed', () => onUnsubscribed(client)));
  aedes.on('clientError', (client, error) => log.debug({ err: error, clientId: client.id }, 'connection failed'));
  aedes.on('connectionError', (_client, error) => log.debug({ err: error }, 'connection failed before CONNECT'));
  // Without a listener an error in the publish path would end the process.
  aedes.on('error', (error: Error) => log.error({ err: error }, 'broker error'));

  await presence.reset();
  await aedes.listen();
  const sweep = setInterval(() => guarded('expiry', () => sessions.endExpired(clock.now())), expirySweep);
  sweep.unref();

  // Hooks. Nothing thrown in one may end the process.

  function guarded<R>(name: string, work: () => R): R | undefined {
    try {
      return work();
    } catch (error) {
      log.error({ err: error }, `the ${name} hook failed`);
      return undefined;
    }
  }

  function guard(name: string, done: (error: Error, success: never) => void, work: () => void): void {
    try {
      work();
    } catch (error) {
      log.error({ err: error }, `the ${name} hook failed`);
      done(new Error(`${name} failed`), false as never);
    }
  }

  function preConnect(client: BrokerClient, packet: ConnectPacket, done: PreConnected): void {
    authenticator.preConnect(client, packet, done);
    const { live } = client;
    if (live) client.conn.once('close', () => sessions.remove(live));
  }
}
