import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Caller } from '../src/access.ts';
import type { BrokerServices, ChannelAddress, Revoked } from '../src/broker-ports.ts';
import type { LiveClient, ProvenIdentity } from './aedes-types.ts';
import type { Authority, DeviceAddress } from './authorize.ts';
import { ownerId, principalIn } from './connections/client-ids.ts';
import type { Sessions } from './connections/live-clients.ts';
import type { Streams } from './http/streams.ts';
import type { SessionStore } from './sessions/persistence.ts';

/** The services of revocation. */
export interface RevocationParts {
  services: Pick<BrokerServices, 'access'>;
  sessions: Sessions;
  authority: Authority;
  persistence: SessionStore;
  streams: Streams;
}

/** A right that people of an account may have lost. */
interface Loss {
  hasLost(person: Caller): boolean;
  /** Whether a filter may have named what was lost. */
  mayName(filter: string): boolean;
  /** Whether messages of this device may have been lost. */
  device(deviceId: string): boolean;
}

/**
 * Who has lost a right loses what it has made of it: connections, CONNECTs that are being checked, wills,
 * filters live and stored, queued messages. Deliveries are decided one by one whatever happens here; all of it is over
 * when a method has resolved. A filter that can match nothing any more ends, one that still can stays.
 */
export class Revocation {
  readonly #parts: RevocationParts;

  constructor(parts: RevocationParts) {
    this.#parts = parts;
  }

  /** Another secret is in force. The stored sessions are those of the principal, which has got it. */
  secretReplaced(principal: string): Revoked {
    return countOf(this.#parts.sessions.endPrincipal(principal));
  }

  /** A secret is in force no more, while another one of the principal still is. */
  secretEnded(principal: string, isCurrent: (identity: ProvenIdentity) => boolean): Revoked {
    return countOf(this.#parts.sessions.endOutdated(principal, isCurrent));
  }

  /** A login session is over. The stored sessions are those of the identity, which may log in again. */
  loginEnded(sessionId: string): Revoked {
    const { sessions, streams } = this.#parts;
    return sumOf(countOf(sessions.endSession(sessionId)), streams.endSession(sessionId));
  }

  /** A certificate or a CA is registered no more. The stored sessions are those of devices, which may have another. */
  certificateEnded(id: string): Revoked {
    return countOf(this.#parts.sessions.endCertificate(id));
  }

  /** Nobody is left to whom anything could belong: an identity, application or entity has been deleted. */
  principalDeleted(accountId: string, principal: string): Revoked {
    const { sessions, persistence, streams } = this.#parts;
    const ended = sessions.endPrincipal(principal);
    const filters = new Filters();
    for (const { client, filters: held } of ended) for (const filter of held) filters.add(client.id, filter);
    persistence.revocation.endSessionsOf(ownerId(accountId, principal), (clientId, filter) =>
      filters.add(clientId, filter),
    );
    return sumOf({ connections: ended.length, subscriptions: filters.size }, streams.endPrincipal(principal));
  }

  /** A principal may act as `caller` now; with nothing left in reach it is as good as deleted. */
  async principalChanged(accountId: string, principal: string, caller: Caller | undefined): Promise<Revoked> {
    const { services, sessions, streams } = this.#parts;
    if (!caller || !services.access.may(caller, 'subscribe', 'device'))
      return this.principalDeleted(accountId, principal);
    sessions.renew(principal, caller);
    const streamed = streams.renew(principal, caller);
    const filters = new Filters();
    await this.#review(accountId, principal, () => true, filters);
    return sumOf(streamed, await this.#reviewed(filters));
  }

  /** A device has left the organization `before`: cuts off those who reached it there and no longer do. */
  async deviceMoved(device: DeviceAddress, before: string | null): Promise<Revoked> {
    const { accountId, deviceId } = device;
    const { access } = this.#parts.services;
    return this.#reviewPeople(accountId, {
      hasLost: (person) => access.reaches(person, accountId, before) && !access.reachableDevice(person, deviceId),
      mayName: (filter) => filter.includes(deviceId),
      device: (id) => id === deviceId,
    });
  }

  /** A device is in the trash: its own connections and sessions, and what others have of it. */
  async deviceDeleted(device: DeviceAddress, organizationId: string | null): Promise<Revoked> {
    const own = this.principalDeleted(device.accountId, device.deviceId);
    return sumOf(own, await this.deviceMoved(device, organizationId));
  }

  /** An organization has left the tree below `before`: cuts off those who have lost what is below it. */
  async organizationMoved(accountId: string, id: string, before: string | null): Promise<Revoked> {
    const { access } = this.#parts.services;
    const isBelow = memoized((deviceId: string) => {
      const place = access.placement(deviceId)?.organizationId ?? null;
      return access.isWithin(place, [id]);
    });
    return this.#reviewPeople(accountId, {
      hasLost: (person) => access.reaches(person, accountId, before) && !access.reaches(person, accountId, id),
      mayName: () => true,
      device: isBelow,
    });
  }

  /** A channel has been deleted: ends the subscriptions that name it, those of devices too. */
  async channelDeleted({ accountId, entityId, name }: ChannelAddress): Promise<Revoked> {
    const { sessions, persistence, services } = this.#parts;
    const ofTemplate = memoized(
      (deviceId: string) => services.access.placement(deviceId)?.deviceTemplateId === entityId,
    );
    const mayName = (filter: string) => filter.endsWith(`/${name}`);
    const principals = new Set<string>();
    await persistence.revocation.eachSession(accountId, ({ clientId, filters, queue }) => {
      if (queue.size > 0 || [...filters.keys()].some(mayName)) principals.add(principalIn(clientId));
    });
    for (const { identity, filters } of sessions.all())
      if (identity?.caller.accountId === accountId && [...filters].some(mayName)) principals.add(identity.principal);
    return this.#reviewAll(accountId, principals, { mayName, device: ofTemplate });
  }

  /** Reviews the people of an account that have lost something, where they have anything that it may be about. */
  async #reviewPeople(accountId: string, { hasLost, mayName, device }: Loss): Promise<Revoked> {
    const { sessions, authority, persistence } = this.#parts;
    const principals = new Set<string>();
    const isLoser = memoized((principal: string) => {
      const person = authority.personBehind(ownerId(accountId, principal));
      return person !== undefined && hasLost(person);
    });
    await persistence.revocation.eachSession(accountId, (session) => {
      session.isDevice ??= authority.isDevice(session.clientId);
      if (session.isDevice) return;
      const { clientId, queue, filters } = session;
      const principal = principalIn(clientId);
      if (isLoser(principal) && (queue.size > 0 || [...filters.keys()].some(mayName))) principals.add(principal);
    });
    for (const { identity, filters } of sessions.peopleOf(accountId))
      if (identity && hasLost(identity.caller) && [...filters].some(mayName)) principals.add(identity.principal);
    return this.#reviewAll(accountId, principals, { mayName, device });
  }

  /** Live streams are reviewed too; queued messages of devices that it is not about are not looked at. */
  async #reviewAll(
    accountId: string,
    principals: Iterable<string>,
    { mayName, device }: Pick<Loss, 'mayName' | 'device'>,
  ): Promise<Revoked> {
    const streamed = this.#parts.streams.review(accountId, mayName);
    const filters = new Filters();
    for (const principal of principals) {
      await this.#review(accountId, principal, device, filters);
      await nextTurn();
    }
    return sumOf(streamed, await this.#reviewed(filters));
  }

  /** Ends what a principal may not hold any more, connected or not. */
  async #review(accountId: string, principal: string, device: Loss['device'], ended: Filters): Promise<void> {
    const { sessions, persistence } = this.#parts;
    const unsubscribing = [...sessions.of(principal)].map((live) => this.#reviewLive(live, ended));
    const removed = (clientId: string, filter: string) => ended.add(clientId, filter);
    await persistence.revocation.forgetRefused(ownerId(accountId, principal), device, removed);
    await Promise.all(unsubscribing);
  }

  /** Aedes' own unsubscribe is about the live subscription only; the stored one is the persistence's. */
  async #reviewLive(live: LiveClient, ended: Filters): Promise<void> {
    const refused = this.#parts.authority.refusedFilters(live);
    if (refused.length === 0) return;
    for (const filter of refused) {
      live.filters.delete(filter);
      ended.add(live.client.id, filter);
    }
    await unsubscribe(live, refused);
  }

  /** Messages passed on before the right was lost are on their way out by now. */
  async #reviewed(filters: Filters): Promise<Revoked> {
    await this.#parts.persistence.durable();
    await nextTurn();
    return { connections: 0, subscriptions: filters.size };
  }
}

/** Takes live subscriptions back; a connection that has closed has none. */
export function unsubscribe({ client }: LiveClient, filters: string[]): Promise<void> {
  if (client.closed) return Promise.resolve();
  return new Promise((resolve) =>
    client.unsubscribe({ cmd: 'unsubscribe', unsubscriptions: filters }, () => resolve()),
  );
}

/** Filters that have ended, each counted once for its session, live or stored. */
class Filters {
  readonly #ended = new Set<string>();

  add(clientId: string, filter: string): void {
    this.#ended.add(`${clientId}\0${filter}`);
  }

  get size(): number {
    return this.#ended.size;
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

/** Counts of what ended with these connections. */
function countOf(ended: LiveClient[]): Revoked {
  return { connections: ended.length, subscriptions: ended.reduce((sum, { filters }) => sum + filters.size, 0) };
}

function sumOf(one: Revoked, other: Revoked): Revoked {
  return {
    connections: one.connections + other.connections,
    subscriptions: one.subscriptions + other.subscriptions,
  };
}
