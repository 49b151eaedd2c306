/** Adds to an entity what a query asks for: parents by `expand`, counts of children by `count`. */

import { sql } from 'kysely';
import { named, shared } from '../../db/registry/entities.ts';
import type { Db } from '../../db/registry/index.ts';
import type { EntityTable, Row } from '../../db/registry/records.ts';
import { invalid } from '../core/errors.ts';

/** The names in a comma-separated `expand` or `count`. @throws PlatformError 400 with 106 for an unknown one. */
export function readNames<N extends string>(path: string, value: string | undefined, known: readonly N[]): Set<N> {
  const names = new Set<N>();
  for (const name of (value ?? '').split(',')) {
    const trimmed = name.trim();
    if (trimmed === '') continue;
    if (!(known as readonly string[]).includes(trimmed)) throw invalid(path, `must be among ${known.join(', ')}`);
    names.add(trimmed as N);
  }
  return names;
}

/** The rows that `column` of a page of children names, live or in the trash, by id: what `expand` puts next to them. */
export async function parentsOf<T extends EntityTable, C extends string>(
  db: Db,
  table: T,
  children: ReadonlyArray<Record<C, string | null>>,
  column: C,
): Promise<Map<string, Row<T>>> {
  const wanted = [...new Set(children.map((child) => child[column]))].filter((id) => id !== null);
  if (wanted.length === 0) return new Map();
  const rows = await shared(db).selectFrom(named(table)).selectAll().where('id', 'in', wanted).execute();
  return new Map(rows.map((row) => [row.id, row as unknown as Row<T>]));
}

/** How many live rows of `table` name each of `ids` in `column`: direct children only. */
export async function childCounts<T extends EntityTable>(
  db: Db,
  table: T,
  column: keyof Row<T> & string,
  ids: readonly string[],
): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const parent = sql.ref<string>(column);
  const rows = await children(db, table)
    .select((eb) => [parent.as('parent'), eb.fn.countAll<number>().as('count')])
    .where(parent, 'in', [...ids])
    .groupBy(parent)
    .execute();
  return new Map(rows.map((row) => [row.parent, Number(row.count)]));
}

/** Whether a live row of `table` names `id` in `column`. */
export async function hasChildren(db: Db, table: EntityTable, column: string, id: string): Promise<boolean> {
  const one = children(db, table).select('id').where(sql.ref<string>(column), '=', id).limit(1);
  return (await one.executeTakeFirst()) !== undefined;
}

function children(db: Db, table: EntityTable) {
  return shared(db).selectFrom(named(table)).where('deleted', 'is', null);
}
