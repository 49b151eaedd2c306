import type { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerClient, LiveClient } from '../client-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import { hasRoom } from '../connections/live-clients.ts';
import type { Dated } from '../former-messages.ts';
import type { MessageNumbers } from '../message-numbers.ts';
import {
  type Carried,
  forOneClient,
  type GroupName,
  type Incoming,
  isForNow,
  type Outgoing,
  type Subscription,
} from '../message-types.ts';
import type { FanOut, Receive } from '../packets/fan-out.ts';
import { parseShared } from '../topics.ts';
import { AccountFilters } from './account-filters.ts';
import type { PersistenceRules } from './persistence-rules.ts';

/** Groups of one account, and members of all its groups: each is looked at for a message. */
const max = { groups: 1000, members: 10_000 };
/** Members whose rights take as long to look at as a delivery. */
const membersOfCost = 8;
/** Groups for which one client gets the same message of QoS 1 or 2: each copy is written by itself. */
const maxCopies = 16;

export interface GroupServices {
  fanOut: Pick<FanOut, 'subscribe' | 'unsubscribe'>;
  messageNumbers: Pick<MessageNumbers, 'next'>;
  scheduler: Pick<Scheduler, 'spend'>;
}

/** The queues of stored sessions, for their members of groups. */
interface MemberQueues {
  /** Takes it into the queue of a stored session. */
  enqueue(clientId: string, packet: Outgoing): void;
  /** What was written for a stored session is not for it. */
  takeBack(clientId: string, packet: Outgoing): void;
}

interface Member {
  readonly clientId: string;
  filter: Subscription;
  /** Undefined while it is away; then its session is stored. */
  client: BrokerClient | undefined;
  isStored: boolean;
}

/**
 * A member that has been chosen before the acknowledgement of a message, or that none may be; `payload` is under which the
 * message was written for it.
 */
interface Choice {
  clientId: string | undefined;
  payload: Buffer | undefined;
}

/** Account, share name and filter: a message that the filter matches goes to one of its members. */
interface Group extends GroupName {
  readonly accountId: string;
  /** What it matches. */
  readonly filter: string;
  /** In the order of their turns, the next one first. */
  readonly members: Map<string, Member>;
  /** How many of them have stored sessions. */
  stored: number;
  readonly receive: Receive;
}

/** A message as it is written once for stored sessions. */
interface Written {
  clientIds: Set<string>;
  packet: Incoming;
}

/** How a message is chosen for: its topic, its QoS, when it was handed on if it was, and who does not get it. */
interface WantedMember {
  topic: string;
  qos: 0 | 1 | 2;
  message?: Dated & Carried;
  except?: string;
  /** Those who get it for other groups, and for how many. */
  copies?: ReadonlyMap<string, number>;
  isConnected?: boolean;
}

/**
 * Shared subscriptions. A group is one receiver of the fan-out, and hands each message to one member that may hear it, in
 * turns: connected members with a free window first, then other connected ones, then stored sessions.
 */
export class SharedGroups {
  readonly #services: GroupServices;
  readonly #rules: Pick<PersistenceRules, 'receivingAccountOf' | 'mayHear' | 'mayQueue'>;
  readonly #queues: MemberQueues;
  readonly #groups = new Map<string, Group>();
  readonly #byTopic = new AccountFilters<Group>();
  readonly #perAccount = new Map<string, { groups: number; members: number }>();
  /** By payload: packets are copied on their way, and their payloads are not. */
  readonly #choices = new WeakMap<Uint8Array, Map<Group, Choice>>();

  constructor(
    services: GroupServices,
    rules: Pick<PersistenceRules, 'receivingAccountOf' | 'mayHear' | 'mayQueue'>,
    queues: MemberQueues,
  ) {
    this.#services = services;
    this.#rules = rules;
    this.#queues = queues;
  }

  /** Opens the group of a client that is about to join; false when its account may have no more. Call `settle` in the end. */
  open(clientId: string, filter: string): boolean {
    const accountId = accountIn(clientId);
    const known = this.#groups.get(keyOf(accountId, filter));
    const { groups, members } = this.#perAccount.get(accountId) ?? { groups: 0, members: 0 };
    if (!known && groups >= max.groups) return false;
    if (!known?.members.has(clientId) && members >= max.members) return false;
    this.#groupOf(accountId, filter);
    return true;
  }

  /** Ends the group again if nobody has joined. */
  settle(clientId: string, filter: string): void {
    const group = this.#groups.get(keyOf(accountIn(clientId), filter));
    if (group?.members.size === 0) this.#end(group);
  }

  // Members

  /** A connected client has subscribed. */
  join(client: BrokerClient, filter: Subscription): void {
    const member = this.#memberOf(client.id, filter);
    member.client = client;
  }

  /** It has unsubscribed, or its connection has ended. */
  leave(client: BrokerClient, filter: string): void {
    this.#change(client.id, filter, (member) => {
      if (member.client === client) member.client = undefined;
    });
  }

  /** A stored session has the filter. */
  store(clientId: string, filter: Subscription): void {
    const member = this.#memberOf(clientId, filter);
    if (member.isStored) return;
    member.isStored = true;
    this.#groupOf(accountIn(clientId), filter.topic).stored += 1;
  }

  forget(clientId: string, filter: string): void {
    this.#change(clientId, filter, (member, group) => {
      if (member.isStored) group.stored -= 1;
      member.isStored = false;
    });
  }

  #memberOf(clientId: string, filter: Subscription): Member {
    const group = this.#groupOf(accountIn(clientId), filter.topic);
    const known = group.members.get(clientId);
    const member = known ?? { clientId, filter, client: undefined, isStored: false };
    member.filter = filter;
    if (!known) {
      group.members.set(clientId, member);
      this.#count(group, { members: 1 });
    }
    return member;
  }

  #change(clientId: string, filter: string, change: (member: Member, group: Group) => void): void {
    const group = this.#groups.get(keyOf(accountIn(clientId), filter));
    const member = group?.members.get(clientId);
    if (!group || !member) return;
    change(member, group);
    if (member.client || member.isStored) return;
    group.members.delete(clientId);
    this.#count(group, { members: -1 });
    if (group.members.size === 0) this.#end(group);
  }

  #count({ accountId }: Group, { groups = 0, members = 0 }: { groups?: number; members?: number }): void {
    const before = this.#perAccount.get(accountId) ?? { groups: 0, members: 0 };
    const after = { groups: before.groups + groups, members: before.members + members };
    if (after.groups > 0) this.#perAccount.set(accountId, after);
    else this.#perAccount.delete(accountId);
  }

  #groupOf(accountId: string, shared: string): Group {
    const key = keyOf(accountId, shared);
    const known = this.#groups.get(key);
    if (known) return known;
    const { filter = shared } = parseShared(shared) ?? {};
    const receive: Receive = (packet, received) => this.#receive(group, packet, received);
    receive.accountId = accountId;
    receive.wants = (topic) => this.#hasHearer(group, topic);
    const group: Group = { key, accountId, shared, filter, members: new Map(), stored: 0, receive };
    this.#groups.set(key, group);
    this.#count(group, { groups: 1 });
    this.#byTopic.add(accountId, filter, group);
    this.#services.fanOut.subscribe(filter, receive);
    return group;
  }

  #end(group: Group): void {
    const { key, accountId, filter, receive } = group;
    this.#groups.delete(key);
    this.#count(group, { groups: -1 });
    this.#byTopic.delete(accountId, filter, group);
    this.#services.fanOut.unsubscribe(filter, receive);
  }

  // Messages

  /**
   * Chooses who gets a message, before it is acknowledged. The stored sessions among them, with the message as it is to be
   * written for them: once for each QoS, and for each time that the same session gets it.
   */
  choose(packet: Incoming): Written[] {
    const written: Written[] = [];
    if (this.#groups.size === 0 || isForNow(packet)) return written;
    const groups = this.#byTopic.match(this.#rules.receivingAccountOf(packet.topic), packet.topic);
    // The only group, without stored sessions, chooses when the message comes: nothing is written for it.
    if (groups.length === 0 || (groups.length === 1 && groups[0]?.stored === 0)) return written;
    const choices = new Map<Group, Choice>();
    const copies = new Map<string, number>();
    let isAnyFull = false;
    for (const group of groups) {
      const member = this.#next(group, { topic: packet.topic, qos: packet.qos, copies });
      if (!member) {
        if (isAnyFull) choices.set(group, { clientId: undefined, payload: undefined });
        continue;
      }
      const { clientId, isStored, filter } = member;
      const copy = (copies.get(clientId) ?? 0) + 1;
      copies.set(clientId, copy);
      isAnyFull ||= copy === maxCopies;
      const qos = Math.min(packet.qos, filter.qos) as 0 | 1 | 2;
      const payload = isStored && qos > 0 ? payloadFor(clientId, { ...packet, qos }, written) : undefined;
      choices.set(group, { clientId, payload });
    }
    if (choices.size > 0) this.#choices.set(packet.payload, choices);
    return written;
  }

  /** A message is on its way to its receivers: what was written for groups that have ended since is taken back. */
  takeBack(packet: Outgoing): void {
    const choices = this.#choices.get(packet.payload);
    for (const [group, choice] of choices ?? []) {
      if (this.#groups.get(group.key) === group) continue;
      choices?.delete(group);
      this.#takeBack(choice, packet);
    }
  }

  #takeBack({ clientId, payload }: Choice, packet: Outgoing): void {
    if (clientId !== undefined && payload) this.#queues.takeBack(clientId, { ...packet, payload });
  }

  #receive(group: Group, packet: Outgoing, done: () => void): void {
    const { topic, qos } = packet;
    const choices = this.#choices.get(packet.payload);
    const choice = choices?.get(group);
    choices?.delete(group);
    const chosen = choice?.clientId === undefined ? undefined : group.members.get(choice.clientId);
    if (choice && chosen && this.#canTake(chosen, { topic, qos, message: packet })) {
      this.#send(group, chosen, packet, choice.payload, done);
      return;
    }
    // It has gone since: what was written for it is another's.
    if (choice) this.#takeBack(choice, packet);
    const isNobodys = choice !== undefined && choice.clientId === undefined;
    const member = isNobodys ? undefined : this.#next(group, { topic, qos, message: packet });
    if (member) this.#send(group, member, packet, undefined, done);
    else done();
  }

  /**
   * Gives a message of a member that has left to another, one that is connected or any. False when there is none.
   */
  passOn({ key }: GroupName, packet: Outgoing, from: string, isConnected: boolean): boolean {
    const group = this.#groups.get(key);
    if (!group) return false;
    const member = this.#next(group, {
      ...{ topic: packet.topic, qos: packet.qos, message: packet },
      ...{ except: from, isConnected },
    });
    if (member) this.#send(group, member, { ...packet, dup: false }, undefined, () => {});
    return member !== undefined;
  }

  /** A member may not hear any more what was to be sent to it: another one gets it. */
  passOnRefused(packet: Outgoing, live: LiveClient): void {
    if (!packet.group || packet.qos === 0 || this.#rules.mayHear(live, packet.topic, packet)) return;
    this.passOn(packet.group, { ...packet, messageId: undefined }, live.client.id, false);
  }

  #send(group: Group, member: Member, packet: Outgoing, written: Buffer | undefined, done: () => void): void {
    const { filter, client, clientId, isStored } = member;
    const { topic, retain, properties, messageExpiry } = packet;
    const { identifier, rap = false } = filter;
    const copy: Outgoing = {
      ...{ cmd: 'publish', topic, payload: written ?? packet.payload, dup: false, retain: rap && retain, group },
      qos: Math.min(packet.qos, filter.qos) as 0 | 1 | 2,
      brokerId: forOneClient,
      brokerCounter: this.#services.messageNumbers.next(),
    };
    if (properties !== undefined) copy.properties = properties;
    if (messageExpiry !== undefined) copy.messageExpiry = messageExpiry;
    if (identifier !== undefined) copy.identifiers = [identifier];
    if (isStored && copy.qos > 0 && !isForNow(copy)) {
      if (!written) copy.payload = sameBytes(packet.payload);
      this.#queues.enqueue(clientId, copy);
    }
    if (client && !client.closed) client.deliver(copy, done);
    else done();
  }

  /** Who is next to get a message; its turn is over then. */
  #next(group: Group, wanted: WantedMember): Member | undefined {
    const next = this.#find(group, wanted);
    if (next && group.members.delete(next.clientId)) group.members.set(next.clientId, next);
    return next;
  }

  #find({ members }: Group, wanted: WantedMember): Member | undefined {
    let busy: Member | undefined;
    let stored: Member | undefined;
    for (const member of members.values()) {
      this.#services.scheduler.spend(1 / membersOfCost);
      if (member.clientId === wanted.except || (wanted.copies?.get(member.clientId) ?? 0) >= maxCopies) continue;
      if (!this.#canTake(member, wanted)) continue;
      if (!member.client) stored ??= member;
      else if (hasRoom(member.client.live, Math.min(wanted.qos, member.filter.qos))) return member;
      else busy ??= member;
    }
    return busy ?? (wanted.isConnected ? undefined : stored);
  }

  #hasHearer({ members }: Group, topic: string): boolean {
    for (const member of members.values()) {
      this.#services.scheduler.spend(1 / membersOfCost);
      if (this.#mayHear(member, topic)) return true;
    }
    return false;
  }

  #canTake(member: Member, { topic, qos, message }: Pick<WantedMember, 'topic' | 'qos' | 'message'>): boolean {
    const isLost =
      !member.client && (qos === 0 || member.filter.qos === 0 || (message !== undefined && isForNow(message)));
    return !isLost && this.#mayHear(member, topic, message);
  }

  #mayHear({ client, clientId }: Member, topic: string, message?: Dated): boolean {
    if (client) return !client.closed && this.#rules.mayHear(client.live, topic, message);
    return this.#rules.mayQueue(clientId, topic, message);
  }
}

/** The payload under which a message is written for a session, together with others that get the same. */
function payloadFor(clientId: string, packet: Incoming, written: Written[]): Buffer {
  const known = written.find(({ clientIds, packet: { qos } }) => qos === packet.qos && !clientIds.has(clientId));
  const one = known ?? { clientIds: new Set(), packet: { ...packet, payload: sameBytes(packet.payload) } };
  if (!known) written.push(one);
  one.clientIds.add(clientId);
  return one.packet.payload;
}

/** Another object: what is written for a session is found by it. */
function sameBytes({ buffer, byteOffset, length }: Buffer): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

function keyOf(accountId: string, filter: string): string {
  return `${accountId}/${filter}`;
}
