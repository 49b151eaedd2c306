/** Texts that contain a text, ignoring case: one folding for all letters, and an index of the columns that need one. */

import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { fold } from '../sqlite/fold.ts';

/** The columns of devices that have an index of their text. */
export type TextColumn = 'serialNumber' | 'firmwareVersion';

/** Appended to a text in the index, so that its last letters begin a trigram too. No text contains it. */
const padding = '\u0001';
/** Characters that the index pads with, or that its tokenizer replaces. */
const unindexed = new RegExp(`[${padding}\uFFFD-\uFFFF]`);
/** Characters of a text that the index is asked for: each is looked up, so a long one takes long. No column has more, folded. */
const maxIndexed = 3 * 255;
/** Follows every term that begins with what is before it. */
const after = '\u{10FFFF}'.repeat(3);

/** Whether a column contains a text, looked at row by row; null contains nothing. */
export function contains(column: string, text: string): Expression<SqlBool> {
  const value = sql.ref(column);
  // ASCII, where SQLite's own lower() does the same, is spared the way into JavaScript.
  const folded = sql`case when octet_length(${value}) > length(${value}) then fold(${value}) else lower(${value}) end`;
  return sql<SqlBool>`instr(${folded}, ${fold(text)}) > 0`;
}

/**
 * The rows of devices, of all accounts, whose column contains a text; a row may come more than once. Undefined when the index
 * cannot tell.
 */
export function rowsWithText(column: TextColumn, text: string): RawBuilder<{ row: number }> | undefined {
  const folded = fold(text);
  if (folded === '' || folded.length > maxIndexed || unindexed.test(folded)) return undefined;
  const index = sql.table(`devices_${column}_text`);
  if ([...folded].length >= 3)
    return sql`select rowid as "row" from ${index} where ${index} match ${`"${folded.replaceAll('"', '""')}"`}`;
  // Shorter than a term: all terms that begin with it.
  const terms = sql.table(`devices_${column}_terms`);
  return sql`select "doc" as "row" from ${terms} where "term" >= ${folded} and "term" < ${folded + after}`;
}
