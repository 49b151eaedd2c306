/** Devices that are behind: a message of theirs failed, and what they have pending is read by device until nothing is left. */
import { contentBytes, type OutboxRow } from '../../db/messages/outbox/rows.ts';

export const batchSize = 500;
export const batchBytes = 1_048_576;
/** Devices that are looked up for one batch: each is a statement. */
const devicesAtOnce = 50;

export interface HeldDevice {
  deviceId: string;
  width: number;
  failures: number;
  /** Failures since which the bridge has delivered something else. */
  blamed: number;
  /** Messages that were refused one after the other. */
  refusals: number;
  until: number;
  /** When the first of these failures was, and since when the target has refused whatever the device sends. */
  since: number | undefined;
  refusedSince: number | undefined;
  /** How often the bridge had delivered at the last failure. */
  deliveriesBefore: number;
  /** The target said it of this message: the device can be tried together with others. */
  isTold: boolean;
  /** What was tried last failed. */
  isDoubtful: boolean;
}

export function hold(deviceId: string, deliveriesBefore: number): HeldDevice {
  const nothing = { failures: 0, blamed: 0, refusals: 0, until: 0, since: undefined, refusedSince: undefined };
  return { deviceId, width: 1, ...nothing, deliveriesBefore, isTold: false, isDoubtful: true };
}

/** Nothing bad is known of the device's next message. */
export function trust(held: HeldDevice, width: number): HeldDevice {
  const nothing = { failures: 0, blamed: 0, refusals: 0, until: 0, since: undefined, refusedSince: undefined };
  return Object.assign(held, nothing, { width, isTold: false, isDoubtful: false });
}

/** Reads what a device has next: nothing of what is under way, undefined if nothing is pending. */
type Read = (held: HeldDevice) => OutboxRow[] | undefined;

export class HeldDevices {
  readonly #trusted = new Map<string, HeldDevice>();
  readonly #doubtful = new Map<string, HeldDevice>();
  /** No doubtful device is due before. */
  #nextDue = 0;

  get size(): number {
    return this.#trusted.size + this.#doubtful.size;
  }

  get(deviceId: string): HeldDevice | undefined {
    return this.#trusted.get(deviceId) ?? this.#doubtful.get(deviceId);
  }

  /** After all others, so that they take turns. */
  set(held: HeldDevice): void {
    const { deviceId, isDoubtful, until } = held;
    this.#trusted.delete(deviceId);
    this.#doubtful.delete(deviceId);
    (isDoubtful ? this.#doubtful : this.#trusted).set(deviceId, held);
    if (isDoubtful) this.#nextDue = Math.min(this.#nextDue, until);
  }

  trustAll(): void {
    for (const held of [...this.#doubtful.values()]) this.set(trust(held, held.width));
  }

  /** The next rows of devices of which nothing bad is known. */
  takeTrusted(read: Read): OutboxRow[] | undefined {
    return this.#take(this.#trusted, () => true, read);
  }

  /** The next rows of devices whose pause is over: of one, or of several that the target has told apart. */
  takeDoubtful(now: number, read: Read): OutboxRow[] | undefined {
    if (now < this.#nextDue) return undefined;
    this.#nextDue = Number.POSITIVE_INFINITY;
    let isTogether: boolean | undefined;
    const may = (held: HeldDevice) => {
      if (held.until > now) {
        this.#nextDue = Math.min(this.#nextDue, held.until);
        return false;
      }
      this.#nextDue = now;
      return isTogether === undefined || (isTogether && held.isTold);
    };
    return this.#take(this.#doubtful, may, read, (held) => {
      isTogether = held.isTold;
      return isTogether;
    });
  }

  /** `hasTaken` says whether rows of more devices may join. */
  #take(
    from: Map<string, HeldDevice>,
    may: (held: HeldDevice) => boolean,
    read: Read,
    hasTaken: (held: HeldDevice) => boolean = () => true,
  ): OutboxRow[] | undefined {
    const rows: OutboxRow[] = [];
    const taken: HeldDevice[] = [];
    let bytes = 0;
    let reads = 0;
    for (const held of from.values()) {
      if (!may(held)) continue;
      reads += 1;
      if (reads > devicesAtOnce) break;
      const own = read(held);
      // Nothing that was passed over is left; what comes now has not been seen yet.
      if (!own) from.delete(held.deviceId);
      if (!own || own.length === 0) continue;
      const more = own.reduce((sum, row) => sum + contentBytes(row), 0);
      if (rows.length > 0 && (rows.length + own.length > batchSize || bytes + more > batchBytes)) break;
      bytes += more;
      rows.push(...own);
      taken.push(held);
      if (!hasTaken(held)) break;
    }
    for (const held of taken) {
      from.delete(held.deviceId);
      from.set(held.deviceId, held);
    }
    return rows.length > 0 ? rows : undefined;
  }
}
