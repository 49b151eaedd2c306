import type { Duplex } from 'node:stream';
import type { Properties } from '../src/core/formats/message-properties.ts';
import type { Attempts } from '../src/core/limits/attempts.ts';
import { laneOfAddress } from '../src/core/limits/lanes.ts';
import { limitTries } from '../src/core/limits/tries.ts';
import { onBehalfOf } from '../src/core/log.ts';
import type { DeviceAddress } from '../src/ports/broker-ports.ts';
import { ConnectRefused, credentialOf } from './authenticate.ts';
import { connectedDevice } from './authorize.ts';
import type { BrokerClient, LiveClient } from './client-types.ts';
import { Client } from './connections/client.ts';
import { refusePublish } from './connections/counters.ts';
import { OverLimit } from './connections/limits.ts';
import { grant, outdated, refreshFilters } from './connections/live-clients.ts';
import { faultOf } from './connections/safe-error.ts';
import { type Connecting, largestPacket } from './connections/sockets.ts';
import { isEnrolling } from './enroll.ts';
import type { FirstMessages } from './first-messages.ts';
import type { HookParts } from './hook-parts.ts';
import type { Connect, UnsupportedConnect } from './packets/connect.ts';
import { type Deliveries, maxWritten } from './packets/deliveries.ts';
import { Malformed } from './packets/fields.ts';
import { topicAliasMaximum } from './packets/level-5.ts';
import { receiveMaximum } from './packets/receiver.ts';
import { ends, reason, reasonOfLimit } from './reasons.ts';
import type { PublishHooks } from './wills.ts';

/** Bytes that may wait for a client, besides one message: twice what is sent to it before what is held waits. */
const maxUnsent = 2 * maxWritten;
/** Characters of a client id that nobody has checked. */
const maxLoggedId = 128;

/** A connection that has ended while its account was on its way to another server. */
interface EndedAway {
  live: LiveClient;
  device: DeviceAddress;
  /** Milliseconds since 1970. */
  time: number;
}

type ConnectParts = HookParts & { deliveries: Deliveries; firstMessages: FirstMessages; publishes: PublishHooks };

/** A connection from CONNECT to its end. */
export class ConnectHooks {
  readonly #parts: ConnectParts;
  #endedAway: EndedAway[] = [];
  /** Networks whose refused protocol levels are in the log. */
  readonly #levelsLogged: Attempts;

  constructor(parts: ConnectParts) {
    this.#parts = parts;
    this.#levelsLogged = limitTries('loggedLevels', parts.services);
  }

  /** A CONNECT of an unsupported level has been answered. */
  levelRefused(conn: Duplex, { unsupportedLevel, username, clientId }: UnsupportedConnect): void {
    const { limits, notes, services } = this.#parts;
    const about = limits.about(conn);
    // Few texts: each one takes a line of those that strangers may fill.
    const refusal = new ConnectRefused('level', 'this protocol level is not supported; use MQTT 5 or 3.1.1');
    void limits.refused(refusal, about);
    // Once a minute for each network: strangers would fill the log.
    const from = { address: about.address ?? '' };
    const isFirst = this.#levelsLogged.left(from).remaining > 0;
    if (isFirst) this.#levelsLogged.takeTry(from);
    const said = { protocolLevel: unsupportedLevel, clientId: clientId.slice(0, maxLoggedId), ...about };
    services.log[isFirst ? 'info' : 'debug'](said, `CONNECT refused: ${refusal.message}`);
    const name = username || clientId;
    if (name) notes.noteConnect(name, { address: about.address, clientId }, refusal);
  }

  /** A CONNECT has come: its client, which is let in or refused when its credential has been checked. */
  connected(connecting: Connecting): BrokerClient {
    const { deliveries, fanOut, groups, guarded, limits, persistence, services, sessions } = this.#parts;
    const { conn } = connecting;
    const about = limits.about(conn);
    const client = new Client(
      {
        fanOut,
        groups,
        deliver: (to, packet, done) => deliveries.deliver(to, packet, done),
        failed: (one, error) => guarded('failed', () => this.#failed(one, error)),
        closed: (one) => guarded('closed', () => this.#closed(one)),
        left: (one) => this.#left(one.live),
        drained: (one) => guarded('drained', () => deliveries.sendWaiting(one.live)),
        clock: services.clock,
        maxUnsent: maxUnsent + (services.config.mqtt.maxPayloadBytes || Number.POSITIVE_INFINITY),
      },
      { ...connecting, about },
    );
    const { live } = client;
    conn.on('close', () => {
      guarded('ended', () => sessions.remove(live));
      if (live.identity) guarded('left', () => persistence.leave(client));
      guarded('left', () => deliveries.sendWaiting(live));
    });
    void this.#enter(client, connecting);
    return client;
  }

  /** Never rejects: nobody would hear of it. */
  async #enter(client: Client, connecting: Connecting): Promise<void> {
    const { authenticator, limits, services } = this.#parts;
    const { connect } = connecting;
    const about = limits.about(client.conn);
    const { connectionId = '' } = about;
    const lane = laneOfAddress(about.address ?? '');
    try {
      authenticator.look(connect);
      const enrolls = isEnrolling(connect);
      const prove = () =>
        enrolls ? this.#parts.enrolls.enter(client, connecting) : authenticator.authenticate(client, connect);
      await onBehalfOf({ cause: { connectionId }, lane }, prove);
      if (enrolls) return;
    } catch (error) {
      if (error instanceof Malformed) connecting.connection.refuseMalformed(error, () => client.fail(error));
      else await this.#refuse(client, connecting, error);
      return;
    }
    try {
      this.#begin(client, connecting);
    } catch (error) {
      services.log.error({ fault: faultOf(error), ...about }, 'a CONNECT could not be answered');
      client.fail(error as Error);
    }
  }

  async #refuse(client: BrokerClient, { connect, connection }: Connecting, error: unknown): Promise<void> {
    const { limits, notes, services } = this.#parts;
    const { conn, live } = client;
    const about = limits.about(conn);
    const isRefusal = error instanceof ConnectRefused;
    if (!isRefusal) services.log.error({ err: error, ...about }, 'a CONNECT could not be checked');
    const refusal = isRefusal ? error : new ConnectRefused('unavailable', 'the check has failed');
    await limits.refused(refusal, about);
    // A client that has gone by itself was not refused.
    const isGone = refusal.reason === 'unavailable' && conn.destroyed;
    connection.refuse(refusal.answer);
    const name = refusal.about.deviceId ?? (connect.username || live.clientId);
    if (name && !isGone) notes.noteConnect(name, live, refusal);
  }

  /** The credential is proven, and nothing else happens until CONNACK is written: what comes then, comes after it. */
  #begin(client: Client, { connect, accept }: Connecting): void {
    const { authenticator, authority, persistence, publishes, routing, services, sessions } = this.#parts;
    const { conn, live } = client;
    if (client.closed || live.ended || routing.isClosed) return;
    const keepAlive = authenticator.keepAliveOf(connect, this.#parts.limits.about(conn));
    client.expectPackets(keepAlive);
    for (const other of sessions.predecessorsOf(live)) other.client.endConnection(ends.takenOver);
    const { identity } = live;
    const isAway = identity && services.gate.isAway(identity.caller.accountId);
    // What was true when the credential was proven may have changed. Whose account is away comes back, and waits.
    if (!identity || isAway || !authority.isCurrent(identity)) {
      sessions.kick(live, outdated(live));
      return;
    }
    const { isSessionPresent, sessionExpiry, leftWill } = persistence.begin(client);
    live.sessionPresent = isSessionPresent;
    if (leftWill) publishes.publishLeftWill(leftWill);
    live.turns = publishes.orderOf(client.id) ?? live.turns;
    for (const filter of persistence.filters.filtersOf(client)) {
      if (!authority.maySubscribe(live, filter.topic)) continue;
      grant(live, filter);
      client.subscribe(filter);
    }
    refreshFilters(live);
    if (!accept(isSessionPresent, this.#propertiesFor(client, connect, { keepAlive, sessionExpiry }))) return;
    live.ready = true;
    this.#parts.guarded('ready', () => this.#tellConnected(live));
    // After CONNACK has left: a program may begin to listen only when it hears that it is connected.
    setImmediate(() => void this.#sendKept(live));
  }

  /** What CONNACK tells a client of MQTT 5: what is granted otherwise than asked for, and what the service takes. */
  #propertiesFor(
    { live, codec }: BrokerClient,
    connect: Connect,
    granted: { keepAlive: number; sessionExpiry: number },
  ): Properties {
    if (codec.level < 5) return {};
    const { ownChannels } = live.identity ?? {};
    const longest = largestPacket(this.#parts.services.config.mqtt);
    const { keepAlive: serverKeepAlive, sessionExpiry } = granted;
    return {
      receiveMaximum,
      topicAliasMaximum,
      ...(longest !== undefined && { maximumPacketSize: longest }),
      ...(connect.clientId === '' && { assignedClientId: live.clientId }),
      ...(serverKeepAlive !== connect.keepAlive && { serverKeepAlive }),
      ...(sessionExpiry !== connect.sessionExpiry && { sessionExpiry }),
      ...(connect.wantsResponseInformation && ownChannels !== undefined && { responseInformation: ownChannels }),
    };
  }

  #tellConnected(live: LiveClient): void {
    const { presence, services, signs } = this.#parts;
    const { client, connectionId, address } = live;
    services.log.debug({ connectionId, address, clientId: client.id }, 'connected');
    const device = connectedDevice(live);
    if (device) presence.connected(device, live);
    if (device) signs.sign(device.deviceId);
    this.#endPrevious(live);
  }

  /** Sends what a stored session has kept, and tells then who listens. Never rejects. */
  async #sendKept(live: LiveClient): Promise<void> {
    const { authority, deliveries, firstMessages, news, sessions } = this.#parts;
    await deliveries.catchUp(live);
    if (live.ended || live.client.closed) return;
    if (!live.identity || !authority.isCurrent(live.identity)) sessions.kick(live, outdated(live));
    // The filters of a session that was taken up again.
    else {
      news.subscribed(live, [...live.filters]);
      void firstMessages.sendDue(live);
    }
  }

  /** Where two credentials are in force, the previous one ends when the new one has connected. */
  #endPrevious({ identity, connectionId }: LiveClient): void {
    const credential = identity && credentialOf(identity);
    if (!credential) return;
    const { authority, services, sessions } = this.#parts;
    const { principal, caller } = identity;
    const lane = { accountId: caller.accountId, callerId: caller.id };
    onBehalfOf({ lane }, () => services.credentials.connected(principal, credential))
      .then((hasEnded) => hasEnded && sessions.endOutdated(principal, (one) => authority.isCurrent(one)))
      .catch((error) => services.log.error({ err: error, connectionId }, 'a previous credential could not be ended'));
  }

  /** A connection has ended by an error before its CONNECT. */
  failed(conn: Duplex, error: Error): void {
    const { limits, services } = this.#parts;
    limits.ended(error, conn);
    services.log.debug({ fault: faultOf(error), ...limits.about(conn) }, 'connection failed before CONNECT');
  }

  #failed({ id, conn, live }: BrokerClient, error: Error): void {
    const { limits, notes, services } = this.#parts;
    limits.ended(error, conn);
    services.log.debug({ fault: faultOf(error), clientId: id, ...limits.about(conn) }, 'connection failed');
    if (error instanceof Malformed && error.about) this.#noteMalformed(live, error.about);
    if (!(error instanceof OverLimit) || error.isNoted) return;
    const why = reasonOfLimit(error.limit);
    if (why) notes.note(live, 'publish', null, why);
  }

  #closed(client: BrokerClient): void {
    const { persistence, publishes, services } = this.#parts;
    const { will, live } = client;
    client.will = undefined;
    if (client.clean) persistence.received.clear(client);
    // Of an account that is on its way nothing is passed on here: its sessions are copied as they are.
    const isAway = live.identity && services.gate.isAway(live.identity.caller.accountId);
    if (live.ready && !isAway) this.#parts.deliveries.passOnShared(live, client.sessionExpiry === 0);
    if (!will || !live.ready) persistence.deleteWill(client);
    else if (!persistence.delayWill(client, will)) publishes.publishWill(client, will);
    // What its successor says comes after all that it has said.
    publishes.keepOrder(client.id, live.turns);
  }

  #noteMalformed(live: LiveClient, { action, topic }: { action: 'publish' | 'subscribe'; topic: string }): void {
    const { counters, notes } = this.#parts;
    notes.note(live, action, topic, reason('malformedTopic'));
    if (action === 'publish') refusePublish(counters, 'malformed');
    else counters.refusedSubscriptions.malformed += 1;
  }

  #left(live: LiveClient): void {
    this.#parts.services.log.debug({ connectionId: live.connectionId }, 'disconnected');
    const device = connectedDevice(live);
    if (!device) return;
    const { clock, gate } = this.#parts.services;
    if (gate.isAway(device.accountId)) {
      this.#endedAway.push({ live, device, time: clock.now() });
      return;
    }
    this.#parts.presence.disconnected(device, live);
    this.#parts.news.ended(device);
  }

  /** These accounts are handled here again: what has ended meanwhile is told now. */
  actAgain(accountIds: ReadonlySet<string>): void {
    for (const { live, device, time } of this.#takeEndedAway(accountIds)) {
      this.#parts.presence.disconnected(device, live, time);
      this.#parts.news.ended(device);
    }
  }

  /** Another server handles these accounts, and says what becomes of their devices. */
  forget(accountIds: ReadonlySet<string>): void {
    for (const { device } of this.#takeEndedAway(accountIds)) this.#parts.presence.forget(device);
  }

  #takeEndedAway(accountIds: ReadonlySet<string>): EndedAway[] {
    const taken = this.#endedAway.filter(({ device }) => accountIds.has(device.accountId));
    this.#endedAway = this.#endedAway.filter(({ device }) => !accountIds.has(device.accountId));
    return taken;
  }
}
