import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Placement } from '../db/registry/index.ts';
import { type Caller, isAccountWide } from '../src/core/caller.ts';
import type { BrokerBase, ChannelAddress, DeviceWork, Revocations, Revoked } from '../src/ports/broker-ports.ts';
import type { Authority } from './authorize.ts';
import type { LiveClient } from './client-types.ts';
import { ownerId, principalIn } from './connections/client-ids.ts';
import { dropFilters, type Sessions } from './connections/live-clients.ts';
import type { DeviceSigns } from './http/device-signs.ts';
import type { Streams } from './http/streams.ts';
import type { MessageNumbers } from './message-numbers.ts';
import { type End, ends } from './reasons.ts';
import type { SessionStore } from './sessions/persistence.ts';

/** The services of revocation. */
export interface RevocationParts {
  services: Pick<BrokerBase, 'access' | 'proofs'>;
  deviceWork: DeviceWork;
  authority: Authority;
  messageNumbers: Pick<MessageNumbers, 'last'>;
  persistence: SessionStore;
  sessions: Sessions;
  signs: DeviceSigns;
  streams: Streams;
}

/** A right that principals of an account may have lost, and where it shows. */
interface LostRight {
  accountId: string;
  /** Those to look at: they have lost something, and have anything that it may be about. */
  principals?(): Iterable<string> | Promise<Iterable<string>>;
  /** Whether messages of this device may have been lost; of all without it. */
  device?(deviceId: string): boolean;
  commands?(): Promise<void>;
  offers?(): Promise<void>;
  streams?(): Revoked;
}

/** A right that people of an account may have lost. */
interface LostRightOfPeople {
  hasLost(person: Caller): boolean;
  /** Whether a filter may have named what was lost. */
  mayName(filter: string): boolean;
}

/**
 * Ends what a caller has made of a right that it has lost, in the order of `#end`. All of it is over when a method has resolved. A
 * filter that can match nothing any more ends, one that still can stays.
 */
export class RightsRevocations implements Revocations {
  readonly #parts: RevocationParts;

  constructor(parts: RevocationParts) {
    this.#parts = parts;
  }

  /** The steps of a loss, in order. `ended` are the connections and streams that ended at once. */
  async #end(loss: LostRight, ended = new Ended()): Promise<Revoked> {
    const principals = [...((await loss.principals?.()) ?? [])];
    for (const principal of principals) this.#endSubscriptions(principal, ended);
    for (const principal of principals) await this.#endStoredSessions(principal, loss, ended);
    await loss.commands?.();
    await loss.offers?.();
    if (loss.streams) ended.add(loss.streams());
    await this.#parts.persistence.durable();
    // Messages passed on before the right was lost are on their way out by now.
    await nextTurn();
    return ended.count;
  }

  /** The stored sessions are those of the principal, which has got another secret. */
  secretReplaced(principal: string): Revoked {
    const { sessions } = this.#parts;
    const ended = countOf(sessions.endPrincipal(principal, ends.secret));
    // The URLs of its downloads are void by the new generation of its secret.
    this.#parts.deviceWork.endDownloads(principal);
    return ended;
  }

  secretOverlaps(principal: string): Revoked {
    const { authority, sessions } = this.#parts;
    return countOf(sessions.endOutdated(principal, (identity) => authority.isCurrent(identity)));
  }

  /** The stored sessions are those of devices, which may have another certificate. */
  certificateEnded(id: string): Revoked {
    return countOf(this.#parts.sessions.endCertificate(id));
  }

  async certificatesRevoked(authorityId: string, isRevoked: (serialNumber: string) => boolean): Promise<Revoked> {
    return countOf(await this.#parts.sessions.endRevoked(authorityId, isRevoked));
  }

  /** The stored sessions are those of the identity, which may log in again. */
  loginEnded(sessionId: string): Revoked {
    const { sessions, signs, streams } = this.#parts;
    signs.endSession(sessionId);
    return new Ended().add(countOf(sessions.endSession(sessionId))).add(streams.endSession(sessionId)).count;
  }

  loginsEnded(): void {
    const { services, sessions, signs, streams } = this.#parts;
    for (const readers of [signs, sessions, streams]) readers.endClosed((id) => services.proofs.logins.isOpen(id));
  }

  principalDeleted(accountId: string, principal: string): Promise<Revoked> {
    const { signs, services } = this.#parts;
    signs.endPrincipal(principal);
    const commands = () => this.#parts.deviceWork.cancelCommands({ createdById: principal });
    const ended = this.#cutOff(accountId, principal, ends.deletion);
    for (const token of services.proofs.logins.tokensOf(principal))
      ended.join(this.#cutOff(accountId, token, ends.deletion));
    return this.#end({ accountId, commands, offers: () => this.#parts.deviceWork.pauseLostRollouts(accountId) }, ended);
  }

  identityChanged(accountId: string, userId: string): Promise<Revoked> {
    return this.#ownerChanged(accountId, userId, this.#parts.services.access.callerOf(userId));
  }

  /** As #principalChanged, with all tokens of the principal. */
  async #ownerChanged(accountId: string, owner: string, caller: Caller | undefined): Promise<Revoked> {
    const { access, proofs } = this.#parts.services;
    const ended = new Ended();
    for (const token of proofs.logins.tokensOf(owner))
      ended.add(await this.#principalChanged(accountId, token, access.callerOfToken(token), endOf(caller)));
    return ended.add(await this.#principalChanged(accountId, owner, caller)).count;
  }

  entityChanged(accountId: string, entityId: string): Promise<Revoked> {
    return this.#principalChanged(accountId, entityId, this.#parts.services.access.callerOfEntity(entityId));
  }

  applicationChanged(accountId: string, applicationId: string): Promise<Revoked> {
    return this.#ownerChanged(accountId, applicationId, this.#parts.services.access.callerOfApplication(applicationId));
  }

  /** Looks at all that people and programs of the account have here: who has the role is not known by it. */
  async roleChanged(accountId: string): Promise<Revoked> {
    const { services, sessions, streams, authority, persistence } = this.#parts;
    const principals = new Set<string>();
    await persistence.revocation.eachSession(accountId, (session) => {
      session.isDevice ??= authority.isDevice(session.clientId);
      if (!session.isDevice) principals.add(principalIn(session.clientId));
    });
    // Someone whose proof began before is connected by then.
    await nextTurn();
    for (const { identity } of sessions.peopleOf(accountId)) if (identity) principals.add(identity.principal);
    for (const principal of streams.principalsOf(accountId)) principals.add(principal);
    const ended = new Ended();
    const kept: string[] = [];
    for (const principal of principals) {
      const caller = authority.personBehind(ownerId(accountId, principal));
      if (caller && services.access.mayConnect(caller)) {
        kept.push(principal);
        sessions.renew(principal, caller);
        ended.add(streams.renew(principal, caller));
      } else ended.join(this.#cutOff(accountId, principal, ends.role));
    }
    const commands = () => this.#parts.deviceWork.cancelLostCommands({ accountId });
    const offers = () => this.#parts.deviceWork.pauseLostRollouts(accountId);
    return this.#end({ accountId, principals: () => kept, commands, offers }, ended);
  }

  /** A principal may act as `caller` now; with nothing left in reach it is as good as deleted, and hears `why`. */
  #principalChanged(
    accountId: string,
    principal: string,
    caller: Caller | undefined,
    why = endOf(caller),
  ): Promise<Revoked> {
    const { services, sessions, streams } = this.#parts;
    const commands = () => this.#parts.deviceWork.cancelLostCommands({ createdById: principal });
    const offers = () => this.#parts.deviceWork.pauseLostRollouts(accountId);
    if (!caller || !services.access.mayConnect(caller))
      return this.#end({ accountId, commands, offers }, this.#cutOff(accountId, principal, why));
    sessions.renew(principal, caller);
    const ended = new Ended().add(streams.renew(principal, caller));
    return this.#end({ accountId, principals: () => [principal], commands, offers }, ended);
  }

  /** Cuts off those who reached the device where it was and no longer do; of another possession, nobody keeps what has come before. */
  deviceMoved({ id, accountId, possession }: Placement, before: Placement): Promise<Revoked> {
    const { authority, deviceWork, messageNumbers } = this.#parts;
    const isOther = possession !== before.possession;
    if (isOther) authority.former.possessionBegins(id, messageNumbers.last);
    return this.#end({
      ...this.#lossOfDevice(accountId, id, before.organizationId, isOther),
      commands: () => deviceWork.cancelLostCommands({ deviceId: id }),
      offers: () => deviceWork.endOffersAfterMove(id),
    });
  }

  /** Its own connections and sessions end, and what others have of it. */
  deviceDeleted({ id, accountId, organizationId }: Placement): Promise<Revoked> {
    const { deviceWork } = this.#parts;
    return this.#end(
      {
        ...this.#lossOfDevice(accountId, id, organizationId),
        commands: () => deviceWork.cancelCommands({ deviceId: id }),
        offers: () => deviceWork.endOffers(id),
      },
      this.#cutOff(accountId, id, ends.deletion),
    );
  }

  /** Cuts off those who have lost what is below it. */
  organizationMoved({ id, accountId }: { id: string; accountId: string }, before: string | null): Promise<Revoked> {
    const { deviceWork, services } = this.#parts;
    const { access } = services;
    const isBelow = memoized((deviceId: string) => {
      const place = access.placement(deviceId)?.organizationId ?? null;
      return access.isWithin(place, [id]);
    });
    const lost: LostRightOfPeople = {
      hasLost: (person) => this.#hears(person, accountId, before) && !this.#hears(person, accountId, id),
      mayName: () => true,
    };
    return this.#end({
      ...this.#lossOfPeople(accountId, lost),
      device: isBelow,
      commands: () => deviceWork.cancelLostCommands({ accountId }),
      offers: () => deviceWork.endOffersOutsideTargets(accountId),
    });
  }

  /** Ends the subscriptions that name the channel, those of devices too. */
  channelDeleted({ accountId, entityId, name }: ChannelAddress): Promise<Revoked> {
    const { sessions, persistence, services, streams } = this.#parts;
    const mayName = (filter: string) => filter.endsWith(`/${name}`);
    const principals = async () => {
      const found = new Set<string>();
      await persistence.revocation.eachSession(accountId, ({ clientId, filters, queue }) => {
        if (queue.size > 0 || [...filters.keys()].some(mayName)) found.add(principalIn(clientId));
      });
      for (const { identity, filters } of sessions.all())
        if (identity?.caller.accountId === accountId && [...filters].some(mayName)) found.add(identity.principal);
      return found;
    };
    return this.#end({
      accountId,
      principals,
      device: memoized((deviceId) => services.access.placement(deviceId)?.deviceTemplateId === entityId),
      streams: () => streams.review(accountId, mayName),
    });
  }

  /** Whether somebody hears devices that are in this organization. */
  #hears(person: Caller, accountId: string, organizationId: string | null): boolean {
    const { access } = this.#parts.services;
    return access.reaches(access.narrow(person, 'subscribe', 'device'), accountId, organizationId);
  }

  #lossOfDevice(accountId: string, deviceId: string, before: string | null, isOther = false): LostRight {
    const { access } = this.#parts.services;
    const lost: LostRightOfPeople = {
      hasLost: (person) =>
        this.#hears(person, accountId, before) &&
        ((isOther && !isAccountWide(person)) || !access.reachableDevice(person, deviceId, 'subscribe')),
      mayName: (filter) => filter.includes(deviceId),
    };
    return { ...this.#lossOfPeople(accountId, lost), device: (id) => id === deviceId };
  }

  #lossOfPeople(accountId: string, lost: LostRightOfPeople): LostRight {
    return {
      accountId,
      principals: () => this.#affected(accountId, lost),
      streams: () => this.#parts.streams.review(accountId, lost.mayName),
    };
  }

  /** The people of an account that have lost something, where they have anything that it may be about. */
  async #affected(accountId: string, { hasLost, mayName }: LostRightOfPeople): Promise<Set<string>> {
    const { sessions, authority, persistence } = this.#parts;
    const principals = new Set<string>();
    const isAffected = memoized((principal: string) => {
      const person = authority.personBehind(ownerId(accountId, principal));
      return person !== undefined && hasLost(person);
    });
    await persistence.revocation.eachSession(accountId, (session) => {
      session.isDevice ??= authority.isDevice(session.clientId);
      if (session.isDevice) return;
      const { clientId, queue, filters } = session;
      const principal = principalIn(clientId);
      if (isAffected(principal) && (queue.size > 0 || [...filters.keys()].some(mayName))) principals.add(principal);
    });
    for (const { identity, filters } of sessions.peopleOf(accountId))
      if (identity && hasLost(identity.caller) && [...filters].some(mayName)) principals.add(identity.principal);
    return principals;
  }

  /** Ends all that a principal has here, at once: nothing else decides about what it may still hear. */
  #cutOff(accountId: string, principal: string, end: End): Ended {
    const { sessions, persistence, streams } = this.#parts;
    const ended = new Ended();
    for (const { client, filters } of sessions.endPrincipal(principal, end)) {
      ended.connections += 1;
      for (const filter of filters) ended.filter(client.id, filter);
    }
    persistence.revocation.endSessionsOf(ownerId(accountId, principal), (clientId, filter) =>
      ended.filter(clientId, filter),
    );
    return ended.add(streams.endPrincipal(principal));
  }

  /** Ends the live subscriptions that a principal may not hold any more. */
  #endSubscriptions(principal: string, ended: Ended): void {
    const { sessions, authority } = this.#parts;
    for (const live of sessions.of(principal)) {
      const refused = authority.refusedFilters(live);
      for (const filter of refused) ended.filter(live.client.id, filter);
      dropFilters(live, refused);
    }
  }

  async #endStoredSessions(
    principal: string,
    { accountId, device = () => true }: LostRight,
    ended: Ended,
  ): Promise<void> {
    const removed = (clientId: string, filter: string) => ended.filter(clientId, filter);
    await this.#parts.persistence.revocation.forgetRefused(ownerId(accountId, principal), device, removed);
    await nextTurn();
  }
}

/** Counts what has ended. A filter counts once for its session, live or stored. */
class Ended {
  connections = 0;
  #subscriptions = 0;
  readonly #filters = new Set<string>();

  filter(clientId: string, filter: string): void {
    this.#filters.add(`${clientId}\0${filter}`);
  }

  join(other: Ended): void {
    this.add({ connections: other.connections, subscriptions: other.#subscriptions });
    for (const filter of other.#filters) this.#filters.add(filter);
  }

  add({ connections, subscriptions }: Revoked): this {
    this.connections += connections;
    this.#subscriptions += subscriptions;
    return this;
  }

  get count(): Revoked {
    return { connections: this.connections, subscriptions: this.#subscriptions + this.#filters.size };
  }
}

function memoized(decide: (id: string) => boolean): (id: string) => boolean {
  const known = new Map<string, boolean>();
  return (id) => {
    const decided = known.get(id) ?? decide(id);
    known.set(id, decided);
    return decided;
  };
}

/** Why somebody may not connect any more who acts as `caller` now. */
function endOf(caller: Caller | undefined): End {
  if (!caller) return ends.deletion;
  return caller.kind === 'newcomer' ? ends.place : ends.role;
}

/** Counts of what ended with these connections. */
function countOf(ended: LiveClient[]): Revoked {
  return { connections: ended.length, subscriptions: ended.reduce((sum, { filters }) => sum + filters.size, 0) };
}
