/**
 * Texts that contain a text, ignoring case: one folding for all letters, and indexes of the serial numbers, the names and the
 * other fields of devices.
 * Their words are the parts of one, two and three characters of each, behind the account's key.
 */
import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { fold } from '../sqlite/fold.ts';

/** Characters of the longest words. */
const longest = 3;
/** Words that rows are looked up by; the whole text decides. */
const maxWords = 32;

/** Whether a column contains a text, looked at row by row; null contains nothing. */
export function contains(column: string | RawBuilder<unknown>, text: string): Expression<SqlBool> {
  return sql<SqlBool>`instr(${folded(typeof column === 'string' ? sql.ref(column) : column)}, ${fold(text)}) > 0`;
}

/** As contains; where a text has stars, a whole value must be like it, and each star stands for any text. */
export function isLike(column: string, pattern: string): Expression<SqlBool> {
  if (!pattern.includes('*')) return contains(column, pattern);
  const like = fold(pattern)
    .replace(/[%_\\]/g, '\\$&')
    .replaceAll('*', '%');
  return sql<SqlBool>`${folded(sql.ref(column))} like ${like} escape '\\'`;
}

/** The longest text between the stars of a pattern: what is like it contains this. */
export function literalOf(pattern: string): string {
  return pattern.split('*').reduce((longest, part) => (part.length > longest.length ? part : longest), '');
}

/** A value as `fold` has it. ASCII, where SQLite's own lower() does the same, is spared the way into JavaScript. */
export function folded(value: RawBuilder<unknown>): RawBuilder<string> {
  return sql`case when octet_length(${value}) > length(${value}) then fold(${value}) else lower(${value}) end`;
}

/**
 * The rows of an account's live devices whose serial number, name, or another field may contain a text that is not empty: all that do, and
 * few others.
 */
export function rowsWithText(
  account: string,
  text: string,
  what: 'serialNumber' | 'name' | 'fields' = 'serialNumber',
): RawBuilder<{ row: number }> {
  const characters = [...fold(text)];
  const wordLength = Math.min(longest, characters.length);
  const words = new Set<string>();
  for (let n = 0; n + wordLength <= characters.length && words.size < maxWords; n += 1)
    words.add(
      `"${account}${characters
        .slice(n, n + wordLength)
        .join('')
        .replaceAll('"', '""')}"`,
    );
  const index = sql.table(`devices_${what}_text`);
  return sql`select rowid as "row" from ${index} where ${index} match ${[...words].join(' AND ')}`;
}

/** Whether a text is one word of the index, which then has all rows that contain it, and no others. */
export function isWord(text: string): boolean {
  const { length } = [...fold(text)];
  return length > 0 && length <= longest;
}

/** How many live devices of an account contain a text that is a word: one row, or none for none. */
export function countOfWord(account: string, word: string): RawBuilder<{ count: number }> {
  return sql`select "doc" as "count" from "devices_serialNumber_terms" where "term" = ${account + fold(word)}`;
}
