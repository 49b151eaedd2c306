/**
 * What the text index of the log holds of an entry: its account, its device, its words, and every three letters that stand
 * together. A term begins with a letter for its kind. The index says where to look; what is found there is looked at again.
 */
import { fold } from './fold.js';
import type { LogRow } from './series-protocol.js';

/** Letters of a text that the index can find; a shorter one is looked for entry by entry. */
const termLength = 3;
/** Terms of a text that are asked for: more hardly narrow it down. */
const mostAsked = 32;
const longestWord = 64;

/** Letters at which the index would end a term, and letters that stand for them there. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII but letters in lower case and digits
const breaking = /[\x00-\x2f\x3a-\x60\x7b-\x7f]/g;
const standIn = 0xe000;

type Texts = Pick<LogRow, 'message' | 'code' | 'details'>;

/** The words of a text, each once, without the difference of upper and lower case. */
export function wordsOf(text: string): string[] {
  return [...new Set(fold(text).match(/[\p{L}\p{M}\p{N}_]+/gu))];
}

/** The terms of an entry, with blanks between them, and how many they are. */
export function termsOf({ accountId, deviceId, tags, ...row }: LogRow): { terms: string; count: number } {
  const terms = new Set([accountTerm(accountId), deviceTerm(deviceId)]);
  for (const text of textsOf(row)) {
    for (const word of wordsOf(text)) terms.add(wordTerm(word));
    for (const part of partsOf(text)) terms.add(part);
  }
  for (const tag of JSON.parse(tags) as string[]) for (const word of wordsOf(tag)) terms.add(wordTerm(word));
  return { terms: [...terms].join(' '), count: terms.size };
}

/** The texts in which GET looks for a text (decisions 7). */
export function textsOf({ message, code, details }: Texts): string[] {
  return [message, code, details].filter((text) => text !== null);
}

export function accountTerm(accountId: string): string {
  return `a${plain(accountId)}`;
}

export function deviceTerm(deviceId: string): string {
  return `d${plain(deviceId)}`;
}

export function wordTerm(word: string): string {
  return `w${plain(word.slice(0, longestWord))}`;
}

/** The terms of every text that contains this one; none for a text of fewer than three letters. */
export function partTerms(text: string): string[] {
  return [...new Set(partsOf(text))].slice(0, mostAsked);
}

/** A question to the index: entries with one term of each of these lists. */
export function indexQuery(lists: readonly (readonly string[])[]): string {
  return lists.map((terms) => `(${terms.map((term) => `"${term}"`).join(' OR ')})`).join(' AND ');
}

function* partsOf(text: string): Generator<string> {
  const letters = plain(fold(text));
  for (let at = 0; at + termLength <= letters.length; at += 1) yield `t${letters.slice(at, at + termLength)}`;
}

function plain(text: string): string {
  return text.replace(breaking, (letter) => String.fromCharCode(standIn + letter.charCodeAt(0)));
}
