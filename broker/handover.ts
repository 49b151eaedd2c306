/** All that the broker has of whole accounts: it ends it, gives it to another server and takes it from there. */

import { setTimeout as pause } from 'node:timers/promises';
import type { MqttState } from '../db/messages/sessions/changes.ts';
import type { DeviceAddress } from '../src/ports/broker-ports.ts';
import type { Activity } from './activity.ts';
import type { LiveClient } from './client-types.ts';
import type { ConnectHooks } from './connect.ts';
import type { Sessions } from './connections/live-clients.ts';
import type { Streams } from './http/streams.ts';
import type { Presence } from './presence.ts';
import type { Publications } from './publications.ts';
import { ends } from './reasons.ts';
import type { Refusals } from './refusals.ts';
import type { SessionStore } from './sessions/persistence.ts';

/** Milliseconds between two looks at what is still being handled. */
const lookEvery = 5;
/** Connections that are ended before others get their turn. */
const endsAtOnce = 200;

interface Parts {
  activity: Activity;
  sessions: Sessions;
  persistence: SessionStore;
  streams: Streams;
  presence: Presence;
  publications: Publications;
  refusals: Refusals;
  connects: ConnectHooks;
}

export class AccountHandover {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Waits until what clients of these accounts had sent before they were held is answered. False when that takes longer
   * than `patience` milliseconds.
   */
  async whenAnswered(accountIds: ReadonlySet<string>, patience: number): Promise<boolean> {
    const { streams } = this.#parts;
    streams.endAccounts(accountIds);
    const until = performance.now() + patience;
    let busy = this.#livesOf(accountIds);
    for (;;) {
      busy = busy.filter(({ client, ended }) => !ended && client.inFlight > 0);
      if (busy.length === 0) break;
      if (performance.now() > until) return false;
      await pause(lookEvery);
    }
    return true;
  }

  /** Resolves when everything that was handled is on disk. */
  async flush(): Promise<void> {
    const { activity, persistence, presence, publications, refusals } = this.#parts;
    await Promise.all([activity.flush(), presence.flush(), publications.flush(), refusals.flush()]);
    // The first of them tells subscribers, and so queues of stored sessions.
    await persistence.durable();
  }

  /** These accounts are handled here from now on, or again: call it when they are released, before there are clients of theirs. */
  actFor(accountIds: ReadonlySet<string>): void {
    this.#parts.connects.actAgain(accountIds);
    this.#parts.persistence.postponeWills();
  }

  /** Connections that these devices had with another server have ended; in their logs when it resolves. */
  endedElsewhere(devices: readonly DeviceAddress[]): Promise<void> {
    return this.#parts.presence.endedElsewhere(devices);
  }

  /** Closes every connection of these accounts: clients come back, and send again what was not looked at. */
  closeConnections(accountIds: ReadonlySet<string>): Promise<void> {
    return this.#eachConnection(accountIds, ({ client }) => client.conn.destroy());
  }

  /** Another server handles these accounts: ends every connection without its will, and says nothing of it. */
  async endConnections(accountIds: ReadonlySet<string>): Promise<void> {
    await this.#eachConnection(accountIds, (live) => this.#parts.sessions.kick(live, ends.useAnotherServer));
    this.#parts.connects.forget(accountIds);
    this.#parts.activity.forget(accountIds);
  }

  async #eachConnection(accountIds: ReadonlySet<string>, end: (live: LiveClient) => void): Promise<void> {
    for (const [place, live] of this.#livesOf(accountIds).entries()) {
      end(live);
      if (place % endsAtOnce === endsAtOnce - 1) await pause(0);
    }
  }

  /** Takes sessions and retained messages of another server; on disk when it resolves. */
  arrive(state: MqttState): Promise<void> {
    return this.#parts.persistence.arrive(state);
  }

  /** Forgets all that these accounts have had here. */
  async depart(accountIds: ReadonlySet<string>): Promise<void> {
    for (const accountId of accountIds) await this.#parts.persistence.depart(accountId);
  }

  #livesOf(accountIds: ReadonlySet<string>): LiveClient[] {
    return [...this.#parts.sessions.all()].filter(
      ({ identity }) => identity && accountIds.has(identity.caller.accountId),
    );
  }
}
