import type { Subscription } from '../message-types.ts';
import type { RetainedSearch } from '../sessions/retained-search.ts';

const noPacketId = 0;

/** The filters of a connection whose retained messages it has not received whole. */
export class NewFilters {
  readonly #all = new Set<string>();
  /** Those whose SUBSCRIBE has not been answered. */
  readonly #expected = new Set<string>();
  /** Those that are searched for next. */
  readonly #waiting = new Map<string, Subscription>();
  /** Packet ids of retained messages that it has not acknowledged. */
  readonly #unacknowledged = new Set<number>();
  readonly #received: (filters: ReadonlySet<string>) => void;
  #isSending = false;
  /** What is being sent. */
  search: RetainedSearch | undefined;

  /** `received` is called when it has received all, of which filters; it is asked for no more then. */
  constructor(received: (filters: ReadonlySet<string>) => void) {
    this.#received = received;
  }

  get isSending(): boolean {
    return this.#isSending;
  }

  get topics(): ReadonlySet<string> {
    return this.#all;
  }

  /** A SUBSCRIBE is on its way to the disk; `add` follows. */
  expect(filters: readonly Subscription[]): void {
    for (const { topic } of filters) {
      this.#all.add(topic);
      this.#expected.add(topic);
    }
  }

  /** Of a filter that is subscribed to again the latest SUBSCRIBE counts. */
  add(filters: readonly Subscription[]): void {
    for (const filter of filters) {
      this.search?.forget(filter.topic);
      this.#all.add(filter.topic);
      this.#expected.delete(filter.topic);
      this.#waiting.set(filter.topic, filter);
    }
  }

  /** It has given these filters up. */
  forget(topics: readonly string[]): void {
    for (const topic of topics) {
      this.search?.forget(topic);
      this.#all.delete(topic);
      this.#expected.delete(topic);
      this.#waiting.delete(topic);
    }
  }

  begin(): void {
    this.#isSending = true;
  }

  /** The filters that are searched for together: their messages say the same identifier. */
  takeNext(): Subscription[] {
    const [first] = this.#waiting.values();
    const next = [...this.#waiting.values()].filter(({ identifier }) => identifier === first?.identifier);
    for (const { topic } of next) this.#waiting.delete(topic);
    return next;
  }

  /** What was sent in part is not received, whatever is acknowledged. */
  fail(): void {
    this.#unacknowledged.add(noPacketId);
  }

  end(): void {
    this.#isSending = false;
    this.search = undefined;
    this.#settle();
  }

  sent(messageId: number): void {
    this.#unacknowledged.add(messageId);
  }

  acknowledged(messageId: number): void {
    if (this.#unacknowledged.delete(messageId)) this.#settle();
  }

  #settle(): void {
    const isLeft = this.#isSending || this.#expected.size > 0 || this.#unacknowledged.size > 0;
    if (!isLeft) this.#received(this.#all);
  }
}
