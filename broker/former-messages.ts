import { boundedCache } from '../db/sqlite/cache.ts';
import type { Outgoing } from './message-types.ts';

const devicesKept = 100_000;

/** What tells when a message was handed on: its counter, and for one that waited, its payload. */
export type Dated = Partial<Pick<Outgoing, 'brokerCounter' | 'payload'>>;

/**
 * Messages that a device has sent for its former owner and that are still on their way, or in a queue: the people of the next
 * one do not get them.
 */
export class FormerMessages {
  /** By device, the counter of the last message that was handed on for its former owner. */
  readonly #last = boundedCache<string, number>(devicesKept);
  /** Payloads of messages that were accepted for it and handed on later. */
  readonly #late = new WeakSet<object>();

  /** A possession of a device begins; `counter` is that of the last message. */
  possessionBegins(deviceId: string, counter: number): void {
    this.#last.set(deviceId, counter);
  }

  noteLate(payload: Buffer): void {
    this.#late.add(payload);
  }

  isFormer(deviceId: string | undefined, { brokerCounter, payload }: Dated): boolean {
    if (deviceId === undefined || this.#last.size === 0) return false;
    const last = this.#last.get(deviceId);
    if (last === undefined) return false;
    if (typeof payload === 'object' && this.#late.has(payload)) return true;
    return brokerCounter !== undefined && brokerCounter > 0 && brokerCounter <= last;
  }
}
