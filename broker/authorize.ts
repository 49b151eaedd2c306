import type { StoredWill } from '../db/messages/sessions/changes.ts';
import { boundedCache } from '../db/sqlite/cache.ts';
import type { Access } from '../src/core/access.ts';
import { type Caller, isAccountWide, principalOf } from '../src/core/caller.ts';
import type { Channel } from '../src/core/channels.ts';
import { type HistoryWindow, wholeHistory } from '../src/core/history-window.ts';
import type { Action } from '../src/core/rights.ts';
import { type ChannelTopic, controlTopic, formatTopic, parseTopic, serviceChannel } from '../src/core/topics.ts';
import type { BrokerBase, DeviceAddress } from '../src/ports/broker-ports.ts';
import type { LiveClient, ProvenIdentity } from './client-types.ts';
import { principalIn, privateClientId } from './connections/client-ids.ts';
import type { Counters } from './connections/counters.ts';
import { type Dated, FormerMessages } from './former-messages.ts';
import { isOrdered, type Outgoing } from './message-types.ts';
import { type Reason, reason } from './reasons.ts';
import type { Reach } from './sessions/retained-search.ts';
import {
  canMatch,
  couldMatchChannel,
  hasForbiddenCharacter,
  isShared,
  isWellFormed,
  matchedFilter,
  parseShared,
} from './topics.ts';

/** Where an accepted message goes. */
export interface Route extends DeviceAddress {
  channel: Channel;
  /** Of the device, when it was accepted. */
  possession: number;
}

/** The decision about a PUBLISH. A refusal names the device on whose `_rejected` it is explained, if there is one. */
export type Decision =
  | { verdict: 'accepted'; route: Route }
  /** On the control topic of the device itself. */
  | { verdict: 'control'; device: DeviceAddress }
  | { verdict: 'refused'; reason: Reason; device: DeviceAddress | undefined };

const minute = 60_000;
const peopleKept = 50_000;

/** Topic decisions for PUBLISH, SUBSCRIBE and every delivery. All answer at once, from memory. */
export class Authority {
  readonly #access: Access;
  readonly #root: string;
  readonly #services: BrokerBase;
  readonly #counters: Counters;
  /** What is on its way to people whose device it was not then. */
  readonly former = new FormerMessages();
  /** Principals of stored sessions that are no devices. */
  readonly #people = boundedCache<string, true>(peopleKept);
  /** One message is delivered to many: its topic is parsed once. */
  #parsed: { topic: string; parts: ChannelTopic | undefined } = { topic: '', parts: undefined };

  constructor(services: BrokerBase, counters: Counters) {
    this.#services = services;
    this.#access = services.access;
    this.#root = services.config.topicRoot;
    this.#counters = counters;
  }

  /** Whether a message of this principal on `topic` is accepted, and where it goes. */
  decidePublish({ caller, ownChannels }: Pick<ProvenIdentity, 'caller' | 'ownChannels'>, topic: string): Decision {
    const named = this.#named(caller, ownChannels, topic);
    if (named && this.#access.mayPublish(caller, named.deviceId, named.channel)) {
      const route = this.#route(named);
      if (route) return { verdict: 'accepted', route };
    }
    const device = deviceItself(caller);
    if (hasForbiddenCharacter(topic)) return { verdict: 'refused', reason: reason('malformedTopic'), device };
    if (device && this.#isOwnControl(caller, 'svc', topic)) return { verdict: 'control', device };
    return this.#refusal(caller, named, topic);
  }

  /** The decision about a PUBLISH, or a SUBSCRIBE without the limit on filters, of a caller that is not connected. */
  decide(caller: Caller, action: 'publish' | 'subscribe', topic: string): 'granted' | 'refused' | 'malformed' {
    if (action === 'subscribe') {
      if (!isWellFormed(topic)) return 'malformed';
      return this.#mayHold(caller, topic) ? 'granted' : 'refused';
    }
    const decision = this.decidePublish({ caller, ownChannels: this.ownChannelsOf(caller) }, topic);
    if (decision.verdict !== 'refused') return 'granted';
    return decision.reason.code === 'malformedTopic' ? 'malformed' : 'refused';
  }

  /** Whether the credential of a connection is still in force. */
  isCurrent({ principal, generation, certificateId, expires }: ProvenIdentity): boolean {
    const { clock, proofs } = this.#services;
    const { certificates, secrets } = proofs;
    if (generation !== undefined) return secrets.isInForce(principal, generation);
    return (certificateId === undefined || certificates.isLive(certificateId)) && expires > clock.now();
  }

  /** Whether a connection was made with the newest secret of its principal, or without one. */
  isNewest({ principal, generation }: ProvenIdentity): boolean {
    return generation === undefined || this.#services.registry.credential(principal)?.generation === generation;
  }

  /** `<root>/<account>/d/<device>/` of a device; undefined for everybody else. */
  ownChannelsOf({ kind, accountId, id }: Caller): string | undefined {
    return kind === 'device' ? formatTopic(this.#root, accountId, id, '') : undefined;
  }

  /** Why a filter was refused. */
  filterRefusal({ filters, identity }: LiveClient, filter: string): Reason {
    const { config } = this.#services;
    const { maxSubscriptions } = config.mqtt;
    if (!isWellFormed(filter) || (isShared(filter) && !parseShared(filter))) return reason('malformedFilter');
    if (maxSubscriptions > 0 && !filters.has(filter) && filters.size >= maxSubscriptions)
      return reason('tooManyFilters');
    const isOwn = identity?.ownChannels !== undefined && filter.startsWith(identity.ownChannels);
    if (isOwn && !/[+#]/.test(filter)) return reason('noChannelOfItsOwn');
    const matched = matchedFilter(filter);
    const isOfForm = couldMatchChannel(this.#root, matched) || matched.startsWith(`${config.controlRoot}/`);
    return reason(isOfForm ? 'noSuchChannel' : 'noChannelFilter');
  }

  /** Whether a well-formed filter may be in the session of this connection. */
  maySubscribe({ identity, filters }: LiveClient, filter: string): boolean {
    if (!identity) return false;
    const { maxSubscriptions } = this.#services.config.mqtt;
    if (maxSubscriptions > 0 && !filters.has(filter) && filters.size >= maxSubscriptions) {
      this.#counters.limitHits.max_subscriptions += 1;
      return false;
    }
    return this.#mayHold(identity.caller, filter);
  }

  /** Filters of a connection that can match nothing in its reach any more. */
  refusedFilters({ identity, filters }: LiveClient): string[] {
    if (!identity) return [];
    return [...filters].filter((filter) => !this.#mayHold(identity.caller, filter));
  }

  /** Retained messages that a connection may receive; none once it has closed. */
  reachOf({ identity, client }: LiveClient): Reach {
    return {
      prefix: identity?.ownChannels ?? `${this.#root}/${identity?.caller.accountId ?? ''}/d/`,
      mayHear: (topic) => identity !== undefined && this.historyWindowOf(identity.caller, identity.ownChannels, topic),
      isOver: () => client.closed,
    };
  }

  /** Whether the caller may be told of a message on `topic` now. */
  mayHear(caller: Caller, ownChannels: string | undefined, topic: string): boolean {
    if (ownChannels !== undefined) {
      if (!topic.startsWith(ownChannels)) return this.#isOwnControl(caller, 'cln', topic);
      return this.#access.mayHear(caller, caller.id, topic.slice(ownChannels.length));
    }
    const parts = this.#parse(topic);
    if (!parts || parts.accountId !== caller.accountId) return false;
    return this.#access.mayHear(caller, parts.deviceId, parts.channel);
  }

  /** As mayHear, of a message: one that a device has sent for its former owner is not for people. */
  mayHearMessage(caller: Caller, ownChannels: string | undefined, topic: string, message: Dated): boolean {
    if (!this.mayHear(caller, ownChannels, topic)) return false;
    if (ownChannels !== undefined || isAccountWide(caller)) return true;
    return !this.former.isFormer(this.#parse(topic)?.deviceId, message);
  }

  /** What the caller may be told of the past of the device of a topic; false for nothing. */
  historyWindowOf(caller: Caller, ownChannels: string | undefined, topic: string): HistoryWindow | false {
    if (!this.mayHear(caller, ownChannels, topic)) return false;
    if (ownChannels !== undefined) return wholeHistory;
    const device = this.#access.placement(this.#parse(topic)?.deviceId ?? '');
    return device !== undefined && this.#access.historyWindowOf(caller, device);
  }

  /** Whether the owner of a stored session may be told of a message; its private client id says who that is. */
  mayQueue(clientId: string, topic: string, message: Dated = {}): boolean {
    const owner = this.#ownerOf(clientId);
    return owner !== undefined && this.mayHearMessage(owner.caller, owner.ownChannels, topic, message);
  }

  /** Whether a filter of a stored session can match anything in its owner's reach now. */
  mayStand(clientId: string, filter: string): boolean {
    const owner = this.#ownerOf(clientId);
    return owner !== undefined && this.#mayHold(owner.caller, filter);
  }

  /** The caller of a private client id, unless it is a device or no longer exists. */
  personBehind(clientId: string): Caller | undefined {
    const owner = this.#ownerOf(clientId);
    return owner?.ownChannels === undefined ? owner?.caller : undefined;
  }

  /** Whether a device is behind a private client id, live or not. */
  isDevice(clientId: string): boolean {
    return this.#access.placement(principalIn(clientId)) !== undefined;
  }

  /** Whether there is still somebody to whom a stored session can belong, in the trash or not. */
  hasOwner(clientId: string): boolean {
    const principal = principalIn(clientId);
    return this.#ownerOf(clientId) !== undefined || this.#services.registry.credential(principal) !== undefined;
  }

  /** The caller of a proof with its current rights; undefined if it is deleted or was cut off since. */
  identityOf({
    clientId,
    generation,
    sessionId,
  }: Pick<StoredWill, 'clientId' | 'generation' | 'sessionId'>): ProvenIdentity | undefined {
    const owner = this.#ownerOf(clientId);
    const principal = principalIn(clientId);
    const { certificates, logins, secrets } = this.#services.proofs;
    if (!owner) return undefined;
    if (generation !== null && !secrets.isInForce(principal, generation)) return undefined;
    if (sessionId !== null && !logins.isOpen(sessionId) && !certificates.isLive(sessionId)) return undefined;
    const certificate = { certificateId: undefined, ground: undefined };
    const proof = { generation: generation ?? undefined, sessionId: sessionId ?? undefined, ...certificate };
    return { ...owner, ...proof, principal, expires: Number.POSITIVE_INFINITY, tokenLifetime: undefined };
  }

  /** The id of the device that a topic names, always the same string for one device. */
  deviceOf(topic: string): string | undefined {
    const parts = this.#parse(topic);
    return parts && (this.#access.placement(parts.deviceId)?.id ?? parts.deviceId);
  }

  /** A message is handed on that was accepted in another possession of its device than the present one. */
  noteIfFormer({ deviceId, possession }: Route, payload: Buffer): void {
    const now = this.#access.placement(deviceId)?.possession;
    if (now !== undefined && now !== possession) this.former.noteLate(payload);
  }

  /** Whether the device that a topic names has gone to somebody else since a time, in milliseconds since 1970. */
  hasMovedSince(topic: string, time: number): boolean {
    const since = this.#access.placement(this.#parse(topic)?.deviceId ?? '')?.possessionSince;
    return typeof since === 'string' && Date.parse(since) >= time;
  }

  /** The account that a topic names; empty for one that names none. */
  accountOf(topic: string): string {
    return this.#parse(topic)?.accountId ?? '';
  }

  /** The account whose receivers a message on `topic` has; empty for one that has none. */
  receivingAccountOf(topic: string): string {
    const accountId = this.accountOf(topic);
    const { controlRoot } = this.#services.config;
    if (accountId !== '' || !topic.startsWith(`${controlRoot}/`)) return accountId;
    const [deviceId = ''] = topic.slice(controlRoot.length + 1).split('/');
    return this.#access.placement(deviceId)?.accountId ?? '';
  }

  /** The caller of a token with its current rights; undefined after a logout. Without a token, the caller itself. */
  currentCaller(caller: Caller): Caller | undefined {
    const { accountId, sessionId, address } = caller;
    // The identity of who has proven a secret may reach more than that secret does.
    if (sessionId === undefined) return caller;
    const clientId = privateClientId(accountId, principalOf(caller), '');
    const identity = this.identityOf({ clientId, generation: null, sessionId });
    return identity && { ...identity.caller, sessionId, ...(address !== undefined && { address }) };
  }

  /** Whether a topic names a device that exists, in the trash or not. */
  namesDevice(topic: string): boolean {
    const parts = this.#parse(topic);
    return parts !== undefined && this.#access.placement(parts.deviceId) !== undefined;
  }

  /** The principal behind a private client id: what it may act as now. */
  #ownerOf(clientId: string): Pick<ProvenIdentity, 'caller' | 'ownChannels'> | undefined {
    const principal = principalIn(clientId);
    // A user is no device: looking for one would read the disk for every message.
    const person = this.#people.has(principal) && this.#personOf(principal);
    if (person) return { caller: person, ownChannels: undefined };
    const device = this.#access.placement(principal);
    if (device) {
      const { id, accountId } = device;
      const caller = { kind: 'device', id, accountId } as const;
      return { caller, ownChannels: this.ownChannelsOf(caller) };
    }
    const caller = this.#personOf(principal);
    if (!caller) return undefined;
    this.#people.set(principal, true);
    return { caller, ownChannels: undefined };
  }

  #personOf(principal: string): Caller | undefined {
    return this.#access.callerOfPrincipal(principal);
  }

  /** The packet as it may be delivered to this connection; undefined when it may not. */
  forward(live: LiveClient, packet: Outgoing): Outgoing | undefined {
    const { identity, client } = live;
    // The service sends these again itself, with the next attempt: a copy from the queue would be one too many.
    if (identity && packet.messageId !== undefined && this.#isForDevice(identity, packet.topic)) return undefined;
    if (!identity || live.ended) return undefined;
    if (!this.mayHearMessage(identity.caller, identity.ownChannels, packet.topic, packet)) return undefined;
    // Only what it may hear: the messages of other accounts come in no order with its own.
    if (isOrdered(packet) && packet.brokerCounter > live.lastHeard) live.lastHeard = packet.brokerCounter;
    if (packet.qos === 0 && client.conn.writableNeedDrain) {
      this.#counters.shed += 1;
      return undefined;
    }
    return packet;
  }

  /** Counts a refusal; true when the client has been refused too often in the last minute. */
  refusedTooOften({ refusals }: LiveClient): boolean {
    const { refusalsPerMinute } = this.#services.config.mqtt;
    const now = this.#services.clock.now();
    if (now - refusals.since >= minute) {
      refusals.since = now;
      refusals.count = 0;
    }
    refusals.count += 1;
    return refusalsPerMinute > 0 && refusals.count > refusalsPerMinute;
  }

  /** Whether a message on `topic` is work for the device behind a connection: an update, a command, a control message. */
  #isForDevice({ caller, ownChannels }: ProvenIdentity, topic: string): boolean {
    if (ownChannels === undefined) return false;
    if (!topic.startsWith(ownChannels)) return this.#isOwnControl(caller, 'cln', topic);
    return serviceChannel(topic.slice(ownChannels.length))?.isDownlink ?? false;
  }

  /** Whether `topic` is `<control root>/<device id>/<direction>` of the caller, a device that may use it now. */
  #isOwnControl(caller: Caller, direction: 'cln' | 'svc', topic: string): boolean {
    const { controlRoot } = this.#services.config;
    if (!topic.startsWith(controlRoot) || topic !== controlTopic(controlRoot, caller.id, direction)) return false;
    return caller.kind === 'device' && this.#access.reachableDevice(caller, caller.id, 'subscribe') !== undefined;
  }

  /** Whether a filter can match anything that the caller may be told of. */
  #mayHold(caller: Caller, filter: string): boolean {
    if (isShared(filter)) return canMatch(this.#root, this.#access, caller, matchedFilter(filter));
    return canMatch(this.#root, this.#access, caller, filter) || this.#isOwnControl(caller, 'cln', filter);
  }

  /** The device whose control topic `…/cln` this is, when it is that of the caller. */
  controlledBy(caller: Caller, topic: string): DeviceAddress | undefined {
    return this.#isOwnControl(caller, 'cln', topic) ? deviceItself(caller) : undefined;
  }

  #named(caller: Caller, ownChannels: string | undefined, topic: string): ChannelTopic | undefined {
    if (ownChannels === undefined) return this.#parse(topic);
    if (!topic.startsWith(ownChannels)) return undefined;
    return { accountId: caller.accountId, deviceId: caller.id, channel: topic.slice(ownChannels.length) };
  }

  #route({ accountId, deviceId, channel: name }: ChannelTopic): Route | undefined {
    const device = this.#access.placement(deviceId);
    const channel = device && this.#access.channelOf(device.deviceTemplateId, name);
    // A user may name a device of its own account under another account's id.
    return channel && device.accountId === accountId
      ? { accountId, deviceId, channel, possession: device.possession }
      : undefined;
  }

  #refusal(caller: Caller, named: ChannelTopic | undefined, topic: string): Decision {
    const own = deviceItself(caller);
    const isReached = (action: Action) => named && this.#access.reachableDevice(caller, named.deviceId, action);
    const reached = named && (isReached('publish') ?? isReached('subscribe')) && this.#route(named);
    const device = own ?? (reached && { accountId: reached.accountId, deviceId: reached.deviceId });
    if (reached) return { verdict: 'refused', reason: reason('notPermitted'), device };
    const why = own && named ? reason('noChannelOfItsOwn') : this.#noTopic(caller, topic);
    return { verdict: 'refused', reason: why, device };
  }

  /** How the topics of the caller are written; the same for every topic, because nobody learns what others have. */
  #noTopic(caller: Caller, topic: string): Reason {
    const own = this.ownChannelsOf(caller) ?? formatTopic(this.#root, caller.accountId, '<device id>', '');
    const isOfForm = this.#parse(topic) !== undefined || topic.startsWith(`${this.#services.config.controlRoot}/`);
    return reason(isOfForm ? 'noSuchChannel' : 'noChannelTopic', [
      { path: 'topic', message: `is not a channel topic in reach; use ${own}<channel>` },
    ]);
  }

  #parse(topic: string): ChannelTopic | undefined {
    if (topic !== this.#parsed.topic) this.#parsed = { topic, parts: parseTopic(this.#root, topic) };
    return this.#parsed.parts;
  }
}

/** The device that a caller is; undefined for everybody else. */
export function deviceItself({ kind, accountId, id }: Caller): DeviceAddress | undefined {
  return kind === 'device' ? { accountId, deviceId: id } : undefined;
}

/** The device of a connection; undefined if its caller is a user or an application, or not proven yet. */
export function connectedDevice({ identity }: LiveClient): DeviceAddress | undefined {
  return identity && deviceItself(identity.caller);
}
