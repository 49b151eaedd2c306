/** Reads the log in the reading thread (threads/reader-worker.ts): pages, and searches by index or in order. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../../sqlite/dialect.js';
import { fold } from '../../sqlite/fold.js';
import type { LogRow } from '../threads/protocol.js';
import {
  type FoundPart,
  type FoundPlace,
  type FoundRow,
  type LogCondition,
  type LogOrder,
  type LogSearch,
  type LogsFound,
  maxFound,
  type TextField,
} from './search.js';
import {
  accountTerm,
  deviceTerm,
  indexQuery,
  partTerms,
  severityTerm,
  textsOf,
  valueTerm,
  wordsOf,
  wordTerm,
} from './terms.js';

/** Milliseconds after which a search goes with what it has, or gives up: others wait for this thread. */
const usualPatience = 2000;
/** Characters of the entries that are handed over together: a page may have 16 MiB. */
const maxPartLength = 256 * 1024;
/** Entries that are not indexed yet and may as well be looked at one by one. */
const fewWaiting = 50_000;
/** Devices in reach whose logs are read one by one, rather than the log of the whole account. */
const fewDevices = 200;

type Row = LogRow & { sequence: number };
/** The part of an entry that is in the index. */
type Place = Pick<Row, 'sequence' | 'time' | 'deviceId'>;
type Found = Place & { score: number; key?: string | number | null };
type Reaches = (deviceId: string) => boolean;

export class LogReader {
  readonly #directory: string;
  readonly #patience: number;
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;
  #registry: Registry | undefined;
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
    this.#registry?.close();
    this.#file.close();
  }

  #search(search: LogSearch): LogsFound {
    this.#deadline = performance.now() + this.#patience;
    const { scope, conditions } = search;
    if (!('accountId' in scope) && conditions.length === 0) return this.#page(scope.deviceId, search);

    const reaches = this.#reachOf(search);
    const accept = (place: Place) => this.#accept(search, reaches, place);
    const found = this.#candidates(search, accept) ?? this.#walk(search, accept);
    const { offset, limit } = search;
    if (!found.complete && found.places.length < offset + limit) return undefined;
    const places = sorted(found.places, search.sort).slice(offset, offset + limit);
    const maxScore = found.places.reduce((most, { score }) => Math.max(most, score), 0);
    return { ...this.read(places), total: found.places.length, maxScore };
  }

  /** A page of one device's log with all that is in a range: an index counts them. */
  #page(deviceId: string, { from, to, severities, offset, limit }: LogSearch): LogsFound {
    const where = { deviceId, from, to, levels: severities.reduce((mask, level) => mask | (1 << level), 0) };
    const total = this.#statements.count.get(where) ?? 0;
    const sequences = this.#statements.page.all({ ...where, offset, limit });
    return { ...this.read(sequences.map((sequence) => ({ sequence, score: 1 }))), total, maxScore: 1 };
  }

  /** The matches of the index of terms; undefined if it cannot tell or finds too many to be of use. */
  #candidates(search: LogSearch, accept: (place: Place) => Found | undefined): Result | undefined {
    const query = queryOf(search);
    if (query === undefined) return undefined;
    const { indexed, last, waiting } = this.#statements;
    const upTo = indexed.get() ?? 0;
    if ((last.get() ?? 0) - upTo > fewWaiting) return undefined;
    const sequences = this.#matching(query);
    if (!sequences || (sequences.length > maxFound && search.sort !== 'score')) return undefined;
    const places: Found[] = [];
    const take = (row: Row | undefined) => {
      const place = row && isWithin(search, row) ? accept(row) : undefined;
      if (place) places.push(place);
      // Not in the requested order: some of them do not match.
      return places.length <= maxFound && performance.now() <= this.#deadline;
    };
    for (const row of waiting.iterate(upTo)) if (!take(row)) break;
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

  /** The log in the order that is asked for, until enough is found. */
  #walk(search: LogSearch, accept: (place: Place) => Found | undefined): Result {
    const places: Found[] = [];
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

  #inOrder({ scope, from, to, severities, conditions, sort }: LogSearch): IterableIterator<Place | Row> {
    const order = sort === 'oldest' ? 'oldest' : 'newest';
    const what = conditions.length > 0 || typeof sort === 'object' ? 'rows' : 'places';
    const where = { from, to, levels: severities.reduce((mask, level) => mask | (1 << level), 0) };
    const { ofDevice, ofDevices, ofAccount } = this.#statements;
    const { deviceId } = scope;
    if (!('accountId' in scope) || deviceId !== undefined) return ofDevice[what][order].iterate({ ...where, deviceId });
    const { accountId, organizationIds } = scope;
    const devices = organizationIds && this.#registryOf().devicesOf(organizationIds);
    // They are sorted first: no more than needed.
    if (devices) return ofDevices.places[order].iterate({ ...where, devices: JSON.stringify(devices) });
    return ofAccount[what][order].iterate({ ...where, accountId });
  }

  #accept({ conditions, sort }: LogSearch, reaches: Reaches, place: Place | Row): Found | undefined {
    const { sequence, time, deviceId } = place;
    if (!reaches(deviceId)) return undefined;
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
  #reachOf({ scope }: LogSearch): Reaches {
    if (!('accountId' in scope)) return () => true;
    return this.#registryOf().reach(scope.accountId, scope.organizationIds);
  }

  #registryOf(): Registry {
    this.#registry ??= new Registry(join(this.#directory, 'registry.db'));
    return this.#registry;
  }
}

/** The data of registry.db that decides about reach. */
class Registry {
  readonly #file: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepareRegistry>;

  constructor(path: string) {
    if (!existsSync(path)) throw new Error('There is no registry next to the messages.');
    this.#file = openSqlite(path, { readonly: true });
    this.#statements = prepareRegistry(this.#file);
  }

  reach(accountId: string, organizationIds: readonly string[] | undefined): Reaches {
    const places = organizationIds && new Set(this.#below(organizationIds));
    const known = new Map<string, boolean>();
    return (deviceId) => {
      let answer = known.get(deviceId);
      if (answer === undefined) {
        const device = this.#statements.device.get(deviceId);
        answer = device?.accountId === accountId && (!places || places.has(device.organizationId ?? ''));
        known.set(deviceId, answer);
      }
      return answer;
    };
  }

  /** The devices that are at or below organizations, when they are few. */
  devicesOf(organizationIds: readonly string[]): string[] | undefined {
    const below = JSON.stringify(this.#below(organizationIds));
    const devices = this.#statements.devices.all(below, fewDevices + 1);
    return devices.length <= fewDevices ? devices : undefined;
  }

  close(): void {
    this.#file.close();
  }

  #below(organizationIds: readonly string[]): string[] {
    return this.#statements.below.all(JSON.stringify(organizationIds));
  }
}

interface Result {
  places: Found[];
  /** False when there was no time to look at everything. */
  complete: boolean;
}

class Overdue extends Error {}

/** The query for the text index; undefined if no part of the search has terms. */
function queryOf({ scope, severities, conditions }: LogSearch): string | undefined {
  const lists: string[][] = [];
  for (const condition of conditions) lists.push(...termListsOf(condition));
  if ('accountId' in scope && severities.length === 1) lists.push(severities.map(severityTerm));
  if (lists.length === 0) return undefined;
  if (scope.deviceId !== undefined) lists.push([deviceTerm(scope.deviceId)]);
  if ('accountId' in scope) lists.push([accountTerm(scope.accountId)]);
  return indexQuery(lists);
}

/** Of each list an entry that fulfils the condition has a term. */
function termListsOf(condition: LogCondition): string[][] {
  switch (condition.kind) {
    case 'contains':
      return partTerms(condition.text).map((term) => [term]);
    case 'equals':
      return wordsOf(condition.value).map((word) => [wordTerm(word)]);
    case 'words': {
      const terms = condition.words.map(wordTerm);
      return condition.all ? terms.map((term) => [term]) : [terms];
    }
    case 'custom':
      return [[valueTerm(condition.value)]];
    case 'devices':
      return [condition.ids.map(deviceTerm)];
    case 'received':
      return [];
  }
}

/** How well an entry fulfils a condition; 0 when it does not. Of words asked for, each that it has counts one. */
function scoreOf(condition: LogCondition, row: Row): number {
  switch (condition.kind) {
    case 'contains':
      return textsOf(row).some((text) => fold(text).includes(condition.text)) ? 1 : 0;
    case 'equals':
      return valuesOf(row, condition.field).includes(condition.value) ? 1 : 0;
    case 'custom':
      return customOf(row, condition.path) === condition.value ? 1 : 0;
    case 'devices':
      return condition.ids.includes(row.deviceId) ? 1 : 0;
    case 'received':
      return row.received >= condition.from && row.received < condition.to ? 1 : 0;
    case 'words': {
      const has = new Set(valuesOf(row, condition.field).flatMap(wordsOf));
      const found = condition.words.filter((word) => has.has(word)).length;
      return condition.all && found < condition.words.length ? 0 : found;
    }
  }
}

function valuesOf(row: Row, field: TextField): string[] {
  if (field === 'tags') return JSON.parse(row.tags) as string[];
  const value = row[field];
  return value === null ? [] : [value];
}

/** The value at a path of an entry's own properties; undefined when there is none. */
function customOf({ custom }: Row, path: readonly string[]): unknown {
  let value: unknown = custom === null ? undefined : JSON.parse(custom);
  for (const name of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

function isWithin({ scope, from, to, severities }: LogSearch, row: Row): boolean {
  if (scope.deviceId !== undefined && row.deviceId !== scope.deviceId) return false;
  if ('accountId' in scope && row.accountId !== scope.accountId) return false;
  return row.time >= from && row.time < to && severities.includes(row.severity);
}

function sorted(places: Found[], sort: LogSearch['sort']): Found[] {
  const newest = (a: Found, b: Found) => b.time - a.time || b.sequence - a.sequence;
  if (sort === 'newest') return places.toSorted(newest);
  if (sort === 'oldest') return places.toSorted((a, b) => newest(b, a));
  if (sort === 'score') return places.toSorted((a, b) => b.score - a.score || newest(a, b));
  const direction = sort.order === 'asc' ? 1 : -1;
  return places.toSorted((a, b) => compareKeys(a.key, b.key, direction) || newest(a, b));
}

/** The sort key of an entry; a code that was sent as a number sorts as a number. */
function keyOf(by: LogOrder['by'], row: Row): string | number | null {
  return by === 'code' && row.codeIsNumber === 1 ? Number(row.code) : row[by];
}

/** Numbers before texts, and what there is none of last in both directions. */
function compareKeys(a: Found['key'] = null, b: Found['key'] = null, direction: 1 | -1): number {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  const isLess = typeof a === typeof b ? a < b : typeof a === 'number';
  return isLess ? -direction : direction;
}

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
    const walk = <R>(columns: string, order: 'ASC' | 'DESC') =>
      file.prepare<[Where & W], R>(
        `SELECT ${columns} FROM "logs" WHERE ${where} AND ${range} ORDER BY "time" ${order}, "sequence" ${order}`,
      );
    const known = '"sequence", "time", "deviceId"';
    return {
      places: { oldest: walk<Place>(known, 'ASC'), newest: walk<Place>(known, 'DESC') },
      rows: { oldest: walk<Row>('*', 'ASC'), newest: walk<Row>('*', 'DESC') },
    };
  };
  const ofDevice = `"deviceId" = @deviceId AND "time" >= @from AND "time" < @to AND ${severity}`;
  return {
    count: file
      .prepare<[Where & { deviceId: string }], number>(`SELECT count(*) FROM "logs" WHERE ${ofDevice}`)
      .pluck(),
    page: file
      .prepare<[Where & { deviceId: string; limit: number; offset: number }], number>(
        `SELECT "sequence" FROM "logs" WHERE ${ofDevice}
         ORDER BY "time" DESC, "sequence" DESC LIMIT @limit OFFSET @offset`,
      )
      .pluck(),
    ofDevice: inOrder<{ deviceId: string | undefined }>('"deviceId" = @deviceId'),
    ofDevices: inOrder<{ devices: string }>('"deviceId" IN (SELECT "value" FROM json_each(@devices))'),
    ofAccount: inOrder<{ accountId: string }>('"accountId" = @accountId'),
    row: file.prepare<[number], Row>('SELECT * FROM "logs" WHERE "sequence" = ?'),
    indexed: file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'logsIndexed'`).pluck(),
    last: file.prepare<[], number>('SELECT max("sequence") FROM "logs"').pluck(),
    waiting: file.prepare<[number], Row>('SELECT * FROM "logs" WHERE "sequence" > ? ORDER BY "sequence" DESC'),
  };
}

function prepareRegistry(file: Sqlite.Database) {
  return {
    device: file.prepare<[string], { accountId: string; organizationId: string | null }>(
      'SELECT "accountId", "organizationId" FROM "devices" WHERE "id" = ? AND "deleted" IS NULL',
    ),
    devices: file
      .prepare<[string, number], string>(
        `SELECT "id" FROM "devices" WHERE "organizationId" IN (SELECT "value" FROM json_each(?)) AND "deleted" IS NULL
         LIMIT ?`,
      )
      .pluck(),
    below: file
      .prepare<[string], string>(
        `WITH RECURSIVE "reach" AS (
           SELECT "id" FROM "organizations"
           WHERE "id" IN (SELECT "value" FROM json_each(?)) AND "deleted" IS NULL
           UNION
           SELECT o."id" FROM "organizations" o JOIN "reach" r ON o."parentId" = r."id" WHERE o."deleted" IS NULL
         ) SELECT "id" FROM "reach"`,
      )
      .pluck(),
  };
}
