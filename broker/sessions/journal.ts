import { keyOf, type MqttChange, queueKey } from '../../db/messages/sessions/changes.ts';
import type { MessageStore } from '../../db/messages/store.ts';

type Written = (error?: Error) => void;

/** Milliseconds that a change waits for others when nobody waits for it. */
const maxWait = 25;
/** Milliseconds until changes that could not be written are tried again. */
const retryDelay = 1000;

/** One transaction: what it writes, and who hears that it and all before it are on disk. */
interface Share {
  readonly changes: Map<string, MqttChange>;
  readonly written: Array<() => void>;
}

/**
 * The way of sessions to the disk: changes follow memory in order, after milliseconds, or at once when somebody waits. One that
 * fails is tried again, unless a later one has replaced it or its caller waits for a promise and gets the error.
 */
export class Journal {
  readonly #messages: Pick<MessageStore, 'record'>;
  #open = newShare();
  readonly #sent: Share[] = [];
  /** Refused changes and those who wait for them; they go first next time. */
  #refused = newShare();
  #timer: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(messages: Pick<MessageStore, 'record'>) {
    this.#messages = messages;
  }

  /** Changes that are not known to be on disk. */
  get pending(): number {
    return this.#sent.reduce(
      (sum, { changes }) => sum + changes.size,
      this.#open.changes.size + this.#refused.changes.size,
    );
  }

  /** Writes a change soon; it replaces what has been recorded of the same before. */
  record(change: MqttChange): void {
    const key = keyOf(change);
    this.#refused.changes.delete(key);
    // Last, as it is newest: the end of a session comes after what belongs to it.
    this.#open.changes.delete(key);
    this.#open.changes.set(key, change);
    this.#timer ??= setTimeout(() => this.flush(), maxWait);
  }

  /** A message leaves a queue; one that has not been written yet never is. */
  recordUnqueue(session: number, id: number): void {
    const isOpen = withdraw(this.#open, session, id);
    const isRefused = withdraw(this.#refused, session, id);
    if (!isOpen && !isRefused) this.record({ kind: 'unqueue', session, id });
  }

  /** Writes changes now, all or none; they are not tried again. What was recorded before is written before. */
  promise(changes: readonly MqttChange[], done: Written): void {
    this.flush();
    this.#messages.record(changes, done);
  }

  /** Calls back when everything recorded until now is on disk. */
  afterwards(work: () => void): void {
    const last = this.#last();
    if (last) last.written.push(work);
    else work();
  }

  /** Resolves when everything recorded until now is on disk, however long that takes. */
  durable(): Promise<void> {
    const last = this.#last();
    if (!last) return Promise.resolve();
    const written = new Promise<void>((resolve) => last.written.push(resolve));
    this.flush();
    return written;
  }

  /** Sends what is waiting. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (isEmpty(this.#open) || this.#closed) return;
    this.#send(this.#open);
    this.#open = newShare();
  }

  /** Sends the rest, for the last time; the store closes after it. */
  close(): void {
    if (!isEmpty(this.#refused)) this.#sendRefused();
    this.flush();
    this.#closed = true;
    clearTimeout(this.#retry);
  }

  #last(): Share | undefined {
    if (!isEmpty(this.#open)) return this.#open;
    return this.#sent.at(-1) ?? (isEmpty(this.#refused) ? undefined : this.#refused);
  }

  #send(share: Share): void {
    this.#sent.push(share);
    this.#messages.record([...share.changes.values()], (error) => this.#answered(error));
  }

  #answered(error: Error | undefined): void {
    const share = this.#sent.shift();
    if (!share) return;
    if (error) this.#keep(share);
    // A caller that waits for this share also waits for every refused one before it.
    if (!error && isEmpty(this.#refused)) for (const work of share.written) work();
    else this.#refused.written.push(...share.written);
    if (!isEmpty(this.#refused)) this.#retryLater();
  }

  #keep({ changes }: Share): void {
    const later = [...this.#sent, this.#open].map((share) => share.changes);
    const isReplaced = (key: string) => later.some((share) => share.has(key));
    for (const [key, change] of changes) {
      if (isReplaced(key)) continue;
      if (change.kind !== 'message') {
        this.#refused.changes.set(key, change);
        continue;
      }
      const { id } = change.message;
      const hasLeft = (key: string) => later.some((share) => share.get(key)?.kind === 'unqueue');
      const sessions = change.sessions.filter((session) => !hasLeft(queueKey({ session, id })));
      if (sessions.length > 0) this.#refused.changes.set(key, { ...change, sessions });
    }
  }

  #retryLater(): void {
    if (this.#closed) return;
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.#sendRefused();
    }, retryDelay);
  }

  #sendRefused(): void {
    const { changes, written } = this.#refused;
    this.#refused = newShare();
    // One share, so that what has been recorded since comes after it and is told of it.
    const open = this.#open;
    for (const [key, change] of open.changes) {
      changes.delete(key);
      changes.set(key, change);
    }
    this.#open = { changes, written: [...written, ...open.written] };
    this.flush();
  }
}

/** Takes a session away from a message that has not been written; whether it was there. */
function withdraw({ changes }: Share, session: number, id: number): boolean {
  const key = `message ${id}`;
  const added = changes.get(key);
  if (added?.kind !== 'message' || !added.sessions.includes(session)) return false;
  const sessions = added.sessions.filter((other) => other !== session);
  if (sessions.length > 0) changes.set(key, { ...added, sessions });
  else changes.delete(key);
  return true;
}

function newShare(): Share {
  return { changes: new Map(), written: [] };
}

function isEmpty({ changes, written }: Share): boolean {
  return changes.size === 0 && written.length === 0;
}
