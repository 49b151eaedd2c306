/** The MQTT broker. docs/architecture.md follows a message through this folder. */
import type { Server as HttpServer } from 'node:http';
import type { BrokerServices, BrokerState, Publisher, Streams } from '../src/ports/broker-ports.ts';
import type { Counters } from './connections/counters.ts';
import type { Listeners } from './connections/listeners.ts';
import type { Foundation } from './foundation.ts';
import type { AccountHandover } from './handover.ts';
import { type BrokerParts, brokerParts } from './parts.ts';
import { ends } from './reasons.ts';

export { type Foundation, openSessions } from './foundation.ts';
export { RightsRevocations } from './revocation.ts';

/** Milliseconds between two looks at what has ended: login sessions behind live connections, stored sessions. */
const sweepInterval = 1000;

export interface Broker extends BrokerState {
  readonly publisher: Publisher;
  readonly streams: Streams;
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
  readonly handover: AccountHandover;
  /** Current numbers: open sockets, those with a CONNACK, stored sessions, streams. */
  readonly gauges: { sockets: number; connections: number; storedSessions: number; streams: number };
  /**
   * What waits: messages for the store and for the rest of their receivers, changes of sessions for the store, wills of a dead process for its clients to come
   * back, SUBSCRIBEs for what is retained, messages of stored sessions for their readers.
   */
  readonly queues: Record<'ingest' | 'fan_out' | 'sessions' | 'wills' | 'retained' | 'delivery', number>;
}

/** Builds the broker; it accepts connections after `listen`, or through `attachWebSocket`. */
export async function openBroker(foundation: Foundation, services: BrokerServices): Promise<Broker> {
  const parts = brokerParts(foundation, services);
  const { fanOut, ingest, limits, listeners, persistence, refusals, sessions, signs, streams } = parts;
  await parts.presence.reset();
  const sweep = startSweep(parts);
  return {
    addresses: parts.addresses,
    counters: parts.counters,
    handover: parts.handover,
    publisher: parts.publisher,
    streams: {
      open: (caller, request) => streams.open(caller, request),
      tellEnrollment: (accountId, enrollment) => streams.tellEnrollment(accountId, enrollment),
      tellFleet: (change) => streams.tellFleet(change),
      endAll: () => streams.endAll(),
      watchDevice: (caller, deviceId, expires) => signs.watch(caller, deviceId, expires),
      endWatches: () => signs.endAll(),
    },
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
    kept: (accountId) => persistence.kept(accountId),
    runningActivity: (accountId) => parts.activity.running(accountId),
    refusalsStored: (deviceId) => refusals.stored(deviceId),
    forgetTlsSessions: () => listeners.forgetTlsSessions(),
    listen: () => listeners.listen(),
    useCertificate: (tls) => listeners.useCertificate(tls),
    attachWebSocket: (server) => listeners.attachWebSocket(server),
    close: () => {
      clearInterval(sweep);
      return close(parts);
    },
  };
}

/** Ends now and then what is over. */
function startSweep(parts: BrokerParts): NodeJS.Timeout {
  const { authority, guarded, persistence, publishes, services, sessions, signs, streams } = parts;
  const { clock, log } = services;
  /** Those whose time is over, with the connections made with them. */
  const endPrevious = async () => {
    try {
      for (const id of await services.credentials.endDue())
        sessions.endOutdated(id, (identity) => authority.isCurrent(identity));
    } catch (error) {
      log.error({ err: error }, 'previous credentials could not be ended');
    }
  };
  const publishDueWills = () => {
    if (parts.routing.isClosed) return;
    const wills = guarded('wills', () => persistence.takeDueWills()) ?? [];
    for (const will of wills) guarded('will', () => publishes.publishLeftWill(will));
    if (wills.length > 0) setImmediate(publishDueWills);
  };
  const sweep = setInterval(() => {
    guarded('sweep', () => parts.activity.tick());
    guarded('sweep', () => parts.presence.lookForSilence());
    guarded('expiry', () => sessions.endExpired(clock.now(), services.proofs.logins.hasRested));
    guarded('expiry', () => streams.endExpired(clock.now()));
    guarded('expiry', () => signs.endExpired(clock.now()));
    void endPrevious();
    guarded('sweep', () => persistence.sweep());
    publishDueWills();
  }, sweepInterval);
  return sweep.unref();
}

async function close(parts: BrokerParts): Promise<void> {
  const { ingest, listeners, routing, scheduler, persistence, sessions } = parts;
  listeners.stop();
  parts.streams.close();
  scheduler.endTurns();
  for (const { client, ready } of [...sessions.all()]) if (ready) client.endConnection(ends.shuttingDown);
  // Their wills have fired.
  await routing.close();
  listeners.end();
  await ingest.idle();
  for (const live of [...sessions.all()]) {
    sessions.remove(live);
    persistence.leave(live.client);
  }
  parts.names.close();
  await parts.presence.close();
  await parts.publications.flush();
  await parts.refusals.flush();
  await parts.activity.flush();
}
