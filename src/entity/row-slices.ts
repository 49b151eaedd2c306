/**
 * The rows of a page, read a few at a time as they are taken: a page of 1,000 entities may hold 64 MiB. Rights are checked
 * again before each slice.
 */

import type { Registry } from '../../db/registry/index.ts';
import type { Access } from '../core/access.ts';
import type { Caller } from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { LongWork } from '../core/scheduler/long-work.ts';
import type { Scheduler } from '../core/scheduler/scheduler.ts';
import type { Readers } from '../core/threads/readers.ts';
import type { Answer, Items, JsonText } from '../http/answers/streamed-list.ts';
import { currentCaller, type OpenSessions } from './current-caller.ts';

/** Bytes of field values in a slice, and rows. One row may have more. */
const sliceBytes = 64 * 1024;
const sliceRows = 50;
/** Bytes whose reading takes as long as that of a row. */
const bytesOfRow = 4096;
export type SliceServices = {
  access: Access;
  sessions: OpenSessions;
  /** Reading and showing pages takes turns here. */
  reads: Scheduler;
};

export type ListServices = SliceServices & {
  registry: Pick<Registry, 'query'>;
  /** Counts and finds rows. */
  readers: Readers;
};

/** Where a row of a page is found, and about how many bytes it has; `parent` is the row that is shown with it. */
export interface RowPlace<K = string> {
  id: K;
  bytes: number;
  parent?: { id: string; bytes: number };
}

/** Some rows of a page, in its order, and the caller as it was when they were read. */
export interface RowSlice<R> {
  caller: Caller;
  rows: R[];
  /** Does work on it when it is the caller's turn. */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
}

export type RowSlices<R> = (answer: Answer) => AsyncIterable<RowSlice<R>>;

/** The rows of a page: at most `count`, whose places `find` finds when the answer begins. */
export interface PageOfRows<K, R> {
  count: number;
  find(): Promise<readonly RowPlace<K>[]>;
  /** Some of the rows, in any order, as far as the caller may see them now; throws when it has lost all of them. */
  read(caller: Caller, ids: K[]): Promise<R[]>;
  idOf(row: R): K;
}

/**
 * The rows of a page in the order of their places, without those that have gone, or out of reach, meanwhile. @throws PlatformError
 * 401/31 when the caller has lost its session or its role, 429 when too many long answers wait.
 */
export function readSlices<K, R>(
  services: SliceServices,
  caller: Caller,
  { count, find, read, idOf }: PageOfRows<K, R>,
): RowSlices<R> {
  return async function* (answer) {
    // The places of a thousand rows take 100 KB: an answer that waits for its turn must not hold them.
    if (count > sliceRows) await answer.takePlace();
    const places = count > 0 ? await find() : [];
    const isLong = count > sliceRows || sliceFrom(places, 0).slice.length < places.length;
    if (isLong) await answer.takePlace();
    for (let from = 0; from < places.length; ) {
      const current = isLong ? currentCaller(services, caller) : caller;
      if (current?.kind !== caller.kind) throw new PlatformError('tokenInvalid');
      const { slice, bytes } = sliceFrom(places, from);
      from += slice.length;
      const cost = Math.max(slice.length, bytes / bytesOfRow);
      const inTurn = <T>(work: () => Promise<T>) => services.reads.run(laneOf(caller), cost, work);
      const ids = slice.map(({ id }) => id);
      const found = await inTurn(() => read(current, ids));
      const rows = new Map(found.map((row) => [idOf(row), row]));
      yield { caller: current, rows: ids.flatMap((id) => rows.get(id) ?? []), inTurn };
    }
  };
}

/** A short page that has been read whole, as slices. */
export function oneSlice<R>(caller: Caller, rows: R[]): RowSlices<R> {
  return async function* () {
    yield { caller, rows, inTurn: (work) => work() };
  };
}

/** Shows each row as `prepare` says, which is called once for each slice. No step is longer than one row. */
export function showSlices<R, W>(
  slices: RowSlices<R>,
  prepare: (caller: Caller, rows: R[]) => ((row: R) => W | JsonText) | Promise<(row: R) => W | JsonText>,
): Items<W> {
  return async function* (answer) {
    const longWork = new LongWork();
    for await (const { caller, rows, inTurn } of slices(answer)) {
      // All of a slice in one turn: the reader of the rows may be slow, and must not keep the turn.
      const shown: Array<W | JsonText> = [];
      await inTurn(async () => {
        longWork.beginSlice();
        const show = await prepare(caller, rows);
        for (const row of rows) {
          shown.push(show(row));
          await longWork.giveWay();
        }
      });
      yield* shown;
    }
  };
}

/** As many places as have room in a slice, and their bytes. What is shown with several of them is read once. */
function sliceFrom<K>(places: readonly RowPlace<K>[], from: number) {
  const slice: RowPlace<K>[] = [];
  const parents = new Set<string>();
  let bytes = 0;
  for (const place of places.slice(from, from + sliceRows)) {
    const { parent } = place;
    const more = place.bytes + (parent && !parents.has(parent.id) ? parent.bytes : 0);
    if (slice.length > 0 && bytes + more > sliceBytes) break;
    if (parent) parents.add(parent.id);
    bytes += more;
    slice.push(place);
  }
  return { slice, bytes };
}
