/** Points of a channel in pages, and the latest ones. */
import { charactersOf } from '../../../db/messages/series/rows.ts';
import { type Cursor, everything, type Range, type StoredPoint, timeLimit } from '../../../db/messages/store.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import type { HiddenNumbers } from '../../core/formats/hidden-numbers.ts';
import {
  defaultPageSize,
  findSeries,
  jsonOf,
  pageCharacters,
  readInTurn,
  readRange,
  type SeriesAnswer,
  type SeriesQuery,
  type Services,
  type Stretch,
  showPoints,
  type Values,
} from './query.ts';

/**
 * One page of the points of a channel in a range. Following the tokens shows every point of the first page's time once, and of later
 * ones those behind the place that has been reached. @throws PlatformError as findSeries; 400/106 for a bad range or token.
 */
export async function readPage(
  services: Services,
  caller: Caller,
  topic: string,
  query: SeriesQuery,
): Promise<SeriesAnswer> {
  const started = performance.now();
  const key = findSeries(services, caller, topic);
  const token = query.pagingToken === undefined ? undefined : parseToken(services.sealing.numbers, query.pagingToken);
  const { from, to } = readRange(query, services.clock.now(), token);
  const { pageSize = defaultPageSize, order = 'asc', category } = query;

  // One more than the page says whether there is a next one.
  const range: Range = {
    from,
    to,
    order,
    limit: pageSize + 1,
    characters: pageCharacters,
    ...(token && { after: token.after }),
  };
  const found = key ? await readInTurn(services, caller, key, range, category, (points) => points) : [];
  const page = found.slice(0, fitting(found, pageSize));
  const last = page.at(-1);
  return {
    meta: {
      timeSpent: Math.round(performance.now() - started),
      start: new Date(from).toISOString(),
      end: new Date(to).toISOString(),
      count: page.length,
      pagingToken:
        last && found.length > page.length ? formatToken(services.sealing.numbers, { after: last, from, to }) : null,
    },
    result: jsonOf(pointsOf(page, query), query),
  };
}

/** The latest points of a channel, newest first, without those that came ahead of their time. @throws PlatformError as findSeries. */
export async function readLatest(
  services: Services,
  caller: Caller,
  topic: string,
  query: SeriesQuery,
): Promise<SeriesAnswer> {
  const started = performance.now();
  const key = findSeries(services, caller, topic);
  const range: Range = {
    ...everything,
    order: 'desc',
    limit: query.pageSize ?? defaultPageSize,
    withoutAhead: true,
    characters: pageCharacters,
  };
  const found = key ? await readInTurn(services, caller, key, range, query.category, (points) => points) : [];
  const page = found.slice(0, fitting(found, range.limit));
  const timeSpent = Math.round(performance.now() - started);
  return {
    meta: { timeSpent, start: null, end: null, count: page.length, pagingToken: null },
    result: jsonOf(pointsOf(page, query), query),
  };
}

/** How many of the points that were found belong to a page. */
function fitting(found: readonly StoredPoint[], size: number): number {
  let count = 0;
  for (let left = pageCharacters; count < Math.min(size, found.length); count += 1) {
    left -= charactersOf(found[count] as StoredPoint);
    if (left < 0 && count > 0) break;
  }
  return count;
}

function pointsOf(all: readonly StoredPoint[], query: SeriesQuery): Values<StoredPoint> {
  return { all, keyOf: { category: ({ category }) => category, time: ({ time }) => time }, show: showPoints(query) };
}

/** Where the next page begins: after the last point of this one, whatever arrives meanwhile. */
interface Token extends Stretch {
  after: Cursor;
}

function formatToken(numbers: HiddenNumbers, { after, from, to }: Token): string {
  return Buffer.from([after.time, numbers.hide(after.sequence, 0), from, to].join(' ')).toString('base64url');
}

function parseToken(numbers: HiddenNumbers, text: string): Token {
  const decoded = Buffer.from(text, 'base64url').toString();
  const [, ...parts] = /^(-?\d{1,16}) ([\w-]{32}) (-?\d{1,16}) (-?\d{1,16})$/.exec(decoded) ?? [];
  const [time, from, to] = [parts[0], parts[2], parts[3]].map((part) => (part === undefined ? part : Number(part)));
  const [sequence] = numbers.read(parts[1] ?? '') ?? [];
  const valid = time !== undefined && sequence !== undefined && isDate(from) && isDate(to);
  if (!valid) throw invalid('pagingToken', 'must be the pagingToken of the previous page');
  return { after: { time, sequence }, from, to };
}

function isDate(time: number | undefined): time is number {
  return time !== undefined && Math.abs(time) <= timeLimit;
}
