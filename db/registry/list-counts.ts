/**
 * Counts of lists that are expensive to count. The first request counts the devices, some at a time; from then on triggers
 * keep the count. docs/decisions/006-partial-match-and-kept-counts.md
 */
import { type Expression, type Kysely, type RawBuilder, type SqlBool, sql } from 'kysely';
import { transact } from '../sqlite/dialect.ts';
import { accountKey } from './account-key.ts';
import type { Tables } from './records.ts';

/** Counts of an account that are kept; the next one takes the place of one of them. */
export const maxKept = 64;
/** Devices that are counted in one transaction. */
export const countedAtOnce = 5000;
/** After every date. */
const complete = '~';

type Names = 'serialNumber' | 'firmwareVersion' | 'deviceTemplateId' | 'organizationId' | 'provisioningState';
/** What a list asks for: texts are folded, '' is outside of every organization. */
export type Question = Partial<Record<Names, string> & { connected: 0 | 1 }>;

/** The count that is kept for a question, if it is. */
export async function keptCount(
  db: Kysely<Tables>,
  accountId: string,
  question: Question,
): Promise<number | undefined> {
  const kept = await rowOf(db, accountId, question);
  return kept?.through === complete ? kept.count : undefined;
}

/**
 * Counts the live devices of an account that match, `inTurn` some at a time, and keeps the count. `among` has all of them
 * where they are few enough to be counted in one step. An account has one at a time: a second one could take its place.
 */
export async function countAndKeep(
  db: Kysely<Tables>,
  { accountId, question, matches, among }: Counting,
  inTurn: (work: () => Promise<number | undefined>) => Promise<number | undefined>,
): Promise<number> {
  for (;;) {
    const step = () => transact(db, (tx) => countOn(tx, { accountId, question, matches, among }));
    const count = await inTurn(step);
    if (count !== undefined) return count;
  }
}

interface Counting {
  accountId: string;
  question: Question;
  matches: Expression<SqlBool>;
  among: RawBuilder<{ row: number }> | undefined;
}

/** One step; what changes between two is counted by the triggers. Returns the count after the last one. */
async function countOn(tx: Kysely<Tables>, { accountId, question, matches, among }: Counting) {
  const kept = (await rowOf(tx, accountId, question)) ?? (await begin(tx, accountId, question));
  if (kept.through === complete) return kept.count;
  const ofAccount = sql<SqlBool>`substr("accountId", 27) = ${accountKey(accountId)} and "deleted" is null`;
  const one = async <R>(query: RawBuilder<R>) => (await query.execute(tx)).rows[0];
  const next = among
    ? undefined
    : await one(sql<{ created: string }>`
        select "created" from "devices" indexed by "devices_by_created"
        where ${ofAccount} and "created" > ${kept.through} order by "created" limit 1 offset ${countedAtOnce - 1}`);
  const through = next?.created ?? complete;
  const found = await one(
    among
      ? sql<{ count: number }>`
          select count(*) as "count" from "devices" where ${ofAccount} and ${matches} and "row" in (${among})`
      : sql<{ count: number }>`
          select count(*) as "count" from "devices" indexed by "devices_by_created"
          where ${ofAccount} and "created" > ${kept.through} and "created" <= ${through} and ${matches}`,
  );
  const count = (among ? 0 : kept.count) + (found?.count ?? 0);
  await tx
    .updateTable('deviceListCounts')
    .set({ through, count })
    .where('accountId', '=', accountId)
    .where('question', '=', keyOf(question))
    .execute();
  return through === complete ? count : undefined;
}

/** A row of which nothing is counted yet. */
async function begin(tx: Kysely<Tables>, accountId: string, question: Question) {
  const kept = tx.selectFrom('deviceListCounts').where('accountId', '=', accountId);
  const { rows } = await kept.select((eb) => eb.fn.countAll<number>().as('rows')).executeTakeFirstOrThrow();
  // By chance: of more lists than are kept, asked for in turn, the oldest would always be the next.
  if (rows >= maxKept)
    await tx
      .deleteFrom('deviceListCounts')
      .where('accountId', '=', accountId)
      .where('question', '=', kept.select('question').orderBy(sql`random()`).limit(1))
      .execute();
  const row = { accountId, question: keyOf(question), ...question, through: '', count: 0 };
  await tx
    .insertInto('deviceListCounts')
    .values({ ...unasked, ...row })
    .execute();
  return row;
}

const unasked = {
  serialNumber: null,
  firmwareVersion: null,
  deviceTemplateId: null,
  organizationId: null,
  provisioningState: null,
  connected: null,
};

function rowOf(db: Kysely<Tables>, accountId: string, question: Question) {
  return db
    .selectFrom('deviceListCounts')
    .select(['through', 'count'])
    .where('accountId', '=', accountId)
    .where('question', '=', keyOf(question))
    .executeTakeFirst();
}

function keyOf(question: Question): string {
  return JSON.stringify(Object.entries(question).sort(([a], [b]) => (a < b ? -1 : 1)));
}
