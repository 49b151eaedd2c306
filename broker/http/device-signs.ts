import { type Caller, principalOf } from '../../src/core/caller.ts';
import type { DeviceSign, DeviceWatch } from '../../src/ports/broker-ports.ts';
import type { Authority } from '../authorize.ts';
import type { Sessions } from '../connections/live-clients.ts';

/** Waits of one caller at once. */
const maxWatches = 100;

interface Watch {
  deviceId: string;
  /** The owner: the identity or the application. */
  principal: string;
  sessionId: string | undefined;
  /** Milliseconds since 1970; the end of the login session. */
  expires: number;
  heard(sign: DeviceSign): void;
}

/** Waits for an action of a device; notified at once, and ended with the caller's login. */
export class DeviceSigns {
  readonly #sessions: Pick<Sessions, 'of'>;
  readonly #authority: Pick<Authority, 'isNewest'>;
  readonly #watches = new Map<string, Set<Watch>>();
  readonly #perPrincipal = new Map<string, number>();

  constructor(sessions: Pick<Sessions, 'of'>, authority: Pick<Authority, 'isNewest'>) {
    this.#sessions = sessions;
    this.#authority = authority;
  }

  /** As `watchDevice` of Streams. */
  watch(caller: Caller, deviceId: string, expires: number): DeviceWatch | undefined {
    const { sessionId } = caller;
    const principal = principalOf(caller);
    const others = this.#perPrincipal.get(principal) ?? 0;
    if (others >= maxWatches) return undefined;
    this.#perPrincipal.set(principal, others + 1);
    let waiting: Array<(sign: DeviceSign) => void> = [];
    let end: DeviceSign | undefined;
    const heard = (sign: DeviceSign) => {
      if (sign !== 'sign') end = sign;
      for (const resolve of waiting.splice(0)) resolve(sign);
    };
    const watch: Watch = { deviceId, principal, sessionId, expires, heard };
    const watches = this.#watches.get(deviceId) ?? new Set();
    this.#watches.set(deviceId, watches.add(watch));
    // The next message of its connections is a first one again: what was on record may be gone.
    for (const live of this.#sessions.of(deviceId)) live.hasPublished = false;
    const isConnected = () => this.#isConnected(deviceId);
    return {
      get isConnected() {
        return isConnected();
      },
      next: () => (end ? Promise.resolve(end) : new Promise((resolve) => waiting.push(resolve))),
      close: () => {
        waiting = [];
        this.#close(watch);
      },
    };
  }

  /** Something has happened to a device: it has connected, or its first message is on record. */
  sign(deviceId: string): void {
    for (const watch of this.#watches.get(deviceId) ?? []) watch.heard('sign');
  }

  /** Whether anybody waits for this device. */
  isWatched(deviceId: string): boolean {
    return this.#watches.has(deviceId);
  }

  #isConnected(deviceId: string): boolean {
    for (const { identity, ready } of this.#sessions.of(deviceId))
      if (ready && identity && this.#authority.isNewest(identity)) return true;
    return false;
  }

  endPrincipal(principal: string): void {
    this.#endWhere((watch) => watch.principal === principal, 'cutOff');
  }

  endSession(sessionId: string): void {
    this.#endWhere((watch) => watch.sessionId === sessionId, 'cutOff');
  }

  /** Ends the waits of login sessions that are not open any more. */
  endClosed(isOpen: (sessionId: string) => boolean): void {
    this.#endWhere(({ sessionId }) => sessionId !== undefined && !isOpen(sessionId), 'cutOff');
  }

  /** Ends the waits whose login session is over at `now` (milliseconds). */
  endExpired(now: number): void {
    this.#endWhere(({ expires }) => expires <= now, 'cutOff');
  }

  /** The process ends. */
  endAll(): void {
    this.#endWhere(() => true, 'stopping');
  }

  #endWhere(matches: (watch: Watch) => boolean, sign: DeviceSign): void {
    for (const watches of this.#watches.values()) for (const watch of watches) if (matches(watch)) watch.heard(sign);
  }

  #close(watch: Watch): void {
    const { deviceId, principal } = watch;
    const watches = this.#watches.get(deviceId);
    if (!watches?.delete(watch)) return;
    if (watches.size === 0) this.#watches.delete(deviceId);
    const others = (this.#perPrincipal.get(principal) ?? 1) - 1;
    if (others === 0) this.#perPrincipal.delete(principal);
    else this.#perPrincipal.set(principal, others);
  }
}
