import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Caller } from '../src/access.js';
import type { BrokerServices, Revoked } from '../src/context.js';
import { formatTopic } from '../src/topics.js';
import type { Authority, DeviceAddress } from './authorize.js';
import type { SessionStore } from './persistence.js';
import type { LiveClient, Sessions } from './sessions.js';
import type { Streams } from './streams.js';

/** What revocation works with. */
export interface RevocationParts {
  services: Pick<BrokerServices, 'access' | 'config'>;
  sessions: Sessions;
  authority: Authority;
  persistence: SessionStore;
  streams: Streams;
}

/**
 * Who has lost a right loses what it has made of it (decisions 5): connections, CONNECTs that are being checked, wills,
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

  /** A login session is over. The stored sessions are those of the identity, which may log in again. */
  loginEnded(sessionId: string): Revoked {
    const { sessions, streams } = this.#parts;
    return sumOf(countOf(sessions.endSession(sessionId)), streams.endSession(sessionId));
  }

  /** Nobody is left to whom anything could belong: an identity, application or entity has been deleted. */
  principalDeleted(accountId: string, principal: string): Revoked {
    const { sessions, persistence, streams } = this.#parts;
    const ended = sessions.endPrincipal(principal);
    const filters = new Filters();
    for (const { client, filters: held } of ended) for (const filter of held) filters.add(client.id, filter);
    persistence.endSessionsOf(`${accountId}/${principal}`, (clientId, filter) => filters.add(clientId, filter));
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
    await this.#review(accountId, principal, filters);
    return sumOf(streamed, await this.#reviewed(filters));
  }

  /** A device stands elsewhere: whoever does not reach it any more. */
  async deviceMoved(device: DeviceAddress): Promise<Revoked> {
    const filters = new Filters();
    const streamed = this.#parts.streams.review(device.accountId, (filter) => filter.includes(device.deviceId));
    await this.#reviewAudience(device, filters);
    return sumOf(streamed, await this.#reviewed(filters));
  }

  /** A device is in the trash: its own connections and sessions, and what others have of it. */
  async deviceDeleted(device: DeviceAddress): Promise<Revoked> {
    const own = this.principalDeleted(device.accountId, device.deviceId);
    return sumOf(own, await this.deviceMoved(device));
  }

  /** An organization stands elsewhere: every end-user of the account may have lost what is below it. */
  async organizationMoved(accountId: string): Promise<Revoked> {
    const { sessions, authority, persistence } = this.#parts;
    const isEndUser = (clientId: string) => authority.personBehind(clientId)?.kind === 'endUser';
    const stored = await persistence.principalsHolding(
      (clientId) => clientId.startsWith(`${accountId}/`) && isEndUser(clientId),
    );
    const principals = new Set([...stored].map((principal) => principal.slice(accountId.length + 1)));
    for (const { identity } of sessions.peopleOf(accountId))
      if (identity?.caller.kind === 'endUser') principals.add(identity.principal);
    return this.#reviewAll(accountId, principals, () => true);
  }

  /** A channel is not there any more: whoever has asked for it by name, devices included. */
  async channelDeleted(accountId: string, name: string): Promise<Revoked> {
    const { sessions, persistence } = this.#parts;
    const couldMatch = (filter: string) => /[/][+]$|#$/.test(filter) || filter.endsWith(`/${name}`);
    const stored = await persistence.principalsHolding(
      (clientId, filter) => couldMatch(filter) && clientId.startsWith(`${accountId}/`),
    );
    const principals = new Set([...stored].map((principal) => principal.slice(accountId.length + 1)));
    for (const { identity, filters } of sessions.all())
      if (identity?.caller.accountId === accountId && [...filters].some((filter) => filter.endsWith(`/${name}`)))
        principals.add(identity.principal);
    return this.#reviewAll(accountId, principals, (filter) => filter.endsWith(`/${name}`));
  }

  async #reviewAll(
    accountId: string,
    principals: Iterable<string>,
    concerns: (filter: string) => boolean,
  ): Promise<Revoked> {
    const streamed = this.#parts.streams.review(accountId, concerns);
    const filters = new Filters();
    for (const principal of principals) {
      await this.#review(accountId, principal, filters);
      await nextTurn();
    }
    return sumOf(streamed, await this.#reviewed(filters));
  }

  /** People who have asked for a device by name, or whose stored sessions are told of it, and do not reach it now. */
  async #reviewAudience({ accountId, deviceId }: DeviceAddress, filters: Filters): Promise<void> {
    const { services, sessions, authority, persistence } = this.#parts;
    const { access, config } = services;
    const template = access.placement(deviceId)?.deviceTemplateId ?? '';
    const topics = [...access.channelsOf(template).keys()].map((channel) =>
      formatTopic(config.topicRoot, accountId, deviceId, channel),
    );
    const principals = new Set<string>();
    for (const principal of persistence.principalsHearing(topics)) {
      const person = authority.personBehind(`${principal}/`);
      if (person && !access.reachableDevice(person, deviceId)) principals.add(principal.slice(accountId.length + 1));
    }
    for (const { identity, filters: held } of sessions.peopleOf(accountId))
      if (identity && [...held].some((filter) => filter.includes(deviceId))) principals.add(identity.principal);
    for (const principal of principals) await this.#review(accountId, principal, filters);
  }

  /** Ends what a principal may not hold any more, connected or not. */
  async #review(accountId: string, principal: string, ended: Filters): Promise<void> {
    const { sessions, persistence } = this.#parts;
    const unsubscribing = [...sessions.of(principal)].map((live) => this.#reviewLive(live, ended));
    await persistence.forgetRefused(`${accountId}/${principal}`, (clientId, filter) => ended.add(clientId, filter));
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

  /** What has been handed on before the right was lost is on its way out by now. */
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

function sumOf(one: Revoked, other: Revoked): Revoked {
  return {
    connections: one.connections + other.connections,
    subscriptions: one.subscriptions + other.subscriptions,
  };
}

/** What ended with these connections. */
function countOf(ended: LiveClient[]): Revoked {
  return { connections: ended.length, subscriptions: ended.reduce((sum, { filters }) => sum + filters.size, 0) };
}
