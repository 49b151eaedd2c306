/** Texts that contain a text, ignoring case: one folding for all letters, and an index of the columns that need one. */

import { type Expression, type Kysely, type RawBuilder, type SqlBool, sql } from 'kysely';
import { isStoreFull, transact } from '../sqlite/dialect.js';
import { fold } from '../sqlite/fold.js';
import { accountKey } from './account-key.js';
import type { Tables } from './records.js';

/** The columns of devices that have an index of their text. */
export type TextColumn = 'serialNumber' | 'firmwareVersion';

/** Up to so many matches are read one by one. */
const maxMatchesReadOneByOne = 5000;
/** Up to so many places of a text are counted at each request. */
const maxPlacesCountedPerRequest = 50_000;
/** A text in more places is found faster by reading the rows themselves. */
const maxIndexPlaces = 100_000;
/** Texts of an account whose counts are kept; with the next one all of them start again. */
const maxKeptTexts = 64;

/** Appended to a text in the index, so that its last letters begin a trigram too. No text contains it. */
const padding = '\u0001';
/** Characters that the index pads with, or that its tokenizer replaces. */
const unindexed = new RegExp(`[${padding}\uFFFD-\uFFFF]`);
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
 * The rows of devices, of all accounts, whose column contains a text; a row may come more than once. Undefined when there
 * are more than `limit`, or when the index cannot tell.
 */
export async function rowsInTextIndex(
  db: Kysely<Tables>,
  column: TextColumn,
  text: string,
  limit = maxIndexPlaces,
): Promise<RawBuilder<{ row: number }> | undefined> {
  const places = placesOf(column, fold(text));
  return places && (await countPlaces(db, places, limit)) <= limit ? places : undefined;
}

/** Where the index has a folded text, if it can tell. */
function placesOf(column: TextColumn, folded: string): RawBuilder<{ row: number }> | undefined {
  if (folded === '' || unindexed.test(folded)) return undefined;
  const index = sql.table(`devices_${column}_text`);
  if ([...folded].length >= 3)
    return sql`select rowid as "row" from ${index} where ${index} match ${`"${folded.replaceAll('"', '""')}"`}`;
  // Shorter than a term: all terms that begin with it.
  const terms = sql.table(`devices_${column}_terms`);
  return sql`select "doc" as "row" from ${terms} where "term" >= ${folded} and "term" < ${folded + after}`;
}

/**
 * How many live devices of an account contain a text in a column. What is found too often to be counted at each request is
 * counted once, and from then on kept by triggers. Undefined when at most 5,000 contain it: those are read one by one.
 */
export async function countContaining(
  db: Kysely<Tables>,
  accountId: string,
  column: TextColumn,
  text: string,
): Promise<number | undefined> {
  const pattern = fold(text);
  const kept = await keptCount(db, accountId, column, pattern);
  if (kept !== undefined) return kept;
  const places = placesOf(column, pattern);
  const found = places ? await countPlaces(db, places, maxPlacesCountedPerRequest) : Number.POSITIVE_INFINITY;
  if (places && found <= maxPlacesCountedPerRequest && (await isOnlyAccount(db, accountId)))
    return countRows(db, places);
  if (found <= maxMatchesReadOneByOne) return undefined;
  try {
    return await transact(db, (tx) => keepCount(tx, accountId, column, pattern));
  } catch (error) {
    // A full disk keeps nothing, and must not keep anybody from reading.
    if (isStoreFull(error)) return undefined;
    throw error;
  }
}

async function keptCount(db: Kysely<Tables>, accountId: string, column: TextColumn, pattern: string) {
  const kept = await db
    .selectFrom('deviceTextCounts')
    .select('count')
    .where('accountId', '=', accountId)
    .where('column', '=', column)
    .where('pattern', '=', pattern)
    .executeTakeFirst();
  return kept?.count;
}

/** Counts in the transaction that begins to keep the count, so that no change falls between the two. */
async function keepCount(tx: Kysely<Tables>, accountId: string, column: TextColumn, pattern: string): Promise<number> {
  const kept = await keptCount(tx, accountId, column, pattern);
  if (kept !== undefined) return kept;
  const all = tx.selectFrom('deviceTextCounts').where('accountId', '=', accountId);
  const { texts } = await all.select((eb) => eb.fn.countAll<number>().as('texts')).executeTakeFirstOrThrow();
  if (texts >= maxKeptTexts) await tx.deleteFrom('deviceTextCounts').where('accountId', '=', accountId).execute();
  // In the order in which they were made, which is that of the file.
  const { rows } = await sql<{ count: number }>`
    select count(*) as "count" from "devices" indexed by "devices_by_created"
    where substr("accountId", 27) = ${accountKey(accountId)} and "deleted" is null
      and ${contains(column, pattern)}`.execute(tx);
  const count = rows[0]?.count ?? 0;
  await tx.insertInto('deviceTextCounts').values({ accountId, column, pattern, count }).execute();
  return count;
}

/** How many places there are, `limit` and one at most. */
async function countPlaces(db: Kysely<Tables>, places: RawBuilder<{ row: number }>, limit: number): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*) as "count" from (${places} limit ${limit + 1})`.execute(db);
  return rows[0]?.count ?? 0;
}

async function countRows(db: Kysely<Tables>, places: RawBuilder<{ row: number }>): Promise<number> {
  const { rows } = await sql<{ count: number }>`select count(distinct "row") as "count" from (${places})`.execute(db);
  return rows[0]?.count ?? 0;
}

/** The index knows nothing of accounts: its own count is the answer where no other account has devices. */
async function isOnlyAccount(db: Kysely<Tables>, accountId: string): Promise<boolean> {
  const others = db.selectFrom('deviceCounts').select('accountId').where('accountId', '!=', accountId);
  return (await others.limit(1).executeTakeFirst()) === undefined;
}
