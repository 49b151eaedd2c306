/** Which entries a search of the log finds, and in which order: terms for the index, and the check of each entry itself. */
import { fold } from '../../sqlite/fold.ts';
import type { LogRow } from '../threads/protocol.ts';
import type { LogCondition, LogOrder, LogSearch, TextField } from './search.ts';
import {
  accountTerm,
  deviceTerm,
  indexQuery,
  partTerms,
  severityTerm,
  textsOf,
  valueTerm,
  wordsOf,
  wordTerm,
} from './terms.ts';

export type Row = LogRow & { sequence: number };
/** The part of an entry that is in the index. */
export type IndexedEntry = Pick<Row, 'sequence' | 'time' | 'deviceId'>;
export type FoundEntry = IndexedEntry & { score: number; key?: string | number | null };

/** The query for the text index; undefined if no part of the search has terms. */
export function queryOf({ scope, severities, conditions }: LogSearch): string | undefined {
  const lists: string[][] = [];
  for (const condition of conditions) lists.push(...termListsOf(condition));
  if ('accountId' in scope && severities.length === 1) lists.push(severities.map(severityTerm));
  if (lists.length === 0) return undefined;
  if (scope.deviceId !== undefined) lists.push([deviceTerm(scope.deviceId)]);
  if ('accountId' in scope) lists.push([accountTerm(scope.accountId)]);
  return indexQuery(lists);
}

/** Of each list an entry that fulfils the condition has a term. */
function termListsOf(condition: LogCondition): string[][] {
  switch (condition.kind) {
    case 'contains':
      return partTerms(condition.text).map((term) => [term]);
    case 'equals':
      return wordsOf(condition.value).map((word) => [wordTerm(word)]);
    case 'words': {
      const terms = condition.words.map(wordTerm);
      return condition.all ? terms.map((term) => [term]) : [terms];
    }
    case 'custom':
      return [[valueTerm(condition.value)]];
    case 'devices':
      return [condition.ids.map(deviceTerm)];
    case 'received':
      return [];
  }
}

/** How well an entry fulfils a condition; 0 when it does not. Of words asked for, each that it has counts one. */
export function scoreOf(condition: LogCondition, row: Row): number {
  switch (condition.kind) {
    case 'contains':
      return textsOf(row).some((text) => fold(text).includes(condition.text)) ? 1 : 0;
    case 'equals':
      return valuesOf(row, condition.field).includes(condition.value) ? 1 : 0;
    case 'custom':
      return customOf(row, condition.path) === condition.value ? 1 : 0;
    case 'devices':
      return condition.ids.includes(row.deviceId) ? 1 : 0;
    case 'received':
      return row.received >= condition.from && row.received < condition.to ? 1 : 0;
    case 'words': {
      const has = new Set(valuesOf(row, condition.field).flatMap(wordsOf));
      const found = condition.words.filter((word) => has.has(word)).length;
      return condition.all && found < condition.words.length ? 0 : found;
    }
  }
}

function valuesOf(row: Row, field: TextField): string[] {
  if (field === 'tags') return JSON.parse(row.tags) as string[];
  const value = row[field];
  return value === null ? [] : [value];
}

/** The value at a path of an entry's own properties; undefined when there is none. */
function customOf({ custom }: Row, path: readonly string[]): unknown {
  let value: unknown = custom === null ? undefined : JSON.parse(custom);
  for (const name of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** Whether an entry lies in the scope, the range and the severities of a search. */
export function isWithin({ scope, from, to, severities }: LogSearch, row: Row): boolean {
  if (scope.deviceId !== undefined && row.deviceId !== scope.deviceId) return false;
  if ('accountId' in scope && row.accountId !== scope.accountId) return false;
  return row.time >= from && row.time < to && severities.includes(row.severity);
}

/** Entries in the order that is asked for; newer ones first where it says nothing. */
export function sorted(places: FoundEntry[], sort: LogSearch['sort']): FoundEntry[] {
  const newest = (a: FoundEntry, b: FoundEntry) => b.time - a.time || b.sequence - a.sequence;
  if (sort === 'newest') return places.toSorted(newest);
  if (sort === 'oldest') return places.toSorted((a, b) => newest(b, a));
  if (sort === 'score') return places.toSorted((a, b) => b.score - a.score || newest(a, b));
  const direction = sort.order === 'asc' ? 1 : -1;
  return places.toSorted((a, b) => compareKeys(a.key, b.key, direction) || newest(a, b));
}

/** The sort key of an entry; a code that was sent as a number sorts as a number. */
export function keyOf(by: LogOrder['by'], row: Row): string | number | null {
  return by === 'code' && row.codeIsNumber === 1 ? Number(row.code) : row[by];
}

/** Numbers before texts, and what there is none of last in both directions. */
function compareKeys(a: FoundEntry['key'] = null, b: FoundEntry['key'] = null, direction: 1 | -1): number {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  const isLess = typeof a === typeof b ? a < b : typeof a === 'number';
  return isLess ? -direction : direction;
}
