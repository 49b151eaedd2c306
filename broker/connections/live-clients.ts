import type { Caller } from '../../src/core/caller.ts';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import { LongWork } from '../../src/core/scheduler/long-work.ts';
import type { BrokerClient, LiveClient, ProvenIdentity } from '../client-types.ts';
import type { Outgoing } from '../message-types.ts';
import { Turns } from '../packets/turns.ts';
import { type End, ends } from '../reasons.ts';
import { PacketIds } from '../sessions/packet-ids.ts';
import { matchedFilter, matches } from '../topics.ts';

/** Things that may end while a CONNECT that depends on them is still being checked. */
type CutKey = `principal:${string}` | `session:${string}` | `certificate:${string}`;

/** The registry of live connections: by principal, by login session or certificate, and those of people by account. */
export class Sessions {
  readonly #byPrincipal = new Map<string, Set<LiveClient>>();
  /** Everybody but devices, whose reach changes with the tree of organizations. */
  readonly #people = new Map<string, Set<LiveClient>>();
  readonly #bySession = new Map<string, Set<LiveClient>>();
  readonly #byCertificate = new Map<string, Set<LiveClient>>();
  readonly #expiring = new Set<LiveClient>();
  readonly #cuts = new Map<CutKey, number>();
  #cutCount = 0;
  #checking = 0;

  /** Marks the begin of a credential check; give the mark to `admit`, and call `checked` in every case. */
  beginCheck(): number {
    this.#checking += 1;
    return this.#cutCount;
  }

  checked(): void {
    this.#checking -= 1;
    if (this.#checking === 0) this.#cuts.clear();
  }

  /** Registers a proven connection; false when its principal was cut off while the credential was being checked. */
  admit(live: LiveClient, identity: ProvenIdentity, mark: number): boolean {
    if (this.#isCut(`principal:${identity.principal}`, mark)) return false;
    if (identity.sessionId !== undefined && this.#isCut(`session:${identity.sessionId}`, mark)) return false;
    const certificates = certificatesOf(identity);
    if (certificates.some((id) => this.#isCut(`certificate:${id}`, mark))) return false;
    live.identity = identity;
    add(this.#byPrincipal, identity.principal, live);
    if (identity.ownChannels === undefined) add(this.#people, identity.caller.accountId, live);
    if (identity.sessionId !== undefined) add(this.#bySession, identity.sessionId, live);
    for (const id of certificates) add(this.#byCertificate, id, live);
    if (identity.expires !== Number.POSITIVE_INFINITY) this.#expiring.add(live);
    return true;
  }

  /** Forgets a connection; called when its socket has closed, and harmless afterwards. */
  remove(live: LiveClient): void {
    if (live.ended) return;
    live.ended = true;
    const { identity } = live;
    if (!identity) return;
    drop(this.#byPrincipal, identity.principal, live);
    drop(this.#people, identity.caller.accountId, live);
    if (identity.sessionId !== undefined) drop(this.#bySession, identity.sessionId, live);
    for (const id of certificatesOf(identity)) drop(this.#byCertificate, id, live);
    this.#expiring.delete(live);
    if (live.ready) live.client.left();
  }

  /** Ends a connection at once and drops its will: its principal has been cut off. */
  kick(live: LiveClient, end: End): void {
    const { client } = live;
    live.kicked = true;
    client.will = undefined;
    this.remove(live);
    client.endConnection(end);
  }

  /** Ends every connection of a principal, CONNECTs that are being checked included; those that were ended. */
  endPrincipal(principal: string, end: End): LiveClient[] {
    this.#cut(`principal:${principal}`);
    return this.#kickAll(this.#byPrincipal.get(principal), end);
  }

  /** Ends the connections of a principal that were made with what is in force no more; those that were ended. */
  endOutdated(principal: string, isCurrent: (identity: ProvenIdentity) => boolean): LiveClient[] {
    const lives = [...this.of(principal)];
    return this.#kickAll(
      lives.filter(({ identity }) => !identity || !isCurrent(identity)),
      ends.secret,
    );
  }

  /** Ends every connection of a login session; those that were ended. */
  endSession(sessionId: string): LiveClient[] {
    this.#cut(`session:${sessionId}`);
    return this.#kickAll(this.#bySession.get(sessionId), ends.session);
  }

  /** Ends every connection that a certificate, or a CA, has let in; those that were ended. */
  endCertificate(certificateId: string): LiveClient[] {
    return this.#kickAll(
      this.#madeWith(certificateId).filter(({ identity }) => identity?.ground?.ids.includes(certificateId)),
      ends.certificate,
    );
  }

  /** Ends every connection whose certificate a CA has revoked, in slices: a CA may have a whole fleet. Those that were ended. */
  async endRevoked(authorityId: string, isRevoked: (serialNumber: string) => boolean): Promise<LiveClient[]> {
    const long = new LongWork();
    const ended: LiveClient[] = [];
    for (const live of this.#madeWith(authorityId)) {
      const signatures = live.identity?.ground?.signatures ?? [];
      const isOver = signatures.some((one) => one.authorityId === authorityId && isRevoked(one.serialNumber));
      if (isOver && !live.ended) ended.push(...this.#kickAll([live], ends.revocation));
      await long.giveWay();
    }
    return ended;
  }

  /** The connections that a certificate, or a CA, may have to do with. CONNECTs that are being checked now are refused. */
  #madeWith(certificateId: string): LiveClient[] {
    this.#cut(`certificate:${certificateId}`);
    return [...(this.#byCertificate.get(certificateId) ?? [])];
  }

  /** Gives the connections of a principal what it may act as now. */
  renew(principal: string, caller: Caller): void {
    this.#cut(`principal:${principal}`);
    for (const live of this.#byPrincipal.get(principal) ?? []) if (live.identity) live.identity.caller = caller;
  }

  /** Ends the connections of login sessions that are not open any more; those that were ended. */
  endClosed(isOpen: (sessionId: string) => boolean): LiveClient[] {
    const closed = [...this.#bySession.keys()].filter((id) => !isOpen(id));
    return closed.flatMap((id) => this.endSession(id));
  }

  /** Ends the connections whose login session or certificate is over at `now` (milliseconds), and those of rested sessions. */
  endExpired(now: number, hasRested: (sessionId: string, lifetime: number) => boolean): void {
    const isOver = ({ expires, sessionId, tokenLifetime }: ProvenIdentity) =>
      expires <= now || (sessionId !== undefined && tokenLifetime !== undefined && hasRested(sessionId, tokenLifetime));
    for (const live of [...this.#expiring])
      if (!live.identity || isOver(live.identity)) this.kick(live, outdated(live));
  }

  /** Connections of one principal. */
  of(principal: string): Iterable<LiveClient> {
    return this.#byPrincipal.get(principal) ?? [];
  }

  /** Connections of an account that are no devices. */
  peopleOf(accountId: string): Iterable<LiveClient> {
    return this.#people.get(accountId) ?? [];
  }

  /** Other connections of the same principal under the same client id: this one takes their place [MQTT-3.1.4-2]. */
  predecessorsOf(live: LiveClient): LiveClient[] {
    const others = live.identity ? this.of(live.identity.principal) : [];
    return [...others].filter((other) => other !== live && other.ready && other.client.id === live.client.id);
  }

  /** Connections of the principal under other client ids: one under the same id is about to be taken over. */
  othersOf({ clientId }: LiveClient, { principal }: ProvenIdentity): number {
    let others = 0;
    for (const other of this.of(principal)) if (clientId === '' || other.clientId !== clientId) others += 1;
    return others;
  }

  *all(): IterableIterator<LiveClient> {
    for (const lives of this.#byPrincipal.values()) yield* lives;
  }

  #cut(key: CutKey): void {
    this.#cutCount += 1;
    if (this.#checking > 0) this.#cuts.set(key, this.#cutCount);
  }

  #isCut(key: CutKey, mark: number): boolean {
    return (this.#cuts.get(key) ?? 0) > mark;
  }

  #kickAll(lives: Iterable<LiveClient> | undefined, end: End): LiveClient[] {
    const ending = [...(lives ?? [])];
    for (const live of ending) this.kick(live, end);
    return ending;
  }
}

/** The record of a connection whose CONNECT packet has arrived. */
export function newLiveClient(
  client: BrokerClient,
  clientId: string,
  { address, connectionId }: Pick<LiveClient, 'address'> & { connectionId?: string | undefined },
): LiveClient {
  return {
    client,
    clientId,
    address,
    connectionId,
    identity: undefined,
    ready: false,
    ended: false,
    kicked: false,
    hasPublished: false,
    reporting: 0,
    filters: new Set(),
    lowestQos: 2,
    highestQos: 0,
    refusals: { since: 0, count: 0 },
    turns: new Turns(),
    leaving: new Turns(),
    lastHeard: 0,
    lastKept: 0,
    ids: new PacketIds(),
    unreleased: undefined,
    sessionPresent: false,
    held: undefined,
    waitingForRoom: undefined,
    newFilters: undefined,
    isCatchingUp: false,
    shared: undefined,
  };
}

/** What ends a connection whose credential is in force no more. */
export function outdated({ identity }: LiveClient): End {
  if (identity?.sessionId !== undefined) return ends.session;
  return identity?.ground ? ends.certificate : ends.secret;
}

/** Where what this client asks for waits. */
export function laneOfClient({ identity }: LiveClient): Lane {
  return { accountId: identity?.caller.accountId ?? '', callerId: identity?.caller.id ?? '' };
}

/** Whether a message has to wait for acknowledgements. One that has its packet id already is sent again. */
export function isFull({ client, ids }: LiveClient, hasId = false): boolean {
  return ids.underWay >= client.receiveMaximum || (!hasId && ids.areShort);
}

/** Whether a message of this QoS would leave at once. */
export function hasRoom(live: LiveClient, qos: number): boolean {
  if (live.client.conn.writableNeedDrain) return false;
  return qos === 0 || (!isFull(live) && !live.held?.length);
}

/** A filter counts from the moment in which it is granted: messages may come before its SUBACK. */
export function grant(live: LiveClient, { topic, qos }: { topic: string; qos: 0 | 1 | 2 }): void {
  live.filters.add(topic);
  if (qos < live.lowestQos) live.lowestQos = qos;
  if (qos > live.highestQos) live.highestQos = qos;
}

/** Ends live subscriptions; a connection that has closed has none. */
export function dropFilters(live: LiveClient, filters: readonly string[]): void {
  if (filters.length === 0) return;
  live.client.unsubscribe(filters);
  live.newFilters?.forget(filters);
  for (const filter of filters) live.filters.delete(filter);
  refreshFilters(live);
}

/** Brings the filters and their QoS bounds up to date with those of the client; a granted one may not be there yet. */
export function refreshFilters(live: LiveClient): void {
  live.lowestQos = 2;
  live.highestQos = 0;
  for (const [filter, { qos }] of live.client.subscriptions) {
    live.filters.add(filter);
    if (qos < live.lowestQos) live.lowestQos = qos;
    if (qos > live.highestQos) live.highestQos = qos;
  }
}

type Granting = Pick<Outgoing, 'topic' | 'qos'>;

/** The QoS that the client's filters grant for this topic, the packet's at most [MQTT-3.8.4-6]; 0 without any. */
export function grantedQos(live: LiveClient, { topic, qos }: Granting): 0 | 1 | 2 {
  if (qos <= live.lowestQos && qos <= live.highestQos) return qos;
  let granted = live.highestQos;
  if (live.lowestQos !== granted) {
    granted = 0;
    for (const [filter, { qos: one }] of live.client.subscriptions)
      if (one > granted && matches(matchedFilter(filter), topic)) granted = one;
  }
  return Math.min(granted, qos) as 0 | 1 | 2;
}

/** The same of a message that its session has kept: it leaves the queue by an acknowledgement only. */
export function keptQos(live: LiveClient, packet: Granting): 1 | 2 {
  return grantedQos(live, packet) === 2 ? 2 : 1;
}

function add(index: Map<string, Set<LiveClient>>, key: string, live: LiveClient): void {
  const lives = index.get(key);
  if (lives) lives.add(live);
  else index.set(key, new Set([live]));
}

function drop(index: Map<string, Set<LiveClient>>, key: string, live: LiveClient): void {
  const lives = index.get(key);
  lives?.delete(live);
  if (lives?.size === 0) index.delete(key);
}

/** Ids of certificates and CAs whose end, or whose list, may end a connection. */
function certificatesOf({ ground }: ProvenIdentity): string[] {
  if (!ground) return [];
  return [...new Set([...ground.ids, ...ground.signatures.map(({ authorityId }) => authorityId)])];
}
