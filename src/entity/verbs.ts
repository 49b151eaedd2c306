/** Operations on any entity: stamp, find, change, trash, recover. A resource calls these; they call no resource. */

import { findEntity, insertEntity, updateEntity } from '../../db/registry/entities.ts';
import type { Registry } from '../../db/registry/index.ts';
import { type Db, isUniqueViolation, type Tx } from '../../db/registry/index.ts';
import type { Common } from '../../db/registry/records/columns.ts';
import type { EntityTable, Row } from '../../db/registry/records.ts';
import { type Access, placeOf } from '../core/access.ts';
import type { Caller } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import { PlatformError, unknownReference } from '../core/errors.ts';
import { newId } from '../core/ids.ts';
import { noteMade } from './kept-answers.ts';
import { demandStanding, reachesNow } from './standing.ts';

/** How long a deleted entity can be recovered, in milliseconds. */
export const recoveryWindow = 30 * 24 * 60 * 60 * 1000;

/** The system fields of a new entity of the caller's account. */
export function stamp(clock: Clock, caller: Pick<Caller, 'id' | 'accountId'>): Common {
  const now = timestamp(clock);
  return {
    id: newId(caller.accountId),
    accountId: caller.accountId,
    created: now,
    createdById: caller.id,
    lastModified: now,
    lastModifiedById: caller.id,
    version: 1,
    deleted: null,
  };
}

/** @throws PlatformError 400 with 106 when a unique index refuses the row; `path` is the property to blame. */
export async function insert<T extends EntityTable>(tx: Tx, table: T, row: Row<T>, path = 'name'): Promise<Row<T>> {
  await refuseDuplicates(path, () => insertEntity(tx, table, row));
  await noteMade(tx, row.id);
  return row;
}

/** A live entity of the account. */
export async function findLive<T extends EntityTable>(
  db: Db,
  table: T,
  accountId: string,
  id: string,
): Promise<Row<T> | undefined> {
  const row = await findEntity(db, table, id);
  return row && row.accountId === accountId && row.deleted === null ? row : undefined;
}

/** The live entity of the account that `path` of a body names. @throws PlatformError 400/102 naming `path`. */
export async function demandReference<T extends EntityTable>(
  db: Db,
  table: T,
  accountId: string,
  id: string,
  path: string,
): Promise<Row<T>> {
  const row = await findLive(db, table, accountId, id);
  if (!row) throw unknownReference(path);
  return row;
}

/**
 * The entity, live or in the trash, in the caller's reach. @throws PlatformError 404/100 when it is not there or out of reach,
 * 403/21 when the caller may read it and not do this to it.
 */
export function findReached<T extends EntityTable>(
  { registry, access }: { registry: Registry; access: Access },
  caller: Caller,
  table: T,
  id: string,
): Row<T> {
  const row = registry.entity(table, id);
  if (row && access.reachesRow(caller, table, row)) return row;
  throw new PlatformError(row && access.readsRow(caller, table, row) ? 'forbidden' : 'notFound');
}

/** @throws PlatformError 410 with 107 when the entity is in the trash. */
export function demandLive<R extends { deleted: string | null }>(row: R): R {
  if (row.deleted !== null) throw new PlatformError('deleted');
  return row;
}

/** @throws PlatformError 404 with 100 when the entity is not in the trash. */
export function demandTrashed<R extends { deleted: string | null }>(row: R): R {
  if (row.deleted === null) throw new PlatformError('notFound');
  return row;
}

/** Columns that a caller may set; the verb sets the system fields. */
export type Changes<T extends EntityTable> = Partial<Omit<Row<T>, keyof Common>>;

/** The expected version, or 'latest' where the last write wins (`_set/fields`). */
export type Expected = number | 'latest';

/**
 * Changes a live entity whose version is `expected`, in one statement.
 * @throws PlatformError 404/100, 410/107, 412/108 by what is there instead; 400/106 on uniqueness.
 */
export async function change<T extends EntityTable>(
  tx: Db,
  table: T,
  id: string,
  expected: Expected,
  by: { caller: Pick<Caller, 'id'>; clock: Clock },
  changes: Changes<T>,
): Promise<Row<T>> {
  return write(tx, table, id, expected, 'live', {
    ...changes,
    lastModified: timestamp(by.clock),
    lastModifiedById: by.caller.id,
  });
}

/** Moves a live entity to the trash; its version stays. @throws as change. */
export async function trash<T extends EntityTable>(
  tx: Db,
  table: T,
  id: string,
  expected: number,
  clock: Clock,
): Promise<Row<T>> {
  return write(tx, table, id, expected, 'live', { deleted: timestamp(clock), version: expected });
}

/**
 * Brings an entity back from the trash with a new version.
 * @throws PlatformError 404/100 when it is not in the trash, 410/107 after 30 days, 412/108, 400/106 on uniqueness.
 */
export async function recover<T extends EntityTable>(
  tx: Db,
  table: T,
  id: string,
  expected: number,
  by: { caller: Pick<Caller, 'id'>; clock: Clock },
): Promise<Row<T>> {
  const row = await findEntity(tx, table, id);
  if (!row || row.deleted === null) throw new PlatformError('notFound');
  if (Date.parse(row.deleted) + recoveryWindow < by.clock.now())
    throw new PlatformError('deleted', { message: 'The entity was deleted more than 30 days ago.' });
  return write(tx, table, id, expected, 'trashed', {
    deleted: null,
    lastModified: timestamp(by.clock),
    lastModifiedById: by.caller.id,
  });
}

async function write<T extends EntityTable>(
  tx: Db,
  table: T,
  id: string,
  expected: Expected,
  state: 'live' | 'trashed',
  values: Partial<Common>,
): Promise<Row<T>> {
  const version = expected === 'latest' ? undefined : expected;
  const row = await refuseDuplicates('name', () => updateEntity(tx, table, { id, state, version }, values));
  if (row) return row;
  const latest = await findEntity(tx, table, id);
  if (!latest) throw new PlatformError('notFound');
  if (state === 'live' && latest.deleted !== null) throw new PlatformError('deleted');
  throw staleVersion(latest);
}

function staleVersion(latest: Common): PlatformError {
  return new PlatformError('staleVersion', {
    details: [
      {
        path: 'etag',
        message: 'The entity has been changed since that version.',
        version: formatVersion(latest.version),
        lastModified: latest.lastModified,
        lastModifiedById: latest.lastModifiedById,
      },
    ],
  });
}

async function refuseDuplicates<R>(path: string, work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (!isUniqueViolation(error)) throw error;
    throw new PlatformError('notUnique', { details: [{ path, message: `Another entity already has this ${path}.` }] });
  }
}

/**
 * Runs `work` in one transaction, durable when the promise resolves, if the caller still may do what it does to `entity`.
 * @throws PlatformError 401/31 after a logout, 403/21 without the right, 404/100 for an entity out of reach now.
 */
export function writeAs<R>(
  { registry }: { registry: Pick<Registry, 'transaction'> },
  caller: Caller,
  entity: [table: EntityTable, id: string] | undefined,
  work: (tx: Tx) => Promise<R>,
): Promise<R> {
  return registry.transaction(async (tx) => {
    const now = await demandStanding(tx, caller);
    if (entity && caller.kind === 'endUser') {
      const row = await findEntity(tx, ...entity);
      if (!row || !(await reachesNow(tx, caller, placeOf(entity[0], row), now))) throw new PlatformError('notFound');
    }
    return work(tx);
  });
}

/** For `writeAs`, of many rows: in the thread of long transactions, so that the event loop goes on. */
export function inThread(registry: Pick<Registry, 'longTransaction'>): Parameters<typeof writeAs>[0] {
  return { registry: { transaction: (work) => registry.longTransaction(work) } };
}

/**
 * That the caller may put something into an organization; null is outside of every one.
 * @throws PlatformError 400/102 naming `path` when it is out of the caller's reach now.
 */
export async function demandInto(tx: Tx, caller: Caller, path: string, organizationId: string | null): Promise<void> {
  if (caller.kind === 'endUser' && !(await reachesNow(tx, caller, organizationId))) throw unknownReference(path);
}

/** A version on the wire: lower-case base 36 of the counter. */
export function formatVersion(version: number): string {
  return version.toString(36);
}

/** The counter of a version, or undefined for a text that could never be one. */
export function parseVersion(text: string): number | undefined {
  if (!/^[0-9a-z]{1,12}$/.test(text)) return undefined;
  const version = Number.parseInt(text, 36);
  // A large one cannot be told from its neighbours as a number; no counter gets there.
  return version > Number.MAX_SAFE_INTEGER || formatVersion(version) === text ? version : undefined;
}
