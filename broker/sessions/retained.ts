import { setImmediate as nextTurn } from 'node:timers/promises';
import type { MqttChange, RetainedMessage } from '../../db/messages/sessions/changes.ts';
import type { MqttRows, RetainedUse } from '../../db/messages/sessions/rows.ts';
import { isHeard } from '../../src/core/history-window.ts';
import type { Counters } from '../connections/counters.ts';
import { type Carried, isForNow, type Outgoing, sizeOf, storedProperties } from '../message-types.ts';
import { NamedTurns, Turns } from '../packets/turns.ts';
import type { Journal } from './journal.ts';
import { type Reach, RetainedSearch, type Sending } from './retained-search.ts';

/** Topics read at once; others get their turn in between. */
const pageSize = 100;

/** `stored` is known of one that comes from another server. */
type Message = Pick<Outgoing, 'topic' | 'qos' | 'payload'> & Carried & { stored?: number };
type RetainedChange = Extract<MqttChange, { kind: 'retain' | 'unretain' }>;

interface Admitted {
  /** Bytes; 0 for one that clears the topic. */
  size: number;
  /** An older message, which is written only when this one is refused. */
  behind: RetainedChange | undefined;
}

/** The limits of retained messages of an account; 0 is no limit. */
export interface RetainedRoom {
  count: number;
  bytes: number;
}

interface RetainedServices {
  clock: { now(): number };
  /** By which a message has expired. */
  ages: { now(): number };
  counters: Pick<Counters, 'expired'>;
  rows: MqttRows;
  journal: Journal;
  room: RetainedRoom;
  /** The account in whose topics this one is. */
  accountOf(topic: string): string;
}

/** Retained messages: on disk, and in memory only until they are there. */
export class Retained {
  readonly #clock: RetainedServices['clock'];
  readonly #ages: RetainedServices['ages'];
  readonly #counters: RetainedServices['counters'];
  readonly #rows: MqttRows;
  readonly #journal: Journal;
  /** Changes on their way to the disk, by topic; null for a topic that is being cleared. */
  readonly #unwritten = new Map<string, RetainedMessage | null>();

  readonly #room: RetainedRoom;
  readonly #accountOf: (topic: string) => string;
  /** By account, with what has been admitted and is not on disk yet. */
  readonly #use = new Map<string, RetainedUse>();
  /** The newest message that has been admitted and is not known to be on disk, by topic. */
  readonly #admitted = new Map<string, Admitted>();
  /** Payloads of messages that are on disk and that `store` has not been told of. */
  readonly #promised = new WeakSet<Uint8Array>();

  /** Messages on their way to the disk that have not been passed on, by topic. */
  readonly #lines = new NamedTurns();
  /** What has been passed on last on these topics, whatever the disk has; null for nothing. */
  readonly #passed = new Map<string, RetainedMessage | null>();

  /** Those that have not ended, by the prefix of their reach: a client may be slow, and others publish meanwhile. */
  readonly #searches = new Map<string, Set<RetainedSearch>>();

  #lastSwept = '';

  constructor({ clock, ages, counters, rows, journal, room, accountOf }: RetainedServices) {
    this.#clock = clock;
    this.#ages = ages;
    this.#counters = counters;
    this.#rows = rows;
    this.#journal = journal;
    this.#room = room;
    this.#accountOf = accountOf;
  }

  /** Reads what the last process has left. */
  load(): void {
    for (const use of this.#rows.retainedUse()) this.#use.set(use.accountId, use);
  }

  useOf(accountId: string): Omit<RetainedUse, 'accountId'> {
    return this.#use.get(accountId) ?? { count: 0, bytes: 0 };
  }

  /** The limit that a message would exceed. A message that takes no more room than its predecessor always fits. */
  lacksRoomFor(message: Message): keyof RetainedRoom | undefined {
    const { topic } = message;
    if (clears(message)) return undefined;
    const { count, bytes } = this.useOf(this.#accountOf(topic));
    const before = this.#sizeOf(topic);
    const after = sizeOf(message);
    if (before === undefined && this.#room.count > 0 && count >= this.#room.count) return 'count';
    const grows = after - (before ?? 0);
    return grows > 0 && this.#room.bytes > 0 && bytes + grows > this.#room.bytes ? 'bytes' : undefined;
  }

  /** Takes room for a message that is promised to the disk before `store` is told of it; call what it returns when that has ended. */
  admit(message: Message): (error?: Error) => void {
    const { topic, payload } = message;
    const before = this.#admitted.get(topic);
    const admitted: Admitted = { size: clears(message) ? 0 : sizeOf(message), behind: before?.behind };
    this.#count(topic, this.#sizeOf(topic), admitted.size);
    this.#admitted.set(topic, admitted);
    return (error) => {
      if (!error) this.#promised.add(payload);
      if (this.#admitted.get(topic) !== admitted) return;
      this.#admitted.delete(topic);
      if (!error) return;
      this.#count(topic, admitted.size, this.#sizeOf(topic));
      if (admitted.behind) this.#record(admitted.behind);
    };
  }

  /** From now on subscribers find what has been passed on, not what the disk has; call what it returns when this one has been. */
  retaining(topic: string): () => void {
    if (!this.#passed.has(topic)) this.#passed.set(topic, this.#read(topic) ?? null);
    const line = this.#lines.of(topic) ?? new Turns();
    const turn = line.reserve(() => {});
    this.#lines.keep(topic, line, () => this.#passed.delete(topic));
    return () => line.complete(turn);
  }

  isRetaining(topic: string): boolean {
    return this.#lines.of(topic) !== undefined;
  }

  afterRetaining(topic: string, work: () => void): void {
    const line = this.#lines.of(topic);
    if (line) line.complete(line.reserve(work));
    else work();
  }

  #count(topic: string, before = 0, after = 0): void {
    if (before === after) return;
    const accountId = this.#accountOf(topic);
    const { count, bytes } = this.useOf(accountId);
    const use = { accountId, count: count + Number(after > 0) - Number(before > 0), bytes: bytes + after - before };
    if (use.count > 0) this.#use.set(accountId, use);
    else this.#use.delete(accountId);
  }

  #sizeOf(topic: string): number | undefined {
    const admitted = this.#admitted.get(topic);
    if (admitted) return admitted.size || undefined;
    const unwritten = this.#unwritten.get(topic);
    if (unwritten === undefined) return this.#rows.retainedSize(topic);
    return unwritten ? sizeOf(unwritten) : undefined;
  }

  /**
   * An empty payload clears the topic [MQTT-3.3.1-10]. Nothing is kept when there is no room for it. What has been promised is on disk
   * already: written again, it would replace a newer message that may have been acknowledged.
   */
  store(message: Message): void {
    const { topic, payload } = message;
    const isOnDisk = this.#promised.delete(payload);
    if (!isOnDisk && this.lacksRoomFor(message)) return;
    this.#pass(message);
    if (isOnDisk && !this.#unwritten.has(topic)) return;
    const change = this.change(message);
    const newer = this.#admitted.get(topic);
    if (newer) {
      newer.behind = change;
      this.#unwritten.set(topic, retainedOf(change));
      return;
    }
    this.#count(topic, this.#sizeOf(topic), clears(message) ? 0 : sizeOf(message));
    this.#record(change);
  }

  /** A message goes to those who have subscribed: first, who waits for what is retained on its topic gets what was there. */
  #pass(message: Message): void {
    const { topic } = message;
    for (const search of this.#searchesOver(topic))
      if (search.isAhead(topic) && search.hears(topic)) search.sendEarly(topic, this.#found(topic, search));
    if (this.#passed.has(topic)) this.#passed.set(topic, retainedOf(this.change(message)));
  }

  /** The searches in whose reach a topic is. */
  *#searchesOver(topic: string): IterableIterator<RetainedSearch> {
    if (this.#searches.size === 0) return;
    let end = 0;
    do {
      yield* this.#searches.get(topic.slice(0, end)) ?? [];
      end = topic.indexOf('/', end) + 1;
    } while (end > 0);
  }

  #record(change: RetainedChange): void {
    const topic = change.kind === 'retain' ? change.retained.topic : change.topic;
    const retained = retainedOf(change);
    this.#journal.record(change);
    this.#unwritten.set(topic, retained);
    this.#journal.afterwards(() => {
      if (this.#unwritten.get(topic) === retained) this.#unwritten.delete(topic);
    });
  }

  /** The change on disk for a retained message. */
  change(message: Message): RetainedChange {
    const { topic, qos, payload } = message;
    if (clears(message)) return { kind: 'unretain', topic };
    const about = { topic, qos, payload: ownBytes(payload), ...storedProperties(message) };
    const { stored = this.#clock.now() } = message;
    return { kind: 'retain', retained: { accountId: this.#accountOf(topic), ...about, stored } };
  }

  /** Begins a search: what matches one of the filters now and is in reach. Close it. */
  search(filters: readonly string[], reach: Reach, send: RetainedSearch['send'], ended: () => void): RetainedSearch {
    const { prefix } = reach;
    const open = this.#searches.get(prefix) ?? new Set();
    this.#searches.set(prefix, open);
    const search = new RetainedSearch(filters, reach, send, (one) => {
      if (!open.delete(one)) return;
      ended();
      if (open.size === 0) this.#searches.delete(prefix);
    });
    open.add(search);
    return search;
  }

  /** Sends the messages of a search, each once; topics out of reach are not looked at. */
  async *sending(search: RetainedSearch): AsyncIterableIterator<Sending> {
    for (const prefix of search.ranges) {
      for await (const topic of this.#topicsIn(prefix, search.reach)) {
        if (!search.pass(topic)) continue;
        const message = this.#found(topic, search);
        if (message) yield search.send(message);
      }
    }
  }

  #found(topic: string, search: RetainedSearch): RetainedMessage | undefined {
    const heard = search.hears(topic);
    const message = heard && this.#read(topic);
    return message && isHeard(heard, message.stored) && !this.#hasExpired(message) ? message : undefined;
  }

  /** Clears some of what can never be delivered again. */
  sweep(mayStay: (topic: string) => boolean): void {
    this.#sweepExpired();
    const topics = this.#rows.retainedTopics('', this.#lastSwept, pageSize);
    for (const topic of topics) if (!mayStay(topic)) this.store({ topic, qos: 0, payload: Buffer.alloc(0) });
    this.#lastSwept = topics.at(-1) ?? '';
  }

  #sweepExpired(): void {
    for (const topic of this.#rows.retainedExpired(this.#ages.now(), pageSize)) {
      const message = this.#read(topic);
      // A newer one is on its way to the disk.
      if (!message || !this.#hasExpired(message) || this.#admitted.has(topic)) continue;
      this.store({ topic, qos: 0, payload: Buffer.alloc(0) });
      this.#counters.expired += 1;
    }
  }

  #hasExpired({ expires }: RetainedMessage): boolean {
    return expires !== null && expires <= this.#ages.now();
  }

  /** The retained topics that begin with `prefix`, sorted, in steps in which others get their turn. */
  async *#topicsIn(prefix: string, { isOver }: Reach): AsyncIterableIterator<string> {
    const known = new Set([...this.#unwritten.keys(), ...this.#passed.keys()]);
    const unwritten = [...known].filter((topic) => topic.startsWith(prefix)).sort();
    const seen = new Set(unwritten);
    for (let page = this.#rows.retainedTopics(prefix, '', pageSize); page.length > 0 && !isOver(); ) {
      for (const topic of page) {
        while (unwritten[0] !== undefined && unwritten[0] < topic) yield unwritten.shift() as string;
        if (!seen.has(topic)) yield topic;
      }
      if (page.length < pageSize) break;
      await nextTurn();
      page = this.#rows.retainedTopics(prefix, page.at(-1) as string, pageSize);
    }
    yield* unwritten;
  }

  #read(topic: string): RetainedMessage | undefined {
    const known = this.#passed.get(topic) ?? (this.#passed.has(topic) ? null : this.#unwritten.get(topic));
    return known === undefined ? this.#rows.retained(topic) : (known ?? undefined);
  }
}

/** Null for a message that clears its topic. */
function retainedOf(change: RetainedChange): RetainedMessage | null {
  return change.kind === 'retain' ? change.retained : null;
}

/** One that is kept for nobody takes the place of the one before, and is gone. */
function clears(message: Message): boolean {
  return message.payload.length === 0 || isForNow(message);
}

/** The bytes alone, as they go to the disk: a part of a read buffer would take all of it along. */
export function ownBytes(payload: Uint8Array): Uint8Array {
  return new Uint8Array(payload);
}
