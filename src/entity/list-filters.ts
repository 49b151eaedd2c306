/** What a list matches as conditions of SQL: its filters, and the reach of its caller. */
import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import type { Db } from '../../db/registry/index.ts';
import type { Match } from '../../db/registry/records/columns.ts';
import type { EntityTable } from '../../db/registry/records.ts';
import { isLike } from '../../db/registry/text.ts';
import { parseDate } from '../../db/sqlite/dates.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { invalid } from '../core/errors.ts';
import { degreesText } from '../core/formats/numbers.ts';
import { type AskedList, matchesOf } from './list-query.ts';

/** The filters that are asked for; the trash has none. */
export function filtersOf<T extends EntityTable>({ listing, query, state }: AskedList<T>): [name: string, Match][] {
  return state === 'trash' ? [] : matchesOf(listing).filter(([name]) => query[name] !== undefined);
}

/** What rows must be to be listed, besides what an expression says. @throws PlatformError 400/106 for a filter value that can be none. */
export function conditionsOf<T extends EntityTable>(db: Db, asked: AskedList<T>): Expression<SqlBool>[] {
  const { caller, listing, query, state } = asked;
  const { within = {}, before = {}, reach } = listing;
  return [
    sql<SqlBool>`"accountId" = ${caller.accountId}`,
    state === 'live' ? sql<SqlBool>`"deleted" is null` : sql<SqlBool>`"deleted" is not null`,
    ...(isAccountWide(caller) ? [] : [inReach(db, caller, reach)]),
    ...Object.entries(within).map(([column, value]) => condition(column, 'exact', value)),
    ...Object.entries<string>(before).flatMap(([name, column]) =>
      query[name] === undefined ? [] : [sql<SqlBool>`${sql.ref(column)} < ${instant(name, query[name])}`],
    ),
    ...filtersOf(asked).map(([name, match]) => condition(name, match, query[name])),
  ];
}

/** Whether a column, or an id, is of a place in the reach of a caller that does not reach everything: at or below its organizations. */
export function inReach(db: Db, caller: Caller, reach: string | RawBuilder<unknown> | undefined): Expression<SqlBool> {
  const roots = caller.kind === 'endUser' ? caller.organizationIds : [];
  return reach === undefined ? sql<SqlBool>`1 = 0` : atOrBelow(db, roots, reach);
}

/** Whether the live organization that a column names, or an id, is one of `roots` or below one. */
export function atOrBelow(db: Db, roots: readonly string[], place: string | RawBuilder<unknown>): Expression<SqlBool> {
  if (roots.length === 0) return sql<SqlBool>`1 = 0`;
  const subtree = db
    .withRecursive('reach', (qc) =>
      qc
        .selectFrom('organizations')
        .select('id')
        .where('id', 'in', [...roots])
        .where('deleted', 'is', null)
        .union(
          qc
            .selectFrom('organizations')
            .innerJoin('reach', 'reach.id', 'organizations.parentId')
            .select('organizations.id')
            .where('organizations.deleted', 'is', null),
        ),
    )
    .selectFrom('reach')
    .select('id');
  return sql<SqlBool>`${typeof place === 'string' ? sql.ref(place) : place} in (${subtree})`;
}

/** SQLite compares texts by their bytes, and none has larger ones. */
const lastCharacter = '\u{10FFFF}';

/** @throws PlatformError 400/106 naming the column for a value that can be none. */
export function condition(column: string, match: Match, value: unknown): Expression<SqlBool> {
  const reference = sql.ref(column);
  const text = String(value);
  switch (match) {
    case 'flag':
      return sql<SqlBool>`${reference} = ${value === true ? 1 : 0}`;
    case 'partial':
      return isLike(column, text);
    case 'beginning':
      return sql<SqlBool>`${reference} >= ${text} and ${reference} < ${text + lastCharacter}`;
    case 'reference':
      return text === 'null' ? sql<SqlBool>`${reference} is null` : sql<SqlBool>`${reference} = ${text}`;
    case 'latitude':
    case 'longitude': {
      const degrees = degreesText(text, match === 'latitude' ? 90 : 180);
      if (degrees === undefined) throw invalid(column, 'must be a number in range');
      return sql<SqlBool>`${reference} = ${degrees}`;
    }
    case 'date':
      return sql<SqlBool>`${reference} = ${instant(column, value)}`;
    case 'since':
      return sql<SqlBool>`${reference} >= ${instant(column, value)}`;
    case 'exact':
      return sql<SqlBool>`${reference} = ${text}`;
  }
}

function instant(name: string, value: unknown): string {
  const time = parseDate(String(value));
  if (time === undefined) throw invalid(name, 'must be an ISO 8601 date');
  return new Date(time).toISOString();
}
