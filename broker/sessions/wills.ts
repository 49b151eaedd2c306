import type { StoredWill } from '../../db/messages/sessions/changes.ts';
import type { MqttRows } from '../../db/messages/sessions/rows.ts';
import type { BrokerClient } from '../client-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import type { Will } from '../message-types.ts';
import { AccountBytes } from './account-bytes.ts';
import type { Journal } from './journal.ts';
import { ownBytes } from './retained.ts';

/** Milliseconds from the start that the client of a crashed process has to come back, where its will says nothing of it. */
const patience = 60_000;
/** Wills that are published in one turn of the event loop. */
const duesAtOnce = 100;

/** Bytes that a will takes beside its topic, payload and properties. */
export const bytesOfWill = 300;

/** A will that waits for its client; what it says is on disk. */
interface LeftWill {
  clientId: string;
  /** Seconds. */
  delay: number;
  /** In milliseconds since 1970. */
  due: number;
  size: number;
  /** The whole will, until it is known to be on disk. */
  will: StoredWill | undefined;
}

/**
 * Wills, on disk while their clients are connected, and while they wait for them: a connection holds its own, and one that is
 * left by a crash, or is to be delayed, waits until it is due. They are kept by private client id.
 */
export class Wills {
  readonly #journal: Journal;
  readonly #rows: Pick<MqttRows, 'wills' | 'will'>;
  readonly #maxBytes: number;
  readonly #held = new Map<string, { client: BrokerClient; size: number }>();
  /** Those that wait for their clients. */
  readonly #left = new Map<string, LeftWill>();
  readonly #bytes = new AccountBytes();
  /** None is due before. */
  #due = Number.POSITIVE_INFINITY;

  /** `maxBytes` is for one account; 0 is no limit. */
  constructor(journal: Journal, rows: Pick<MqttRows, 'wills' | 'will'>, maxBytes: number) {
    this.#journal = journal;
    this.#rows = rows;
    this.#maxBytes = maxBytes;
  }

  /** `now` in milliseconds. The connections of a crashed process have ended with it. */
  load(now: number): void {
    for (const { size, ...row } of this.#rows.wills()) this.#leave(row, size + bytesOfWill, undefined, now);
  }

  /** Those that wait for their clients. */
  get left(): number {
    return this.#left.size;
  }

  /** Bytes of the wills of an account, also of connected clients. */
  bytesOf(accountId: string): number {
    return this.#bytes.of(accountId);
  }

  /** Whether the account of a client has room for its will, in the place of the one that it has. */
  hasRoomFor(clientId: string, will: Will): boolean {
    const own = (this.#held.get(clientId)?.size ?? 0) + (this.#left.get(clientId)?.size ?? 0);
    return this.#maxBytes === 0 || this.bytesOf(accountIn(clientId)) - own + sizeOf(will) <= this.#maxBytes;
  }

  /** Those of another server, whose clients have their time to come back. */
  arrive(wills: readonly StoredWill[], now: number): void {
    for (const will of wills) {
      this.#journal.record({ kind: 'will', will });
      this.#leave(will, sizeOfStored(will), will, now);
    }
  }

  /** Those of an account go without being published. */
  depart(accountId: string): void {
    for (const clientId of [...this.#held.keys(), ...this.#left.keys()])
      if (clientId.startsWith(accountId)) this.delete(clientId);
  }

  put(client: BrokerClient, will: Will): void {
    const { id } = client;
    const size = sizeOf(will);
    this.#bytes.count(id, size - (this.#held.get(id)?.size ?? 0));
    this.#held.set(id, { client, size });
    this.#journal.record({ kind: 'will', will: storedWill(client, will) });
  }

  /** The connection has ended: its will waits for its client for as long as it says, or as if this process had crashed. */
  keep(client: BrokerClient, will: Will, now: number): void {
    const held = this.#held.get(client.id);
    if (held?.client !== client) return;
    this.#held.delete(client.id);
    this.#bytes.count(client.id, -held.size);
    const stored = storedWill(client, will);
    this.#leave(stored, held.size, stored, now);
  }

  /** The clients have their time to come back from now on. */
  postpone(now: number): void {
    for (const will of this.#left.values()) if (will.delay === 0) will.due = now + patience;
  }

  /** The client has come back: its will is void, or is returned to be published when its session has ended [MQTT-3.1.3-9]. */
  takeBack(clientId: string, hasSessionEnded: boolean): StoredWill | undefined {
    const left = this.#left.get(clientId);
    const will = left && hasSessionEnded && left.delay > 0 ? this.#read(left) : undefined;
    this.delete(clientId);
    return will;
  }

  /** A session has ended before its will was due: it waits no longer [MQTT-3.1.3-9]. */
  endDelay(clientId: string, now: number): void {
    const left = this.#left.get(clientId);
    if (!left || left.delay === 0 || left.due <= now) return;
    left.due = now;
    this.#due = Math.min(this.#due, now);
    this.#recordDue(left);
  }

  /** The will of a client has been published or dropped. */
  delete(clientId: string): void {
    const [held, left] = [this.#held.get(clientId), this.#left.get(clientId)];
    if (!held && !left) return;
    this.#bytes.count(clientId, -(held?.size ?? 0) - (left?.size ?? 0));
    this.#held.delete(clientId);
    this.#left.delete(clientId);
    this.#journal.record({ kind: 'unwill', clientId });
  }

  /** As delete, for the will of this connection only. */
  deleteOf(client: BrokerClient): void {
    if (this.#held.get(client.id)?.client === client) this.delete(client.id);
  }

  /** Some wills whose clients have not come back in time, each handed out once. Those that are `isAway` wait. */
  takeDue(now: number, isAway: (clientId: string) => boolean): StoredWill[] {
    if (now < this.#due) return [];
    let next = Number.POSITIVE_INFINITY;
    const due: LeftWill[] = [];
    for (const will of this.#left.values()) {
      if (will.due <= now && due.length < duesAtOnce && !isAway(will.clientId)) due.push(will);
      else next = Math.min(next, due.length < duesAtOnce ? Math.max(will.due, now + 1) : now);
    }
    // What cannot be read now is due again.
    const wills = due.flatMap((left) => this.#read(left) ?? []);
    this.#due = next;
    for (const { clientId } of due) this.delete(clientId);
    return wills;
  }

  #read({ clientId, due, will = this.#rows.will(clientId) }: LeftWill): StoredWill | undefined {
    return will && { ...will, due };
  }

  #leave(
    { clientId, delay, due: known }: Pick<StoredWill, 'clientId' | 'delay' | 'due'>,
    size: number,
    will: StoredWill | undefined,
    now: number,
  ): void {
    const due = delay > 0 ? (known ?? now + delay * 1000) : now + patience;
    const left: LeftWill = { clientId, delay, due, size, will };
    this.#bytes.count(clientId, size - (this.#left.get(clientId)?.size ?? 0));
    this.#left.set(clientId, left);
    this.#due = Math.min(this.#due, due);
    // The others have a minute again after each start.
    if (delay > 0 && known === null) this.#recordDue(left);
    if (will)
      this.#journal.afterwards(() => {
        left.will = undefined;
      });
  }

  /** Of a will that is not on disk the whole is written: the change takes the place of the one that has not been. */
  #recordDue({ clientId, due, will }: LeftWill): void {
    this.#journal.record(will ? { kind: 'will', will: { ...will, due } } : { kind: 'willDue', clientId, due });
  }
}

function sizeOf({ topic, payload, clientProperties }: Will): number {
  return bytesOfWill + Buffer.byteLength(topic) + payload.length + (clientProperties?.travelling?.length ?? 0);
}

function sizeOfStored({ topic, payload, properties }: StoredWill): number {
  return bytesOfWill + Buffer.byteLength(topic) + payload.length + (properties?.length ?? 0);
}

function storedWill(client: BrokerClient, will: Will): StoredWill {
  const { topic, qos, retain, payload, clientProperties } = will;
  const delay = delayOf(client, will);
  const { travelling, messageExpiry = null } = clientProperties ?? {};
  const properties = travelling && travelling.length > 0 ? ownBytes(travelling) : null;
  const { generation = null, certificateId = null, sessionId = certificateId } = client.live?.identity ?? {};
  const about = { topic, qos, retain: retain ? 1 : 0, payload: ownBytes(payload), properties };
  return { clientId: client.id, ...about, generation, sessionId, messageExpiry, delay, due: null };
}

/** Since when a will has waited for its client, in milliseconds since 1970; undefined while the client is connected. */
export function waitsSince({ due, delay }: StoredWill): number | undefined {
  return due === null ? undefined : due - (delay > 0 ? delay * 1000 : patience);
}

/** Seconds that a will waits after its connection: not longer than the session is kept [MQTT-3.1.3.2.2]. */
export function delayOf({ clean, sessionExpiry }: BrokerClient, { delay = 0 }: Will): number {
  return Math.min(delay, clean ? 0 : sessionExpiry);
}
