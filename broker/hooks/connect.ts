import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import type { AuthenticateError, ConnectPacket } from 'aedes';
import type { Attempts } from '../../src/limits/attempts.ts';
import { laneOfAddress } from '../../src/limits/lanes.ts';
import { limitTries } from '../../src/limits/tries.ts';
import type { BrokerClient, LiveClient } from '../aedes-types.ts';
import { ConnectRefused, connack } from '../authenticate.ts';
import { connectedDevice, type DeviceAddress } from '../authorize.ts';
import { refusePublish } from '../connections/counters.ts';
import { OverLimit } from '../connections/limits.ts';
import { refreshFilters } from '../connections/live-clients.ts';
import { faultOf } from '../connections/safe-error.ts';
import { Malformed, type UnsupportedConnect } from '../packets/read.ts';
import { reason, reasonOfLimit } from '../reasons.ts';
import type { HookParts } from './parts.ts';

/** In front of Aedes once a CONNECT is parsed: every packet after it goes past Aedes. */
const spent: BrokerClient['_parser'] = Object.assign(new EventEmitter(), { _queue: null, parse: () => 0 });

/** Characters of a client id that nobody has checked. */
const maxLoggedId = 128;

type Answered<T> = (error: Error | null, answer: T) => void;

/** A connection that has ended while its account was on its way to another server. */
interface EndedAway {
  live: LiveClient;
  device: DeviceAddress;
  /** Milliseconds since 1970. */
  time: number;
}

/** A connection from CONNECT to its end. */
export class ConnectHooks {
  readonly #parts: HookParts;
  #endedAway: EndedAway[] = [];
  /** Networks whose refused protocol levels are in the log. */
  readonly #levelsLogged: Attempts;

  constructor(parts: HookParts) {
    this.#parts = parts;
    this.#levelsLogged = limitTries('loggedLevels', parts.services);
  }

  /** Aedes sees nothing of a CONNECT of an unsupported level. */
  levelRefused(conn: Duplex, { unsupportedLevel, username, clientId }: UnsupportedConnect): void {
    const { limits, notes, services } = this.#parts;
    const about = limits.about(conn);
    // Few texts: each one takes a line of those that strangers may fill.
    const spoken = unsupportedLevel === 5 ? 'MQTT 5' : 'this protocol level';
    const refusal = new ConnectRefused(connack.unacceptableLevel, `${spoken} is not supported; use MQTT 3.1.1`);
    void limits.refused(refusal, about);
    // Once a minute for each network: strangers would fill the log.
    const from = { address: about.address ?? '' };
    const isFirst = this.#levelsLogged.left(from).remaining > 0;
    if (isFirst) this.#levelsLogged.take(from);
    const said = { protocolLevel: unsupportedLevel, clientId: clientId.slice(0, maxLoggedId), ...about };
    services.log[isFirst ? 'info' : 'debug'](said, `CONNECT refused: ${refusal.message}`);
    const name = username || clientId;
    if (name) notes.noteConnect(name, { address: about.address, clientId }, refusal);
  }

  preConnect(client: BrokerClient, packet: ConnectPacket, done: Answered<boolean>): void {
    const { username, clientId } = packet;
    const address = this.#parts.limits.addressOf(client.conn);
    this.#parts.authenticator.preConnect(client, packet, (error, success) => {
      done(error, success);
      if (error instanceof ConnectRefused)
        this.#parts.notes.noteConnect(username || clientId, { address, clientId }, error);
    });
    const { live } = client;
    if (!live) return;
    client.conn.on('close', () => {
      this.#parts.sessions.remove(live);
      if (live.identity) this.#parts.persistence.leave(client);
    });
  }

  /** Never rejects: nobody would hear of it. */
  async authenticate(
    client: BrokerClient,
    username: string | undefined,
    password: Buffer | undefined,
    done: (error: AuthenticateError | null, success: boolean | null) => void,
  ): Promise<void> {
    const { authenticator, limits, services } = this.#parts;
    const about = limits.about(client.conn);
    const { connectionId = '' } = about;
    const lane = laneOfAddress(limits.addressOf(client.conn) ?? '');
    let refusal: ConnectRefused | undefined;
    try {
      await services.onBehalfOf({ cause: { connectionId }, lane }, () =>
        authenticator.authenticate(client, username, password),
      );
    } catch (error) {
      if (!(error instanceof ConnectRefused))
        services.log.error({ err: error, ...about }, 'a CONNECT could not be checked');
      refusal =
        error instanceof ConnectRefused ? error : new ConnectRefused(connack.unavailable, 'the check has failed');
    }
    if (refusal) await limits.refused(refusal, about);
    try {
      done(refusal ?? null, refusal === undefined);
    } catch (error) {
      services.log.error({ fault: faultOf(error), ...about }, 'a CONNECT could not be answered');
    }
    const { live } = client;
    // A client that has gone by itself was not refused.
    const isGone = refusal?.returnCode === connack.unavailable && client.conn.destroyed;
    const name = refusal?.about.deviceId ?? (username || live?.clientId);
    if (refusal && live && name && !isGone) this.#parts.notes.noteConnect(name, live, refusal);
  }

  /** Aedes has made this the one client of its id; what was true when the credential was proven may have changed. */
  registered(client: BrokerClient): void {
    const { sessions, persistence, aedes } = this.#parts;
    const { live } = client;
    if (!live || client.closed || live.ended) {
      aedes.deleteClient(client.id);
      return;
    }
    if (!client.clean) live.sessionPresent = persistence.begin(client);
    refreshFilters(live);
    for (const other of sessions.predecessorsOf(live)) other.client.close();
    this.#endUnlessCurrent(live);
  }

  connackSent(client: BrokerClient): void {
    const { presence, services, sessions, signs } = this.#parts;
    client.connection?.opened();
    const { live } = client;
    if (!live || live.ended) return;
    if (live.identity && services.gate.isAway(live.identity.caller.accountId)) {
      // Proven before its account was held: it comes back, and waits.
      sessions.kick(live);
      return;
    }
    live.ready = true;
    const { connectionId, address } = live;
    services.log.debug({ connectionId, address, clientId: client.id }, 'connected');
    const device = connectedDevice(live);
    if (device) presence.connected(device, live);
    if (device) signs.sign(device.deviceId);
    this.#endPrevious(live);
  }

  /** Where two secrets are in force, the previous one ends when the new one has connected. */
  #endPrevious({ identity, connectionId }: LiveClient): void {
    if (identity?.generation === undefined) return;
    const { services, sessions, authenticator } = this.#parts;
    const { principal, generation, caller } = identity;
    const lane = { accountId: caller.accountId, callerId: caller.id };
    services
      .onBehalfOf({ lane }, () => services.secretConnected(principal, generation))
      .then((hasEnded) => hasEnded && sessions.endOutdated(principal, (one) => authenticator.isCurrent(one)))
      .catch((error) => services.log.error({ err: error, connectionId }, 'a previous secret could not be ended'));
  }

  ready(client: BrokerClient): void {
    // The parser of a connection takes some 2 kB, and what it has read.
    client._parser = spent;
    const { live } = client;
    if (!live || live.ended) return;
    this.#endUnlessCurrent(live);
    // The filters of a session that was taken up again.
    this.#parts.news.subscribed(live, [...live.filters]);
  }

  /** A connection ends by an error; what `packets` ends passes no other hook. */
  failed({ live }: BrokerClient, error: Error): void {
    const { notes } = this.#parts;
    if (live && error instanceof Malformed && error.about) this.#noteMalformed(live, error.about);
    if (!live || !(error instanceof OverLimit) || error.isNoted) return;
    const why = reasonOfLimit(error.limit);
    if (why) notes.note(live, 'publish', null, why);
  }

  #noteMalformed(live: LiveClient, { action, topic }: { action: 'publish' | 'subscribe'; topic: string }): void {
    const { counters, notes } = this.#parts;
    notes.note(live, action, topic, reason('malformedTopic'));
    if (action === 'publish') refusePublish(counters, 'malformed');
    else counters.refusedSubscriptions.malformed += 1;
  }

  ended(live: LiveClient): void {
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

  #endUnlessCurrent(live: LiveClient): void {
    const { authenticator, sessions } = this.#parts;
    if (!live.identity || !authenticator.isCurrent(live.identity)) sessions.kick(live);
  }
}
