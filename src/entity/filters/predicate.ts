/** Filters as predicates in memory: the same tree as the conditions of SQL, about one row whose values are given. */

import type { Comparison, Given, StoredValue } from './comparisons.ts';
import type { Operand } from './operands.ts';
import type { AttributePath, Filter } from './parser.ts';

/** One row, and what time it is for it, in milliseconds since 1970. */
export interface Subject {
  readonly now: number;
  /**
   * The values of an attribute by its name: none where it is missing, several where custom fields differ in the letter case of their
   * names alone.
   */
  valuesOf(name: string): readonly StoredValue[];
}

/** An attribute that is compared with a time relative to now: `given`, in milliseconds after it. */
export interface Relative {
  name: string;
  given: string;
  offset: number;
}

/** A filter about one row at a time. */
export interface Predicate {
  holds(subject: Subject): boolean;
  /** The attributes that it names. */
  names: ReadonlySet<string>;
  /** Those that it compares with times relative to now, and these times. */
  relative: readonly Relative[];
  /** When it may come to hold, or cease to, by time alone; undefined where it will not. Milliseconds since 1970. */
  nextChange(subject: Subject): number | undefined;
}

/** What is known of an attribute. */
interface Attribute {
  name: string;
  operands: readonly Operand[];
}

type Term = Exclude<Filter, { is: 'and' | 'or' | 'not' | 'some' }>;
type Holds = (subject: Subject) => boolean;

/** `find` has checked all terms. */
export function predicateOf(root: Filter, terms: readonly Term[], find: (path: AttributePath) => Attribute): Predicate {
  const relative: Relative[] = [];
  for (const term of terms) {
    const { operands, name } = find(term.path);
    const value = 'value' in term ? term.value : null;
    const offset = value === null ? undefined : operands.find(({ offsetOf }) => offsetOf?.(value))?.offsetOf?.(value);
    if (offset !== undefined) relative.push({ name, given: String(value), offset });
  }
  return {
    holds: holdsOf(root, find),
    names: new Set(terms.map(({ path }) => find(path).name)),
    relative,
    nextChange: (subject) => nextOf(relative, subject),
  };
}

/** All of these. */
export function allOf(predicates: readonly Predicate[]): Predicate {
  const [only] = predicates;
  if (only && predicates.length === 1) return only;
  return {
    holds: (subject) => predicates.every((one) => one.holds(subject)),
    names: new Set(predicates.flatMap(({ names }) => [...names])),
    relative: predicates.flatMap(({ relative }) => relative),
    nextChange: (subject) => earliest(predicates.map((one) => one.nextChange(subject))),
  };
}

function holdsOf(filter: Filter, find: (path: AttributePath) => Attribute): Holds {
  if (filter.is === 'and' || filter.is === 'or') {
    const parts = filter.of.map((one) => holdsOf(one, find));
    const isAnd = filter.is === 'and';
    return (subject) => {
      for (const part of parts) if (part(subject) !== isAnd) return !isAnd;
      return isAnd;
    };
  }
  if (filter.is === 'not') return negated(holdsOf(filter.of, find));
  if (filter.is === 'some') throw new TypeError('Lists have no brackets.');
  const attribute = find(filter.path);
  if (filter.is === 'present') return present(attribute);
  const { is, value } = filter;
  if (value === null) return is === 'ne' ? present(attribute) : negated(present(attribute));
  return is === 'ne' ? negated(compared(attribute, 'eq', value)) : compared(attribute, is, value);
}

function negated(holds: Holds): Holds {
  return (subject) => !holds(subject);
}

/** Only a text can be there and count as no value. */
function present({ name, operands }: Attribute): Holds {
  if (operands.every(({ type }) => type === 'gone')) return () => false;
  return (subject) => subject.valuesOf(name).some(({ value }) => value !== '');
}

function compared({ name, operands }: Attribute, operator: Comparison, given: Given): Holds {
  const tests = new Map<string, ReturnType<Operand['test']>>(
    operands.map(({ type, test }) => [type, test(operator, given)]),
  );
  const [only] = tests.values();
  return (subject) => {
    for (const stored of subject.valuesOf(name)) {
      const test = stored.type === undefined ? only : tests.get(stored.type);
      if (test?.(stored, subject.now)) return true;
    }
    return false;
  };
}

/** A value is before, at, or after a time that moves: it changes sides when it is that time, and in the next millisecond. */
function nextOf(relative: readonly Relative[], subject: Subject): number | undefined {
  const times = relative.flatMap(({ name, offset }) =>
    subject.valuesOf(name).flatMap(({ value }) => {
      const time = typeof value === 'string' ? Date.parse(value) - offset : Number.NaN;
      return time >= subject.now ? [time > subject.now ? time : time + 1] : [];
    }),
  );
  return earliest(times);
}

/** The first of some times, of which some are not known. */
export function earliest(times: ReadonlyArray<number | undefined>): number | undefined {
  let first: number | undefined;
  for (const time of times) if (time !== undefined && !(first !== undefined && first <= time)) first = time;
  return first;
}
