/** Reads the points of payloads: small ones at once, large ones in a thread, where accounts take turns. */
import type { Point } from '../../../db/messages/store.ts';
import { AskedThread } from '../../../db/threads/asked-thread.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler, unbounded } from '../../core/scheduler/scheduler.ts';
import { type FixedForm, type PayloadLimits, readForm, readPoints, readTextPoints } from './payload.ts';
import type { Reading } from './reading.ts';

/** Bytes up to which a payload is read on the event loop: asking the thread takes about as long. */
const smallPayload = 8192;
/** Payloads on their way to the thread and back; it reads one after the other. */
const askedAtOnce = 2;

/** Any form, any form of text, or the one that a channel template fixes. */
export type PayloadKind = OpenKind | FixedForm;
export type OpenKind = 'any' | 'text';

/** A payload, and how it is to be read; `now` in milliseconds. */
export interface PayloadQuestion {
  payload: Uint8Array;
  kind: PayloadKind;
  now: number;
  limits: PayloadLimits;
}

/** Points column by column, because threads copy that fastest; NaN stands for no number. */
export interface PointColumns {
  times: Float64Array;
  numbers: Float64Array;
  /** Each category once, and its index by point. */
  categories: string[];
  categoryOf: Uint32Array;
  texts: Map<number, string>;
}
export type PayloadAnswer = PointColumns | { reason: string };

const readers = { any: readPoints, text: readTextPoints } as const;

function isFixed(form: string): form is FixedForm {
  return form === 'csv' || form === 'json' || form === 'senml' || form === 'float32';
}

/** Reads a payload where it is called. */
export function readPayload({ payload, kind, now, limits }: PayloadQuestion): Reading {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  return kind === 'any' || kind === 'text' ? readers[kind](bytes, now, limits) : readForm(kind, bytes, now, limits);
}

export class PayloadReader {
  readonly #limits: PayloadLimits;
  readonly #thread = new AskedThread<PayloadQuestion, PayloadAnswer>(
    new URL('./worker.ts', import.meta.url),
    'The reader of payloads',
  );
  // Connections and requests wait here with one payload each, and have limits of their own.
  readonly #queue = new Scheduler({ atOnce: askedAtOnce, maxWaiting: unbounded, quantum: smallPayload });

  constructor(limits: PayloadLimits) {
    this.#limits = limits;
  }

  /** Payloads that wait for the thread. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /**
   * The points of a payload, at once where it is small. `form` is that of the channel template; where it fixes none, the
   * payload is read as `open`. Rejects when the thread fails.
   */
  read(lane: Lane, payload: Buffer, now: number, form: string, open: OpenKind = 'any'): Reading | Promise<Reading> {
    const kind = isFixed(form) ? form : open;
    const question = { payload, kind, now, limits: this.#limits };
    if (payload.length <= smallPayload) return readPayload(question);
    return this.#queue.run(lane, payload.length, async () =>
      // By itself: of a part of a buffer the thread would get all.
      toReading(await this.#thread.ask({ ...question, payload: new Uint8Array(payload) })),
    );
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}

export function toColumns(points: readonly Point[]): PointColumns {
  const index = new Map<string, number>();
  const columns: PointColumns = {
    times: new Float64Array(points.length),
    numbers: new Float64Array(points.length),
    categories: [],
    categoryOf: new Uint32Array(points.length),
    texts: new Map(),
  };
  for (const [at, { time, category, numericValue, stringValue }] of points.entries()) {
    columns.times[at] = time;
    columns.numbers[at] = numericValue ?? Number.NaN;
    if (stringValue !== null) columns.texts.set(at, stringValue);
    const known = index.get(category) ?? index.size;
    index.set(category, known);
    columns.categoryOf[at] = known;
  }
  columns.categories = [...index.keys()];
  return columns;
}

function toReading(answer: PayloadAnswer): Reading {
  if ('reason' in answer) return answer;
  const { times, numbers, categories, categoryOf, texts } = answer;
  const points = Array.from(times, (time, at): Point => {
    const number = numbers[at] as number;
    return {
      time,
      category: categories[categoryOf[at] as number] as string,
      numericValue: Number.isNaN(number) ? null : number,
      stringValue: texts.get(at) ?? null,
    };
  });
  return { points };
}
