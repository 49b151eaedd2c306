/** How entities are stored: one row of their table. What a device says of its connections is in a second one. */
import type { Kysely } from 'kysely';
import type { Db, Tx } from './index.ts';
import { insertMany } from './many.ts';
import { insertDevices, notePresence, splitDevice } from './presence.ts';
import type { Common } from './records/columns.ts';
import type { EntityTable, Row, Tables } from './records.ts';
import { rowsOf } from './statement.ts';
import { wholeById } from './whole-device.ts';

/** Any entity table, seen through the columns they share, so that one statement serves them all. */
export function shared(db: Db): Kysely<{ entity: Common }> {
  return db as unknown as Kysely<{ entity: Common }>;
}

export function named(table: EntityTable): 'entity' {
  return table as unknown as 'entity';
}

/** The entity, live or in the trash. */
export async function findEntity<T extends EntityTable>(db: Db, table: T, id: string): Promise<Row<T> | undefined> {
  const [row] = await rowsOf<Row<T>>(db, wholeById(table), [id]);
  return row;
}

/** @throws the error of SQLite when a unique index refuses the row. */
export async function insertEntity<T extends EntityTable>(tx: Tx, table: T, row: Row<T>): Promise<void> {
  if (table === 'devices') await insertDevices(tx, [row as Row<'devices'>]);
  else await insertMany(tx, table, [row as Tables[T]]);
}

/** Which row is changed: one that is live or in the trash, of this version where it says one. */
export interface Changed {
  id: string;
  state: 'live' | 'trashed';
  version: number | undefined;
}

/** Changes one row, and returns it; undefined if there is none of this state and version. The version grows unless it is given. */
export async function updateEntity<T extends EntityTable>(
  tx: Db,
  table: T,
  { id, state, version }: Changed,
  values: Partial<Common>,
): Promise<Row<T> | undefined> {
  const split = table === 'devices' ? splitDevice(values) : undefined;
  let update = shared(tx)
    .updateTable(named(table))
    .set((eb) => ({ ...(split?.own ?? values), version: values.version ?? eb('version', '+', 1) }))
    .where('id', '=', id)
    .where('deleted', state === 'live' ? 'is' : 'is not', null);
  if (version !== undefined) update = update.where('version', '=', version);
  const row = await update.returningAll().executeTakeFirst();
  if (!row || !split) return row as unknown as Row<T> | undefined;
  await notePresence(tx, [{ id, presence: split.presence }]);
  return findEntity(tx, table, id);
}
