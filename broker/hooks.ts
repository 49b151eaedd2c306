import type { AuthenticateError, ConnectPacket, Subscription } from 'aedes';
import type { StoredWill } from '../db/messages/sessions/changes.js';
import type { BrokerServices, Rejection } from '../src/broker-ports.js';
import { failure, failureOf } from '../src/errors.js';
import { downlinkChannels } from '../src/topics.js';
import type { BrokerClient, BrokerCore, Incoming, LiveClient, Outgoing } from './aedes-types.js';
import { type Authenticator, ConnectRefused, connack } from './authenticate.js';
import { type Authority, type DeviceAddress, deviceItself } from './authorize.js';
import {
  type Counters,
  type FilterRefusal,
  type LimitName,
  refusePublish,
  variableOf,
} from './connections/counters.js';
import { type Limits, OverLimit } from './connections/limits.js';
import type { Listeners } from './connections/listeners.js';
import { grant, refreshFilters, type Sessions } from './connections/live-clients.js';
import { faultOf } from './connections/safe-error.js';
import type { ControlTopics } from './control.js';
import type { DeviceSigns } from './http/device-signs.js';
import type { Ingest } from './ingest/ingest.js';
import type { Pace } from './packets/pace.js';
import { Malformed } from './packets/read.js';
import type { Presence } from './presence.js';
import type { Publications } from './publications.js';
import { type Refusals, reasonOf, refusedPrincipal } from './refusals.js';
import { unsubscribe } from './revocation.js';
import { type ServiceChannels, silence } from './service-channels.js';
import type { SessionStore } from './sessions/persistence.js';
import { matches } from './topics.js';

/** The services of the hooks. */
export interface Parts {
  services: BrokerServices;
  aedes: BrokerCore;
  counters: Counters;
  sessions: Sessions;
  authenticator: Authenticator;
  authority: Authority;
  limits: Limits;
  persistence: SessionStore;
  channels: ServiceChannels;
  control: ControlTopics;
  ingest: Ingest;
  pace: Pace;
  presence: Presence;
  publications: Publications;
  signs: DeviceSigns;
  refusals: Refusals;
  listeners: Listeners;
}

/** What a retained message costs next to a delivery, and bytes that cost as much as one. */
const costOfRetained = 3;
const bytesOfCost = 1024;
/** Retained messages that one SUBSCRIBE gets before it may have to wait for its turn. */
const retainedPerTurn = 16;

type Done = (error?: Error | null) => void;
type Answered<T> = (error: Error | null, answer: T) => void;

/** The hooks of a connection and its packets, in the order of its life. */
export class Hooks {
  readonly #parts: Parts;
  /** Errors whose refusal is in its list already. */
  readonly #noted = new WeakSet<Error>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  // CONNECT

  preConnect(client: BrokerClient, packet: ConnectPacket, done: Answered<boolean>): void {
    const { username, clientId } = packet;
    const address = this.#parts.limits.addressOf(client.conn);
    this.#parts.authenticator.preConnect(client, packet, (error, success) => {
      done(error, success);
      if (error instanceof ConnectRefused) this.#noteConnect(username || clientId, { address, clientId }, error);
    });
    const { live } = client;
    if (!live) return;
    client.conn.once('close', () => {
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
    let refusal: ConnectRefused | undefined;
    try {
      await services.onBehalfOf({ connectionId }, () => authenticator.authenticate(client, username, password));
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
    if (refusal && live && name && !isGone) this.#noteConnect(name, live, refusal);
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
    const { listeners, presence, services, signs } = this.#parts;
    listeners.ready(client);
    const { live } = client;
    if (!live || live.ended) return;
    live.ready = true;
    const { connectionId, address } = live;
    services.log.debug({ connectionId, address, clientId: client.id }, 'connected');
    const device = deviceOf(live);
    if (device) presence.connected(device, live);
    if (device) signs.sign(device.deviceId);
    this.#endPrevious(live);
  }

  /** Where two secrets are in force, the previous one ends when the new one has connected. */
  #endPrevious({ identity, connectionId }: LiveClient): void {
    if (identity?.generation === undefined) return;
    const { services, sessions, authenticator } = this.#parts;
    const { principal, generation } = identity;
    services
      .secretConnected(principal, generation)
      .then((hasEnded) => hasEnded && sessions.endOutdated(principal, (one) => authenticator.isCurrent(one)))
      .catch((error) => services.log.error({ err: error, connectionId }, 'a previous secret could not be ended'));
  }

  ready({ live }: BrokerClient): void {
    if (!live || live.ended) return;
    this.#endUnlessCurrent(live);
    // The filters of a session that was taken up again.
    this.#tellListening(live, [...live.filters]);
  }

  /** Tells who has work for devices what this connection of one has subscribed to. */
  #tellListening(live: LiveClient, filters: readonly string[]): void {
    const { ownChannels } = live.identity ?? {};
    const device = deviceOf(live);
    if (!device || ownChannels === undefined || live.ended) return;
    for (const channel of downlinkChannels) {
      const isNamed = filters.includes(ownChannels + channel);
      if (isNamed || filters.some((filter) => matches(filter, ownChannels + channel)))
        this.#tellDownlink((downlink) => downlink.listening(device, channel, isNamed));
    }
  }

  /** Nothing that it throws may end the connection. */
  #tellDownlink(tell: (downlink: BrokerServices['downlink']) => void): void {
    const { services } = this.#parts;
    try {
      tell(services.downlink);
    } catch (error) {
      services.log.error({ err: error }, 'the work for a device could not be looked at');
    }
  }

  #isConnected({ deviceId }: DeviceAddress): boolean {
    for (const { ready, ended } of this.#parts.sessions.of(deviceId)) if (ready && !ended) return true;
    return false;
  }

  /** A connection ends by an error; what `packets` ends passes no other hook. */
  failed({ live }: BrokerClient, error: Error): void {
    if (live && error instanceof Malformed && error.about) this.#noteMalformed(live, error.about);
    if (!live || !(error instanceof OverLimit) || this.#noted.has(error)) return;
    if (error.limit.endsWith('_rate_per_client')) this.#note(live, 'publish', null, farOver(error.limit));
    if (error.limit === 'max_unreleased_per_account') this.#note(live, 'publish', null, tooManyUnreleased);
    if (error.limit === 'max_payload_bytes') this.#note(live, 'publish', null, payloadTooLarge);
  }

  #noteMalformed(live: LiveClient, { action, topic }: { action: 'publish' | 'subscribe'; topic: string }): void {
    const { counters } = this.#parts;
    this.#note(live, action, topic, malformedTopic);
    if (action === 'publish') refusePublish(counters, 'malformed');
    else counters.refusedSubscriptions.malformed += 1;
  }

  ended(live: LiveClient): void {
    this.#parts.services.log.debug({ connectionId: live.connectionId }, 'disconnected');
    const device = deviceOf(live);
    if (!device) return;
    this.#parts.presence.disconnected(device, live);
    if (!this.#isConnected(device)) this.#tellDownlink((downlink) => downlink.disconnected(device));
  }

  // PUBLISH

  /** Decides a PUBLISH, or a will when it fires; `client` is null for a will that a dead process has left. */
  publish(client: BrokerClient | null, packet: Incoming, done: Done): void {
    const { authority, counters, ingest, services } = this.#parts;
    const live = client?.live;
    if (!live?.identity) {
      silence(packet);
      done();
      return;
    }
    const { maxPayloadBytes } = services.config.mqtt;
    if (maxPayloadBytes > 0 && packet.payload.length > maxPayloadBytes) {
      this.#note(live, 'publish', packet.topic, payloadTooLarge);
      refusePublish(counters, 'too_large');
      const error = new OverLimit('max_payload_bytes');
      this.#noted.add(error);
      done(error);
      return;
    }
    const decision = authority.decidePublish(live.identity, packet.topic);
    if (decision.verdict === 'accepted') {
      // A will is no message of a device that works.
      if (!live.hasPublished && !live.client.closed) this.#parts.publications.first(live);
      ingest.accept(live, packet, decision.route, done);
      return;
    }
    if (decision.verdict === 'control') {
      this.#takeControl(live, decision.device, packet, done);
      return;
    }
    if (decision.verdict === 'malformed' || this.#refusedTooOften(live)) {
      const isMalformed = decision.verdict === 'malformed';
      this.#note(live, 'publish', packet.topic, isMalformed ? malformedTopic : tooManyRefusals);
      refusePublish(counters, isMalformed ? 'malformed' : 'too_often');
      done(isMalformed ? new Error('malformed topic') : new OverLimit('refusals_per_minute'));
      return;
    }
    if (decision.device) this.#note(live, 'publish', packet.topic, decision.rejection, decision.device);
    refusePublish(counters, decision.reason);
    const { connectionId } = live;
    // Once a minute for each client: a program in a loop would fill the log.
    const level = live.refusals.count === 1 ? 'info' : 'debug';
    const reason = reasonOf(decision.rejection);
    services.log[level]({ connectionId, clientId: live.client.id, topic: packet.topic, reason }, 'PUBLISH refused');
    // Aedes goes on with the same packet, so the refused one has to become something harmless.
    if (decision.device) this.#parts.channels.rewrite(decision.device, packet, decision.rejection);
    else silence(packet);
    ingest.inTurn(live, done);
  }

  #takeControl(live: LiveClient, device: DeviceAddress, packet: Incoming, done: Done): void {
    const { topic } = packet;
    this.#parts.control.take(live, device, packet, (rejection) => {
      if (!rejection) {
        done();
        return;
      }
      refusePublish(this.#parts.counters, 'not_readable');
      const isTooOften = this.#refusedTooOften(live);
      this.#note(live, 'publish', topic, isTooOften ? tooManyRefusals : rejection);
      done(isTooOften ? new OverLimit('refusals_per_minute') : undefined);
    });
  }

  /** Publishes what a crashed process has left to say, under the rights that its owner has now. */
  publishLeftWill(left: StoredWill): void {
    const { authority, ingest, aedes, services } = this.#parts;
    const identity = authority.identityOf(left);
    const decision = identity && authority.decidePublish(identity, left.topic);
    if (!identity || decision?.verdict !== 'accepted') return;
    const { topic, qos, retain, payload } = left;
    const about = { topic, qos: qos as 0 | 1 | 2, retain: retain === 1, payload: Buffer.from(payload) };
    const will: Incoming = { cmd: 'publish', dup: false, ...about };
    ingest.acceptLeft(identity.caller, will, decision.route, (error) => {
      if (error) services.log.error({ fault: faultOf(error), topic }, 'a will could not be stored');
      else aedes.publish(will, () => {});
    });
  }

  // SUBSCRIBE

  /** `null` answers 0x80 and keeps the connection. */
  subscribe({ live }: BrokerClient, subscription: Subscription, done: Answered<Subscription | null>): void {
    const { refusedSubscriptions } = this.#parts.counters;
    const verdict = live ? this.#parts.authority.decideSubscribe(live, subscription) : 'refused';
    if (verdict === 'granted') {
      if (live) grant(live, subscription);
      done(null, subscription);
      return;
    }
    if (verdict === 'malformed') {
      if (live) this.#note(live, 'subscribe', subscription.topic, malformedTopic);
      refusedSubscriptions.malformed += 1;
      done(new Error('malformed filter'), null);
      return;
    }
    const isTooOften = live !== undefined && this.#refusedTooOften(live);
    let counted: FilterRefusal = isTooOften ? 'too_often' : 'out_of_reach';
    if (live) {
      const reason = isTooOften ? tooManyRefusals : this.#parts.authority.filterRefusal(live, subscription.topic);
      if (!isTooOften && reason.kind === 'tooMany') counted = 'too_many';
      this.#note(live, 'subscribe', subscription.topic, reason);
    }
    refusedSubscriptions[counted] += 1;
    live?.refusedFilters.add(subscription.topic);
    done(isTooOften ? new OverLimit('refusals_per_minute') : null, null);
  }

  /** A SUBSCRIBE has been answered; what is retained for it, and the states of devices, are sent before the next packet. */
  subscribed({ live }: BrokerClient, subscriptions: Subscription[]): void {
    if (!live) return;
    refreshFilters(live);
    const { authority, services } = this.#parts;
    // A right may have been lost between SUBSCRIBE and here.
    const refused = authority.refusedFilters(live);
    if (refused.length > 0) void unsubscribe(live, refused);
    const granted = subscriptions.filter(({ qos }) => (qos as number) <= 2);
    this.#tellListening(
      live,
      granted.map(({ topic }) => topic),
    );
    for (const { topic } of granted) {
      const device = live.identity && authority.controlledBy(live.identity.caller, topic);
      if (device) this.#parts.control.listening(device);
    }
    if (granted.length === 0) {
      live.whenSubscribed?.();
      return;
    }
    const { connectionId } = live;
    this.#sendFirst(live, granted)
      .catch((error) => services.log.error({ err: error, connectionId }, 'what a SUBSCRIBE asks for could not be sent'))
      .finally(() => live.whenSubscribed?.());
  }

  async #sendFirst(live: LiveClient, granted: Subscription[]): Promise<void> {
    const { channels, pace, persistence } = this.#parts;
    const { client } = live;
    const filters = granted.map(({ topic }) => topic);
    let sent = 0;
    for await (const packet of persistence.retainedFor(live, filters)) {
      pace.spend(costOfRetained + packet.payload.length / bytesOfCost);
      sent += 1;
      if (sent % retainedPerTurn === 0 && pace.isOver) await pace.turn(live.identity?.caller.accountId ?? '');
      if (client.closed) return;
      await new Promise<void>((resolve) => client.deliverQoS(packet, () => resolve()));
      // A client that reads its answers is alive, though its own packets have to wait.
      if (client._keepaliveInterval > 0) client._keepaliveTimer?.refresh();
    }
    for (const { topic, qos } of granted) await channels.sendState(live, topic, qos);
  }

  unsubscribed({ live }: BrokerClient, filters: string[]): void {
    if (!live) return;
    for (const filter of filters) live.filters.delete(filter);
    refreshFilters(live);
  }

  // Delivery

  /** The hard gate: every message to every client passes here, live, retained or queued. */
  forward(client: BrokerClient, packet: Outgoing): Outgoing | undefined {
    const { authority, persistence } = this.#parts;
    if (!client.clean && persistence.isBehind(client, packet)) return undefined;
    const { live } = client;
    const allowed = live && authority.forward(live, packet);
    if (allowed) this.#parts.counters.sent += 1;
    else if (!client.clean) persistence.forget(client, packet);
    // From a session's queue, with its packet id.
    if (allowed?.messageId !== undefined) live?.sent.set(allowed.messageId, allowed.qos === 1 ? 'puback' : 'pubrec');
    return allowed;
  }

  /** Into the list of the device that was refused, or that the refused message names; nothing for other people. */
  #note(
    live: LiveClient,
    action: 'publish' | 'subscribe',
    topic: string | null,
    rejection: Rejection,
    device = deviceOf(live),
  ): void {
    if (!device) return;
    const { address, clientId, identity } = live;
    const principal = identity && refusedPrincipal(identity.caller);
    const why = { reason: reasonOf(rejection), code: failureOf(rejection.kind).code };
    this.#parts.refusals.note(device.deviceId, { action, topic, ...why, address, clientId, principal });
  }

  /** A CONNECT is noted when its name is that of a device, proven or not. Never throws: it has been answered already. */
  #noteConnect(
    name: string,
    { address, clientId }: Pick<LiveClient, 'address' | 'clientId'>,
    { limit, message, returnCode: code, isProven }: ConnectRefused,
  ): void {
    const { refusals, services } = this.#parts;
    try {
      if (!services.access.placement(name)) return;
    } catch (error) {
      services.log.error({ err: error }, 'a refused CONNECT could not be noted');
      return;
    }
    const reason = limit === undefined ? message : `${variableOf(limit)}: ${message}`;
    const principal = isProven ? ({ type: 'device', id: name } as const) : undefined;
    refusals.note(name, { action: 'connect', topic: null, reason, code, address, clientId, principal });
  }

  #refusedTooOften(live: LiveClient): boolean {
    return this.#parts.authority.refusedTooOften(live);
  }

  #endUnlessCurrent(live: LiveClient): void {
    const { authenticator, sessions } = this.#parts;
    if (!live.identity || !authenticator.isCurrent(live.identity)) sessions.kick(live);
  }
}

const payloadTooLarge = failure('tooLarge', {
  message: `${variableOf('max_payload_bytes')}: the payload is too large.`,
});
const tooManyRefusals = failure('tooMany', {
  message: `${variableOf('refusals_per_minute')}: refused too often, disconnected.`,
});
const tooManyUnreleased = failure('tooMany', {
  message: `${variableOf('max_unreleased_per_account')}: too many QoS 2 messages of the account wait for PUBREL, disconnected.`,
});
const farOver = (limit: LimitName) =>
  failure('tooMany', { message: `${variableOf(limit)}: far over it, disconnected.` });
const malformedTopic = failure('invalid', { message: 'The topic is malformed; the connection ended.' });

function deviceOf({ identity }: LiveClient): DeviceAddress | undefined {
  return identity && deviceItself(identity.caller);
}
