/** Reading time-series over HTTP (decisions 7): a range of a channel in pages, or its latest points. */

import { type Static, Type } from 'typebox';
import type { Cursor, Point, Range, SeriesKey, StoredPoint } from '../../db/series.js';
import type { Caller } from '../access.js';
import type { Context } from '../context.js';
import { oneOf } from '../entity/listing.js';
import { nameIgnored } from '../entity/routes.js';
import { invalid, PlatformError } from '../errors.js';
import type { App } from '../http.js';
import { parseTopic } from '../topics.js';
import { readDate } from './query.js';

/** The range of a query that names none, in milliseconds back from its end. */
const defaultSpan = 24 * 60 * 60 * 1000;
const defaultPageSize = 100;

const query = Type.Object({
  startDateTime: Type.Optional(
    Type.String({ description: 'ISO 8601, inclusive; 24 hours before the end when absent. Not for latest.' }),
  ),
  endDateTime: Type.Optional(Type.String({ description: 'ISO 8601, exclusive; now when absent. Not for latest.' })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: defaultPageSize })),
  pagingToken: Type.Optional(
    Type.String({ description: 'From meta of the page before; the rest of the query stays the same. Not for latest.' }),
  ),
  omitNull: Type.Optional(Type.Boolean({ default: false, description: 'Leave out properties that are null.' })),
  category: Type.Optional(Type.String({ description: 'Points of this category only.' })),
  groupType: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 2,
      default: 0,
      description: '0 flat, 1 by category, 2 by time, within the page.',
    }),
  ),
  order: Type.Optional(oneOf(['asc', 'desc'], { default: 'asc', description: 'By time. Not for latest.' })),
});

const pointProperties = {
  time: Type.Optional(Type.String({ description: 'ISO 8601' })),
  category: Type.Optional(Type.String()),
  numericValue: Type.Optional(Type.Union([Type.Number(), Type.Null()])),
  stringValue: Type.Optional(Type.Union([Type.String(), Type.Null()])),
};
const answer = Type.Object(
  {
    meta: Type.Object({
      timeSpent: Type.Number({ description: 'Milliseconds.' }),
      start: Type.Union([Type.String(), Type.Null()]),
      end: Type.Union([Type.String(), Type.Null()]),
      count: Type.Integer({ description: 'Points on this page.' }),
      pagingToken: Type.Union([Type.String(), Type.Null()], { description: 'Null on the last page.' }),
    }),
    result: Type.Array(
      Type.Object({ ...pointProperties, values: Type.Optional(Type.Array(Type.Object(pointProperties))) }),
    ),
  },
  { description: 'One page of points.' },
);

export type TimeSeriesQuery = Static<typeof query>;
export type TimeSeriesAnswer = Static<typeof answer>;
type WirePoint = NonNullable<TimeSeriesAnswer['result'][number]['values']>[number];
type Services = Pick<Context, 'config' | 'access' | 'messages' | 'clock'>;

/** GET /data/{topic} and /data/{topic}/latest. */
export function timeSeriesRoutes(app: App, ctx: Context): void {
  app.get(
    '/data/*',
    {
      config: { right: ['subscribe', 'device'], errors: ['notFound', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Messages'],
        summary: 'Read the time-series of a channel',
        description:
          'The path goes on with a topic, raw or percent-encoded, and with `/latest` for the latest points, newest first.',
        params: Type.Object({ '*': Type.String({ description: 'The topic, or the topic and /latest.' }) }),
        querystring: query,
        response: { 200: answer },
      },
    },
    async (request, reply) => {
      nameIgnored(request, reply, query);
      const path = request.params['*'];
      // No channel may be called latest (decisions 7).
      const topic = path.replace(/\/latest$/, '');
      return topic === path
        ? readTimeSeries(ctx, request.caller, topic, request.query)
        : readLatest(ctx, request.caller, topic, request.query);
    },
  );
}

/**
 * One page of the points of a channel in a range.
 * @throws PlatformError 404/100 for a topic that does not exist or is out of reach; 400/106 for a bad range or token.
 */
export function readTimeSeries(
  services: Services,
  caller: Caller,
  topic: string,
  query: TimeSeriesQuery,
): TimeSeriesAnswer {
  const started = performance.now();
  const key = findSeries(services, caller, topic);
  const token = query.pagingToken === undefined ? undefined : parseToken(query.pagingToken);
  const { from, to } = readRange(query, token, services.clock.now());
  const { pageSize = defaultPageSize, order = 'asc', category } = query;

  const range: Range = { from, to, order, limit: pageSize + 1 };
  if (token) range.after = token.after;
  if (category !== undefined) range.category = category;
  // One more than the page says whether there is a next one.
  const found = key ? services.messages.read(key, range) : [];
  const page = found.slice(0, pageSize);
  const last = page.at(-1);
  return {
    meta: {
      timeSpent: Math.round(performance.now() - started),
      start: new Date(from).toISOString(),
      end: new Date(to).toISOString(),
      count: page.length,
      pagingToken: last && found.length > pageSize ? formatToken({ after: last, from, to }) : null,
    },
    result: group(page, query),
  };
}

/** The latest points of a channel, newest first. @throws PlatformError 404/100 as readTimeSeries. */
export function readLatest(
  services: Services,
  caller: Caller,
  topic: string,
  query: TimeSeriesQuery,
): TimeSeriesAnswer {
  const started = performance.now();
  const key = findSeries(services, caller, topic);
  const page = key ? services.messages.latest(key, query.pageSize ?? defaultPageSize, query.category) : [];
  const timeSpent = Math.round(performance.now() - started);
  return {
    meta: { timeSpent, start: null, end: null, count: page.length, pagingToken: null },
    result: group(page, query),
  };
}

/** The series behind a topic that the caller may hear; undefined when the channel stores nothing. */
function findSeries({ config, access }: Services, caller: Caller, topic: string): SeriesKey | undefined {
  access.demand(caller, 'read', 'device');
  const parts = parseTopic(config.topicRoot, topic);
  const device = parts && access.placement(parts.deviceId);
  if (!parts || device?.accountId !== parts.accountId || !access.mayHear(caller, device.id, parts.channel))
    throw new PlatformError('notFound', { message: 'The topic does not exist.' });
  const channel = access.channelsOf(device.deviceTemplateId).get(parts.channel);
  if (channel?.persistenceType !== 'timeSeries') return undefined;
  return { accountId: device.accountId, deviceId: device.id, channelTemplateId: channel.id };
}

/** What the query names; what it leaves open is as on the first page, so that the pages of one range belong together. */
function readRange(query: TimeSeriesQuery, token: Token | undefined, now: number): { from: number; to: number } {
  const start = readDate('startDateTime', query.startDateTime);
  // What was stored in this millisecond belongs to the past.
  const to = readDate('endDateTime', query.endDateTime) ?? token?.to ?? Math.max(now + 1, start ?? now);
  const from = start ?? token?.from ?? to - defaultSpan;
  if (from > to) throw invalid('endDateTime', 'must not be before startDateTime');
  return { from, to };
}

/** Where the next page begins: after the last point of this one, whatever arrives meanwhile. */
interface Token {
  after: Cursor;
  from: number;
  to: number;
}

function formatToken({ after, from, to }: Token): string {
  return Buffer.from([after.time, after.sequence, from, to].join(' ')).toString('base64url');
}

function parseToken(text: string): Token {
  const decoded = Buffer.from(text, 'base64url').toString();
  const numbers = /^-?\d{1,16} \d{1,16} -?\d{1,16} -?\d{1,16}$/.test(decoded) ? decoded.split(' ').map(Number) : [];
  const [time, sequence, from, to] = numbers;
  const valid = time !== undefined && sequence !== undefined && isDate(from) && isDate(to);
  if (!valid) throw invalid('pagingToken', 'must be a token from the page before');
  return { after: { time, sequence }, from, to };
}

function isDate(time: number | undefined): time is number {
  return time !== undefined && Math.abs(time) <= 8.64e15;
}

/** Points as `groupType` asks: flat, by category, or by time; groups in the order of their first point. */
function group(
  points: StoredPoint[],
  { groupType = 0, omitNull = false }: TimeSeriesQuery,
): TimeSeriesAnswer['result'] {
  const shown = points.map((point) => show(point, omitNull));
  if (groupType === 0) return shown;
  const by = groupType === 1 ? 'category' : 'time';
  const groups = new Map<string, WirePoint[]>();
  for (const { [by]: name = '', ...value } of shown) {
    const values = groups.get(name);
    if (values) values.push(value);
    else groups.set(name, [value]);
  }
  return [...groups].map(([name, values]) => (by === 'category' ? { category: name, values } : { time: name, values }));
}

function show({ time, category, numericValue, stringValue }: Point, omitNull: boolean): WirePoint {
  const wire: WirePoint = { time: new Date(time).toISOString(), category };
  if (!omitNull || numericValue !== null) wire.numericValue = numericValue;
  if (!omitNull || stringValue !== null) wire.stringValue = stringValue;
  return wire;
}
