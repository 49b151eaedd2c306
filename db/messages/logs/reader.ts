/** Reads the log in the reading thread (threads/reader-worker.ts): pages, and searches by index or in order. */
import { join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../../sqlite/open.ts';
import type { LogRow } from '../threads/protocol.ts';
import { type FoundEntry, type IndexedEntry, isWithin, keyOf, queryOf, type Row, scoreOf, sorted } from './matching.ts';
import { LogReach, type SeenFrom } from './reach.ts';
import { type FoundPart, type FoundPlace, type FoundRow, type LogSearch, type LogsFound, maxFound } from './search.ts';

/** Milliseconds after which a search goes with what it has, or gives up: others wait for this thread. */
const usualPatience = 2000;
/** Characters of the entries that are handed over together: a page may have 16 MiB. */
const maxPartLength = 256 * 1024;
/** If more entries than this are not indexed yet, a search reads the log in order instead. */
const maxUnindexed = 50_000;
const ever = Number.NEGATIVE_INFINITY;

export class LogReader {
  readonly #directory: string;
  readonly #patience: number;
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;
  #places: LogReach | undefined;
  #deadline = 0;

  /** Reads the files in `directory`; a search may take `patience` milliseconds. */
  constructor(directory: string, patience = usualPatience) {
    this.#directory = directory;
    this.#patience = patience;
    this.#file = openSqlite(join(directory, 'messages.db'), { readonly: true });
    // Thrown in the middle of a query, it ends it.
    this.#file.function('inTime', () => {
      if (performance.now() > this.#deadline) throw new Overdue();
      return 1;
    });
    this.#statements = prepare(this.#file);
  }

  /** All matches at one moment; entries that are indexed meanwhile would be found twice. */
  search(search: LogSearch): LogsFound {
    return this.#file.transaction(() => this.#search(search))();
  }

  /** The entries at some places, until they have so many characters; those that have gone since are left out. */
  read(places: readonly FoundPlace[]): FoundPart {
    const rows: FoundRow[] = [];
    let characters = 0;
    let taken = 0;
    for (const { sequence, score } of places) {
      if (characters > maxPartLength) break;
      taken += 1;
      const row = this.#statements.row.get(sequence);
      if (!row) continue;
      const { message, code, details, tags, custom } = row;
      for (const text of [message, code, details, tags, custom]) characters += text?.length ?? 0;
      rows.push({ ...withoutSequence(row), score });
    }
    return { rows, rest: places.slice(taken).map(({ sequence, score }) => ({ sequence, score })) };
  }

  close(): void {
    this.#places?.close();
    this.#file.close();
  }

  #search(search: LogSearch): LogsFound {
    this.#deadline = performance.now() + this.#patience;
    const { scope, conditions } = search;
    if (!('accountId' in scope) && conditions.length === 0) return this.#page(scope, search);

    const seenFrom = this.#reachOf(search);
    const accept = (place: IndexedEntry) => this.#accept(search, seenFrom, place);
    const found = this.#searchIndex(search, accept) ?? this.#searchInOrder(search, accept);
    const { offset, limit } = search;
    if (!found.complete && found.places.length < offset + limit) return undefined;
    const places = sorted(found.places, search.sort).slice(offset, offset + limit);
    const maxScore = found.places.reduce((most, { score }) => Math.max(most, score), 0);
    return { ...this.read(places), total: found.places.length, maxScore };
  }

  /** A page of one device's log with all that is in a range: an index counts them. */
  #page(
    { deviceId, from: seenFrom = ever }: Extract<LogSearch['scope'], { from?: number }>,
    { from, to, severities, offset, limit }: LogSearch,
  ): LogsFound {
    const levels = severities.reduce((mask, level) => mask | (1 << level), 0);
    // Of a device that has one owner only, the index alone counts.
    const { count, page } = seenFrom > ever ? this.#statements.seenPage : this.#statements.page;
    const where = { deviceId, from: Math.max(from, seenFrom), to, levels, received: seenFrom };
    const total = count.get(where) ?? 0;
    const sequences = page.all({ ...where, offset, limit });
    return { ...this.read(sequences.map((sequence) => ({ sequence, score: 1 }))), total, maxScore: 1 };
  }

  /** The matches of the index of terms; undefined if it cannot tell, or finds more entries than a search counts. */
  #searchIndex(search: LogSearch, accept: (place: IndexedEntry) => FoundEntry | undefined): Result | undefined {
    const query = queryOf(search);
    if (query === undefined) return undefined;
    const { indexed, last, unindexed } = this.#statements;
    const upTo = indexed.get() ?? 0;
    if ((last.get() ?? 0) - upTo > maxUnindexed) return undefined;
    const sequences = this.#matching(query);
    if (!sequences || (sequences.length > maxFound && search.sort !== 'score')) return undefined;
    const places: FoundEntry[] = [];
    const take = (row: Row | undefined) => {
      const place = row && isWithin(search, row) ? accept(row) : undefined;
      if (place) places.push(place);
      // Not in the requested order: some of them do not match.
      return places.length <= maxFound && performance.now() <= this.#deadline;
    };
    for (const row of unindexed.iterate(upTo)) if (!take(row)) break;
    for (const sequence of sequences) if (!take(this.#statements.row.get(sequence))) break;
    if (performance.now() > this.#deadline) return { places: [], complete: false };
    if (places.length <= maxFound) return { places, complete: true };
    return search.sort === 'score' ? { places: places.slice(0, maxFound), complete: true } : undefined;
  }

  /** The last entries that have the terms; undefined when the index is damaged, and the log is read without it. */
  #matching(query: string): number[] | undefined {
    const terms = 'SELECT rowid FROM "logsText" WHERE "logsText" MATCH ? ORDER BY rowid DESC LIMIT ?';
    try {
      return this.#file
        .prepare<[string, number], number>(terms)
        .pluck()
        .all(query, maxFound + 1);
    } catch {
      return undefined;
    }
  }

  /** Reads the log in the order that is asked for, until 10,000 entries are found or time is up. */
  #searchInOrder(search: LogSearch, accept: (place: IndexedEntry) => FoundEntry | undefined): Result {
    const places: FoundEntry[] = [];
    try {
      for (const row of this.#inOrder(search)) {
        const place = accept(row);
        if (place) places.push(place);
        if (places.length >= maxFound) break;
      }
    } catch (error) {
      if (!(error instanceof Overdue)) throw error;
      return { places, complete: false };
    }
    return { places, complete: true };
  }

  #inOrder({ scope, from, to, severities, conditions, sort }: LogSearch): IterableIterator<IndexedEntry | Row> {
    const order = sort === 'oldest' ? 'oldest' : 'newest';
    const what = conditions.length > 0 || typeof sort === 'object' ? 'rows' : 'places';
    const where = { from, to, levels: severities.reduce((mask, level) => mask | (1 << level), 0) };
    const { ofDevice, ofDevices, ofAccount } = this.#statements;
    const { deviceId } = scope;
    if (!('accountId' in scope) || deviceId !== undefined) return ofDevice[what][order].iterate({ ...where, deviceId });
    const { accountId, organizationIds } = scope;
    const devices = organizationIds && this.#placesNow().devicesBelow(organizationIds);
    // They are sorted first: no more than needed.
    if (devices) return ofDevices.places[order].iterate({ ...where, devices: JSON.stringify(devices) });
    return ofAccount[what][order].iterate({ ...where, accountId });
  }

  #accept({ conditions, sort }: LogSearch, seenFrom: SeenFrom, place: IndexedEntry | Row): FoundEntry | undefined {
    const { sequence, time, deviceId } = place;
    const from = seenFrom(deviceId);
    if (from === undefined || time < from) return undefined;
    const received = () => ('id' in place ? place : this.#statements.row.get(sequence))?.received ?? ever;
    if (from > ever && received() < from) return undefined;
    if (conditions.length === 0 && typeof sort !== 'object') return { sequence, time, deviceId, score: 1 };
    const row = 'id' in place ? place : this.#statements.row.get(sequence);
    if (!row) return undefined;
    let score = 0;
    for (const condition of conditions) {
      const part = scoreOf(condition, row);
      if (part === 0) return undefined;
      score += part;
    }
    const found = { sequence, time, deviceId, score: conditions.length === 0 ? 1 : score };
    return typeof sort === 'object' ? { ...found, key: keyOf(sort.by, row) } : found;
  }

  /** Whose entries the caller may see: of live devices that stand where it reaches now. */
  #reachOf({ scope }: LogSearch): SeenFrom {
    if (!('accountId' in scope)) return () => scope.from ?? ever;
    return this.#placesNow().reach(scope.accountId, scope.organizationIds);
  }

  #placesNow(): LogReach {
    this.#places ??= new LogReach(join(this.#directory, 'registry.db'));
    return this.#places;
  }
}

interface Result {
  places: FoundEntry[];
  /** False when there was no time to look at everything. */
  complete: boolean;
}

class Overdue extends Error {}

function withoutSequence({ sequence: _, ...row }: Row): LogRow {
  return row;
}

function prepare(file: Sqlite.Database) {
  type Where = { from: number; to: number; levels: number };
  const severity = '(@levels >> "severity") & 1';
  // CASE keeps the order in which conditions are looked at; now and then an entry is a look at the clock.
  const inTime = 'CASE WHEN "sequence" & 63 THEN 1 ELSE inTime() END';
  const range = `"time" >= @from AND "time" < @to AND CASE WHEN ${inTime} THEN ${severity} END`;
  const inOrder = <W>(where: string) => {
    const rows = <R>(columns: string, order: 'ASC' | 'DESC') =>
      file.prepare<[Where & W], R>(
        `SELECT ${columns} FROM "logs" WHERE ${where} AND ${range} ORDER BY "time" ${order}, "sequence" ${order}`,
      );
    const known = '"sequence", "time", "deviceId"';
    return {
      places: { oldest: rows<IndexedEntry>(known, 'ASC'), newest: rows<IndexedEntry>(known, 'DESC') },
      rows: { oldest: rows<Row>('*', 'ASC'), newest: rows<Row>('*', 'DESC') },
    };
  };
  type OfDevice = Where & { deviceId: string; received: number };
  const pages = (where: string) => ({
    count: file.prepare<[OfDevice], number>(`SELECT count(*) FROM "logs" WHERE ${where}`).pluck(),
    page: file
      .prepare<[OfDevice & { limit: number; offset: number }], number>(
        `SELECT "sequence" FROM "logs" WHERE ${where}
         ORDER BY "time" DESC, "sequence" DESC LIMIT @limit OFFSET @offset`,
      )
      .pluck(),
  });
  const ofDevice = `"deviceId" = @deviceId AND "time" >= @from AND "time" < @to AND ${severity}`;
  return {
    page: pages(ofDevice),
    seenPage: pages(`${ofDevice} AND "received" >= @received`),
    ofDevice: inOrder<{ deviceId: string | undefined }>('"deviceId" = @deviceId'),
    ofDevices: inOrder<{ devices: string }>('"deviceId" IN (SELECT "value" FROM json_each(@devices))'),
    ofAccount: inOrder<{ accountId: string }>('"accountId" = @accountId'),
    row: file.prepare<[number], Row>('SELECT * FROM "logs" WHERE "sequence" = ?'),
    indexed: file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'logsIndexed'`).pluck(),
    last: file.prepare<[], number>('SELECT max("sequence") FROM "logs"').pluck(),
    unindexed: file.prepare<[number], Row>('SELECT * FROM "logs" WHERE "sequence" > ? ORDER BY "sequence" DESC'),
  };
}
