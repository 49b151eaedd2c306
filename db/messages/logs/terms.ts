/**
 * What the index of the log holds of an entry: its account, device and severity, its words, every three characters that stand
 * together, and the values of its own properties. A term begins with a character for its kind. The index says where to look; what is found there is looked at again.
 */
import { fold } from '../../sqlite/fold.ts';
import type { LogRow } from '../threads/protocol.ts';

/** Letters of a text that the index can find; a shorter one is looked for entry by entry. */
const termLength = 3;
/** Terms of a text that are asked for: more hardly narrow it down. */
const maxQueryTerms = 32;
const maxWordLength = 64;

/** Characters at which the index would end a term, and characters that replace them there. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII but characters in lower case and digits
const breaking = /[\x00-\x2f\x3a-\x60\x7b-\x7f]/g;
const standIn = 0xe000;

type Scalar = string | number | boolean | null;
type Texts = Pick<LogRow, 'message' | 'code' | 'details'>;

/** The words of a text, each once, without the difference of upper and lower case. */
export function wordsOf(text: string): string[] {
  return [...new Set(fold(text).match(/[\p{L}\p{M}\p{N}_]+/gu))];
}

/** The terms of an entry, with blanks between them, and how many they are. */
export function termsOf({ accountId, deviceId, severity, tags, custom, ...row }: LogRow): {
  terms: string;
  count: number;
} {
  const terms = new Set([accountTerm(accountId), deviceTerm(deviceId), severityTerm(severity)]);
  for (const text of textsOf(row)) {
    for (const word of wordsOf(text)) terms.add(wordTerm(word));
    for (const part of partsOf(text)) terms.add(part);
  }
  for (const tag of JSON.parse(tags) as string[]) for (const word of wordsOf(tag)) terms.add(wordTerm(word));
  for (const value of custom === null ? [] : valuesIn(JSON.parse(custom))) terms.add(valueTerm(value));
  return { terms: [...terms].join(' '), count: terms.size };
}

/** The texts in which GET looks for a text. */
export function textsOf({ message, code, details }: Texts): string[] {
  return [message, code, details].filter((text) => text !== null);
}

export function accountTerm(accountId: string): string {
  return `a${plain(accountId)}`;
}

export function deviceTerm(deviceId: string): string {
  return `d${plain(deviceId)}`;
}

export function severityTerm(severity: number): string {
  return `s${severity}`;
}

export function valueTerm(value: Scalar): string {
  return `v${plain(`${typeof value} ${value}`.slice(0, maxWordLength))}`;
}

export function wordTerm(word: string): string {
  return `w${plain(word.slice(0, maxWordLength))}`;
}

/** The terms of every text that contains this one; none for a text of fewer than three characters. */
export function partTerms(text: string): string[] {
  return [...new Set(partsOf(text))].slice(0, maxQueryTerms);
}

/** A question to the index: entries with one term of each of these lists. */
export function indexQuery(lists: readonly (readonly string[])[]): string {
  return lists.map((terms) => `(${terms.map((term) => `"${term}"`).join(' OR ')})`).join(' AND ');
}

/** The values in an entry's own properties, wherever they stand. */
function valuesIn(custom: unknown): Scalar[] {
  const values: Scalar[] = [];
  const waiting = [custom];
  for (let value = waiting.pop(); value !== undefined; value = waiting.pop()) {
    if (typeof value !== 'object' || value === null) values.push(value as Scalar);
    else waiting.push(...Object.values(value));
  }
  return values;
}

function* partsOf(text: string): Generator<string> {
  const characters = plain(fold(text));
  for (let at = 0; at + termLength <= characters.length; at += 1) yield `t${characters.slice(at, at + termLength)}`;
}

function plain(text: string): string {
  return text.replace(breaking, (character) => String.fromCharCode(standIn + character.charCodeAt(0)));
}
