/**
 * The rows of a page, read a few at a time as they are taken: a page of 1,000 entities may hold 64 MiB. Rights are checked
 * again before each slice.
 */

import type { Registry } from '../../db/registry/index.js';
import { type EntityTable, type Row, wholeOf } from '../../db/registry/records.js';
import { Slices } from '../../db/sqlite/slices.js';
import type { Access, Caller } from '../access.js';
import { PlatformError } from '../errors.js';
import { type FairQueue, laneOf } from '../limits/fair-queue.js';
import type { LongReads } from '../threads/long-reads.js';
import { currentCaller, type OpenSessions } from './current-caller.js';
import { isReached, named, shared } from './verbs.js';

/** Bytes of field values in a slice, and rows. One row may have more. */
const sliceBytes = 64 * 1024;
const sliceRows = 50;
/** Places of rows whose finding takes as long as reading and showing one. */
export const placesOfRow = 20;
/** Rows of a page that are read together by their keys: those of jobs may have 64 KiB each. */
const rowsByKey = 20;

export type ListServices = {
  registry: Pick<Registry, 'query'>;
  access: Access;
  sessions: OpenSessions;
  /** Reading and showing long pages takes turns here. */
  reads: FairQueue;
  /** Finds rows where the event loop would be held. */
  longReads: LongReads;
  /** An account makes one of the counts that are kept at a time. */
  firstCounts: FairQueue;
  /** Long answers that are being sent. */
  longAnswers: FairQueue;
};

/** Where a row of a page is found, and how many bytes its field values have. */
export interface RowPlace {
  id: string;
  bytes: number;
}

/** Some rows of a page, in its order, and the caller as it was when they were read. */
export interface RowSlice<T extends EntityTable> {
  caller: Caller;
  rows: Row<T>[];
  /** Does work on it when it is the caller's turn. */
  inTurn<R>(work: () => Promise<R>): Promise<R>;
}

/** Which rows: `count` of them, whose places `find` finds when the answer begins. */
export interface RowsWanted<T extends EntityTable> {
  table: T;
  state: 'live' | 'trash';
  count: number;
  find(): Promise<RowPlace[]>;
}

/**
 * The rows that are wanted, in the order of their places. Rows that have gone meanwhile, or out of the caller's reach, are
 * left out.
 * @throws PlatformError 401/31 when the caller has lost its session or its role since it began; 429 when too many long
 * answers wait.
 */
export async function* readSlices<T extends EntityTable>(
  services: ListServices,
  caller: Caller,
  { table, state, count, find }: RowsWanted<T>,
): AsyncGenerator<RowSlice<T>> {
  const enter = () => services.longAnswers.enter(laneOf(caller), 1);
  // The places of a thousand rows take 100 KB: an answer that waits for its turn must not hold them.
  let leave = count > sliceRows ? await enter() : undefined;
  try {
    const places = await find();
    if (!leave && nextIds(places, 0).length < places.length) leave = await enter();
    for (let from = 0; from < places.length; ) {
      const ids = nextIds(places, from);
      const current = leave ? currentCaller(services, caller) : caller;
      if (current?.kind !== caller.kind) throw new PlatformError('tokenInvalid');
      from += ids.length;
      const inTurn = <R>(work: () => Promise<R>) => services.reads.run(laneOf(caller), ids.length, work);
      const rows = await inTurn(() => readRows(services, current, table, state, ids));
      yield { caller: current, rows, inTurn };
    }
  } finally {
    leave?.();
  }
}

/**
 * The rows of a page by their keys, some at a time when it is the caller's turn; `read` may answer in any order. Rows that have gone meanwhile are left out.
 * @throws PlatformError 401/31 when the caller has lost its session or its role since it began.
 */
export async function* readByKeys<K, R, W>(
  services: Pick<ListServices, 'access' | 'sessions' | 'reads'>,
  caller: Caller,
  keys: readonly K[],
  { keyOf, read, show }: { keyOf(row: R): K; read(some: K[]): Promise<R[]>; show(row: R): W },
): AsyncGenerator<W> {
  const slices = new Slices();
  for (let from = 0; from < keys.length; from += rowsByKey) {
    if (from > 0 && currentCaller(services, caller)?.kind !== caller.kind) throw new PlatformError('tokenInvalid');
    const some = keys.slice(from, from + rowsByKey);
    const found = await services.reads.run(laneOf(caller), some.length, () => read(some));
    const rows = new Map(found.map((row) => [keyOf(row), row]));
    for (const key of some) {
      const row = rows.get(key);
      if (row) yield show(row);
      await slices.step();
    }
  }
}

/** A page that has been read whole, as slices. */
export async function* oneSlice<T extends EntityTable>(caller: Caller, rows: Row<T>[]): AsyncGenerator<RowSlice<T>> {
  yield { caller, rows, inTurn: (work) => work() };
}

/** Shows each row as `prepare` says, which is called once for each slice. No step is longer than one row. */
export async function* showSlices<T extends EntityTable, W>(
  slices: AsyncIterable<RowSlice<T>>,
  prepare: (caller: Caller, rows: Row<T>[]) => ((row: Row<T>) => W) | Promise<(row: Row<T>) => W>,
): AsyncGenerator<W> {
  const turns = new Slices();
  for await (const { caller, rows, inTurn } of slices) {
    // All of a slice in one turn: the reader of the rows may be slow, and must not keep the turn.
    const shown: W[] = [];
    await inTurn(async () => {
      turns.begin();
      const show = await prepare(caller, rows);
      for (const row of rows) {
        shown.push(show(row));
        await turns.step();
      }
    });
    yield* shown;
  }
}

function nextIds(places: readonly RowPlace[], from: number): string[] {
  const ids: string[] = [];
  let bytes = 0;
  for (const place of places.slice(from, from + sliceRows)) {
    bytes += place.bytes;
    if (ids.length > 0 && bytes > sliceBytes) break;
    ids.push(place.id);
  }
  return ids;
}

async function readRows<T extends EntityTable>(
  { registry, access }: ListServices,
  caller: Caller,
  table: T,
  state: 'live' | 'trash',
  ids: string[],
): Promise<Row<T>[]> {
  const found = await shared(registry.query)
    .selectFrom(named(wholeOf(table)))
    .selectAll()
    .where('id', 'in', ids)
    .where('deleted', state === 'live' ? 'is' : 'is not', null)
    .execute();
  const rows = new Map(found.map((row) => [row.id, row as unknown as Row<T>]));
  return ids.flatMap((id) => {
    const row = rows.get(id);
    return row && isReached(access, caller, table, row) ? row : [];
  });
}
