/** Messages that change the registry: in whose lane they write, and how many of a client are under way. */

import { type Cause, onBehalfOf } from '../../src/core/log.ts';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import type { DeviceAddress } from '../../src/ports/broker-ports.ts';
import type { LiveClient } from '../client-types.ts';

/** Messages under way: of a client; and of an account, beyond which each of its clients has one at a time. */
const atOnce = { ofClient: 16, ofAccount: 1000 };

/** The sender of a message. Over HTTP, and for a will that was left, there is no connection. */
interface Sender {
  live: LiveClient | undefined;
  lane: Lane;
  cause?: Cause | undefined;
}

/**
 * The one way from a message to what writes the registry. Writes wait for the turn of their lane; meanwhile nothing more is
 * read of a client that has its number under way.
 */
export class Reports {
  readonly #ofAccount = new Map<string, number>();

  /** Whether a client has so many under way that its next packet must wait. */
  isFull(live: LiveClient): boolean {
    if (live.reporting === 0) return false;
    const { accountId = '' } = live.identity?.caller ?? {};
    return live.reporting >= atOnce.ofClient || (this.#ofAccount.get(accountId) ?? 0) >= atOnce.ofAccount;
  }

  /** Has a message handled. Rejects as `handle`, or with what it throws. */
  async take<R>({ live, lane, cause }: Sender, handle: () => Promise<R>): Promise<R> {
    const { accountId } = lane;
    this.#ofAccount.set(accountId, (this.#ofAccount.get(accountId) ?? 0) + 1);
    if (live) live.reporting += 1;
    try {
      const { connectionId } = live ?? {};
      return await onBehalfOf({ cause: cause ?? (connectionId ? { connectionId } : undefined), lane }, handle);
    } finally {
      if (live) live.reporting -= 1;
      const left = (this.#ofAccount.get(accountId) ?? 1) - 1;
      if (left > 0) this.#ofAccount.set(accountId, left);
      else this.#ofAccount.delete(accountId);
    }
  }

  /**
   * The same for a message of a device that goes to the service alone. `pass` is called in the client's order, with what `handle` has
   * answered or with the error for which it has not. Never throws.
   */
  takeInTurn<R>(
    live: LiveClient,
    { accountId, deviceId }: DeviceAddress,
    handle: () => Promise<R>,
    pass: (answer: R | undefined, failure: Error | undefined) => void,
  ): void {
    let end: () => void;
    const turn = live.turns.reserve(() => end());
    this.take({ live, lane: { accountId, callerId: deviceId } }, handle)
      .then(
        (answer) => {
          end = () => pass(answer, undefined);
        },
        (error) => {
          end = () => pass(undefined, error);
        },
      )
      .finally(() => live.turns.complete(turn));
  }
}
