import { setImmediate as nextTurn } from 'node:timers/promises';
import type { MqttChange, RetainedMessage } from '../db/mqtt-changes.js';
import type { MqttRows } from '../db/mqtt-rows.js';
import type { Outgoing } from './aedes-types.js';
import type { Journal } from './journal.js';
import { matches } from './topics.js';

/** Topics read at once; others get their turn in between. */
const pageSize = 100;

type Message = Pick<Outgoing, 'topic' | 'qos' | 'payload'>;

/** Retained messages: on disk, and in memory only until they are there. */
export class Retained {
  readonly #rows: MqttRows;
  readonly #journal: Journal;
  /** What is on its way to the disk, by topic; null for one that is being cleared. */
  readonly #unwritten = new Map<string, RetainedMessage | null>();

  #lastSwept = '';

  constructor(rows: MqttRows, journal: Journal) {
    this.#rows = rows;
    this.#journal = journal;
  }

  /** An empty payload clears the topic [MQTT-3.3.1-10]. */
  store(message: Message): void {
    const change = retainedChange(message);
    const retained = change.kind === 'retain' ? change.retained : null;
    this.#journal.record(change);
    this.#unwritten.set(message.topic, retained);
    this.#journal.afterwards(() => {
      if (this.#unwritten.get(message.topic) === retained) this.#unwritten.delete(message.topic);
    });
  }

  /** Every message that matches one of the filters, once. */
  async *matching(filters: readonly string[]): AsyncIterableIterator<RetainedMessage> {
    for (const [place, filter] of filters.entries()) {
      const earlier = filters.slice(0, place);
      for await (const topic of this.#topicsFor(filter)) {
        const message = earlier.some((other) => matches(other, topic)) ? undefined : this.#read(topic);
        if (message) yield message;
      }
    }
  }

  /** Clears some of what can never be delivered again. */
  sweep(mayStay: (topic: string) => boolean): void {
    const topics = this.#rows.retainedTopics('', this.#lastSwept, pageSize);
    for (const topic of topics) if (!mayStay(topic)) this.store({ topic, qos: 0, payload: Buffer.alloc(0) });
    this.#lastSwept = topics.at(-1) ?? '';
  }

  /** Filters with wildcards read the range of their literal prefix: a scan of everything takes long. */
  async *#topicsFor(filter: string): AsyncIterableIterator<string> {
    const wildcard = filter.search(/\/?[+#]/);
    if (wildcard === -1) {
      yield filter;
      return;
    }
    const prefix = filter.slice(0, wildcard);
    const fits = (topic: string) => topic.startsWith(prefix) && matches(filter, topic);
    const unwritten = [...this.#unwritten.keys()].filter(fits);
    yield* unwritten;
    const seen = new Set(unwritten);
    for (let page = this.#rows.retainedTopics(prefix, '', pageSize); page.length > 0; ) {
      for (const topic of page) if (!seen.has(topic) && fits(topic)) yield topic;
      await nextTurn();
      page = this.#rows.retainedTopics(prefix, page.at(-1) as string, pageSize);
    }
  }

  #read(topic: string): RetainedMessage | undefined {
    const unwritten = this.#unwritten.get(topic);
    return unwritten === undefined ? this.#rows.retained(topic) : (unwritten ?? undefined);
  }
}

/** What a retained message changes on disk. */
export function retainedChange({ topic, qos, payload }: Message): MqttChange {
  if (payload.length === 0) return { kind: 'unretain', topic };
  return { kind: 'retain', retained: { topic, qos, payload: ownBytes(payload) } };
}

/** The bytes alone, as they go to the disk: a part of a read buffer would take all of it along. */
export function ownBytes(payload: string | Buffer): Uint8Array {
  return new Uint8Array(typeof payload === 'string' ? Buffer.from(payload) : payload);
}
