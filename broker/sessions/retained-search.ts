import type { RetainedMessage } from '../../db/messages/sessions/changes.ts';
import type { Heard } from '../../src/core/history-window.ts';
import { FilterTree } from './filter-tree.ts';

/** The searched messages: all topics begin with `prefix`. The search stops if its reader leaves. */
export interface Reach {
  readonly prefix: string;
  mayHear(topic: string): Heard;
  isOver(): boolean;
}

/** A retained message on its way to a subscriber. */
export interface Sending {
  /** Bytes of its payload. */
  length: number;
  /** With which it goes. */
  qos: 0 | 1 | 2;
  /** Resolves when the next one may follow. */
  delivered: Promise<void>;
}
type Send = (message: RetainedMessage) => Sending;

/**
 * What is retained for the filters of one SUBSCRIBE. Topics are looked at one after another, while new messages go to the
 * subscriber: where one comes for a topic that has not been looked at, what was retained there leaves before it.
 */
export class RetainedSearch {
  readonly reach: Reach;
  /** Prefixes of the topics that are looked at, in order. */
  readonly ranges: readonly string[];
  readonly #filters = new FilterTree();
  /** Called as soon as a message is found: a newer one must not leave before it. */
  readonly send: Send;
  readonly #close: () => void;
  /** The last topic that was looked at. */
  #last = '';
  /** Later topics that need not be looked at any more. */
  readonly #early = new Set<string>();

  constructor(filters: readonly string[], reach: Reach, send: Send, close: (search: RetainedSearch) => void) {
    this.reach = reach;
    this.ranges = rangesOf(filters, reach.prefix);
    for (const filter of filters) this.#filters.add(filter, '');
    this.send = send;
    this.#close = () => close(this);
  }

  hears(topic: string): Heard {
    return this.#filters.match(topic).size > 0 && this.reach.mayHear(topic);
  }

  /** Whether it has not come to this topic of its reach. */
  isAhead(topic: string): boolean {
    return topic > this.#last && !this.#early.has(topic);
  }

  /** What is retained on a topic that it has not come to leaves now. */
  sendEarly(topic: string, message: RetainedMessage | undefined): void {
    this.#early.add(topic);
    if (message) void this.send(message);
  }

  /** It has come to this topic; false when nothing is to be sent. */
  pass(topic: string): boolean {
    this.#last = topic;
    return !this.#early.delete(topic);
  }

  /** A filter is not subscribed to any more. */
  forget(filter: string): void {
    this.#filters.delete(filter, '');
  }

  close(): void {
    this.#close();
  }
}

/**
 * The literal prefixes of the filters, those that are in reach, none of them within another: each retained topic is
 * looked at once, however many filters there are.
 */
function rangesOf(filters: readonly string[], reach: string): string[] {
  const prefixes = new Set<string>();
  for (const filter of filters) {
    const wildcard = filter.search(/\/?[+#]/);
    const prefix = wildcard === -1 ? filter : filter.slice(0, wildcard);
    if (prefix.startsWith(reach)) prefixes.add(prefix);
    else if (wildcard !== -1 && reach.startsWith(prefix)) prefixes.add(reach);
  }
  const ranges: string[] = [];
  // Sorted, what is within a prefix follows it.
  for (const prefix of [...prefixes].sort()) {
    const last = ranges.at(-1);
    if (last === undefined || !prefix.startsWith(last)) ranges.push(prefix);
  }
  return ranges;
}
