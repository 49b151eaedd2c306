/** Comparisons of values in memory, as SQLite makes them. None is true of a missing value. */
import { fold } from '../../../db/sqlite/fold.ts';
import { versionKey } from '../../../db/sqlite/versions.ts';
import type { Literal, Operator } from './parser.ts';

/** `ne` is `not` of `eq`, and null is what is not present. */
export type Comparison = Exclude<Operator, 'ne'>;
export type Given = Exclude<Literal, null>;

/** A value that is not missing, as it is stored; flags are 0 and 1. Many filters compare the same one. */
export class StoredValue {
  readonly value: string | number;
  /** Of an attribute that has several, the type that this value is of. */
  readonly type: string | undefined;
  #folded: string | undefined;
  #version: string | null | undefined;

  constructor(value: string | number, type?: string) {
    this.value = value;
    this.type = type;
  }

  get folded(): string {
    this.#folded ??= fold(String(this.value));
    return this.#folded;
  }

  get version(): string | null {
    if (this.#version === undefined) this.#version = versionKey(String(this.value));
    return this.#version;
  }
}

/** `now` in milliseconds since 1970. */
export type Test = (stored: StoredValue, now: number) => boolean;

const signs: Partial<Record<Comparison, (order: number) => boolean>> = {
  eq: (order) => order === 0,
  gt: (order) => order > 0,
  ge: (order) => order >= 0,
  lt: (order) => order < 0,
  le: (order) => order <= 0,
};

/** Compares what `read` gives of a value, if that is not null; undefined for operators that are about parts of a text. */
export function byOrder<V>(
  operator: Comparison,
  read: (stored: StoredValue) => V | null,
  given: (now: number) => V,
  compare: (one: V, other: V) => number,
): Test | undefined {
  const sign = signs[operator];
  if (!sign) return undefined;
  return (stored, now) => {
    const value = read(stored);
    return value !== null && sign(compare(value, given(now)));
  };
}

export const compareNumbers = (one: number, other: number) => one - other;

/** As SQLite orders texts: by code points, which are not in the order of the halves of surrogate pairs. */
export function compareTexts(one: string, other: string): number {
  if (one === other) return 0;
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at += 1) {
    const [left, right] = [one.charCodeAt(at), other.charCodeAt(at)];
    if (left === right) continue;
    if (isSurrogate(left) === isSurrogate(right)) return left - right;
    return isSurrogate(left) ? 1 : -1;
  }
  return one.length - other.length;
}

const isSurrogate = (code: number) => code >= 0xd800 && code <= 0xdfff;

/** Undefined where SQL has no condition either: every text contains the empty one. */
export function textTest(operator: Comparison, given: Given): Test | undefined {
  if (typeof given !== 'string') return undefined;
  const text = fold(given);
  const ordered = byOrder(
    operator,
    ({ folded }) => folded,
    () => text,
    compareTexts,
  );
  if (ordered || text === '') return ordered;
  if (operator === 'co') return ({ folded }) => folded.includes(text);
  return operator === 'sw' ? ({ folded }) => folded.startsWith(text) : ({ folded }) => folded.endsWith(text);
}
