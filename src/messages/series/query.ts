/** Shared by the ways of reading a time-series: the channel, the range, the form of points. */

import { type Static, type TObject, Type } from 'typebox';
import { aggregates } from '../../../db/messages/series/sums.ts';
import type { MessageStore, Range, SeriesView, StoredPoint } from '../../../db/messages/store.ts';
import type { Placement } from '../../../db/registry/index.ts';
import { oneOf } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import type { Channel } from '../../core/channels.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import type { HiddenNumbers } from '../../core/formats/hidden-numbers.ts';
import type { HistoryWindow } from '../../core/history-window.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { Scheduler } from '../../core/scheduler/scheduler.ts';
import { parseTopic } from '../../core/topics.ts';
import { currentCaller } from '../../entity/current-caller.ts';
import { metaShape, readDate } from '../../entity/routes.ts';
import type { Sessions } from '../../identity/sessions/sessions.ts';

/** The range of a query that names none, in milliseconds back from its end. */
const defaultSpan = 24 * 60 * 60 * 1000;
export const defaultPageSize = 100;

const shape = {
  category: Type.Optional(Type.String({ description: 'Points of this category only.' })),
  omitNull: Type.Optional(Type.Boolean({ default: false, description: 'Leave out properties that are null.' })),
};
const grouping = {
  groupType: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 2,
      default: 0,
      description: '0 flat, 1 by category, 2 by time, within the answer.',
    }),
  ),
};
const size = { pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: defaultPageSize })) };
const range = {
  startDateTime: Type.Optional(
    Type.String({ description: 'ISO 8601, inclusive; 24 hours before the end when absent. Not for latest.' }),
  ),
  endDateTime: Type.Optional(Type.String({ description: 'ISO 8601, exclusive; now when absent. Not for latest.' })),
  order: Type.Optional(oneOf(['asc', 'desc'], { default: 'asc', description: 'By time. Not for latest.' })),
};
const paging = {
  pagingToken: Type.Optional(
    Type.String({ description: 'From meta of the page before; the rest of the query stays the same. Not for latest.' }),
  ),
};
const format = {
  format: Type.Optional(
    oneOf(['json', 'csv', 'ndjson'], {
      default: 'json',
      description:
        'csv and ndjson send the whole range as a file: points as they are read, or a rollup; no pages, no groups. Not for latest.',
    }),
  ),
};
const quoting = {
  quote: Type.Optional(
    Type.Boolean({
      default: false,
      description: `For spreadsheets, with csv: texts in quotes where they need them (RFC 4180), and an apostrophe in front of a text that would be a formula. Without it the file is raw: do not open it as a spreadsheet.`,
    }),
  ),
};
const rollup = {
  rollup: Type.Optional(
    Type.String({
      description:
        'The size of buckets, such as 30s, 5m, 1h, 1d, 1w, 1M: the whole range as aggregates, in one answer. s, m and h divide a day.',
    }),
  ),
  aggregate: Type.Optional(
    Type.String({
      default: 'avg',
      description: `Comma-separated, of ${aggregates.join(', ')}: of the numbers of a bucket and category, null where there is none, avg and sum also where the sum exceeds a double; count is of points.`,
    }),
  ),
  timezone: Type.Optional(
    Type.String({ default: 'UTC', description: 'IANA name: where days begin at midnight, weeks on Monday.' }),
  ),
  fill: Type.Optional(oneOf(['null'], { description: 'Show empty buckets too, with null.' })),
};

/** The query parameters of each way of reading. */
export const heeds = {
  page: Type.Object({ ...range, ...size, ...paging, ...shape, ...grouping, ...format }),
  latest: Type.Object({ ...size, ...shape, ...grouping }),
  rollup: Type.Object({ ...range, ...rollup, ...shape, ...grouping, ...format }),
  csv: Type.Object({ ...range, category: shape.category, ...format, ...quoting }),
  ndjson: Type.Object({ ...range, ...shape, ...format }),
  rollupCsv: Type.Object({ ...range, ...rollup, category: shape.category, ...format, ...quoting }),
  rollupNdjson: Type.Object({ ...range, ...rollup, ...shape, ...format }),
} satisfies Record<string, TObject>;

export const seriesQuery = Type.Object({
  ...range,
  ...size,
  ...paging,
  ...shape,
  ...grouping,
  ...format,
  ...quoting,
  ...rollup,
});
export type SeriesQuery = Static<typeof seriesQuery>;

const numberOrNull = Type.Optional(Type.Union([Type.Number(), Type.Null()]));
const valueShape = {
  time: Type.Optional(
    Type.String({ format: 'date-time', description: 'ISO 8601; of a rollup, when the bucket begins.' }),
  ),
  category: Type.Optional(Type.String()),
  numericValue: numberOrNull,
  stringValue: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  aheadOfTime: Type.Optional(
    Type.Literal(true, { description: 'Its time was more than a day ahead when it came. It is never the latest.' }),
  ),
  ...Object.fromEntries(aggregates.map((name) => [name, numberOrNull])),
};
const pointExample = { time: '2026-03-01T12:00:00.000Z', category: 'inside', numericValue: 21.5, stringValue: null };
const nullableText = Type.Union([Type.String(), Type.Null()]);

export const seriesAnswer = Type.Object({
  meta: Type.Object(
    {
      timeSpent: Type.Number({ description: 'Milliseconds.' }),
      start: nullableText,
      end: nullableText,
      count: Type.Integer({ description: 'Points of this page, or values of the rollup.' }),
      pagingToken: Type.Union([Type.String(), Type.Null()], { description: 'Null on the last page, and of a rollup.' }),
      message: Type.Optional(Type.String({ description: 'Why there is no data, if the channel keeps none.' })),
      ignored: metaShape.properties.ignored,
    },
    { title: 'SeriesMeta' },
  ),
  result: Type.Array(
    Type.Object(
      {
        ...valueShape,
        values: Type.Optional(Type.Array(Type.Object(valueShape, { title: 'Point', examples: [pointExample] }))),
      },
      {
        title: 'PointOrGroup',
        description: 'A point, a value of a rollup, or with groupType their group.',
        examples: [pointExample],
      },
    ),
    { title: 'Points' },
  ),
});

/** A value as it is shown: a point, or an aggregate. */
export type ShownValue = { time?: string; category?: string } & Record<
  string,
  string | number | boolean | null | undefined
>;
export interface SeriesAnswer {
  meta: Static<typeof seriesAnswer>['meta'];
  /** The JSON of what is in `result`, made as it is taken. */
  result: AsyncGenerator<string>;
}

export type Services = {
  reads: Scheduler;
  longAnswers: Scheduler;
  config: Config;
  access: Access;
  messages: MessageStore;
  sessions: Sessions;
  clock: Clock;
  sealing: { readonly numbers: HiddenNumbers };
};

/** The series of a channel as the caller sees it. */
export interface SeenSeries extends SeriesView {
  window: HistoryWindow;
}

/**
 * The series behind a topic that the caller may hear; undefined when the channel stores nothing.
 * @throws PlatformError 403/21 for callers that read nothing; 404/100 for a topic that does not exist or is out of reach.
 */
export function findSeries(
  { config, access }: Pick<Services, 'config' | 'access'>,
  caller: Caller,
  topic: string,
): SeenSeries | undefined {
  const { device, channel } = findChannel({ config, access }, caller, topic);
  if (channel.persistenceType !== 'timeSeries') return undefined;
  const { accountId, id: deviceId } = device;
  return { accountId, deviceId, channelTemplateId: channel.id, window: access.historyWindowOf(caller, device) };
}

/** The channel of a topic that the caller may hear, and its device. @throws PlatformError as findSeries. */
export function findChannel(
  { config, access }: Pick<Services, 'config' | 'access'>,
  caller: Caller,
  topic: string,
): { device: Placement; channel: Channel } {
  const parts = parseTopic(config.topicRoot, topic);
  const device = parts && access.placement(parts.deviceId);
  if (!parts || device?.accountId !== parts.accountId || !access.mayHear(caller, device.id, parts.channel))
    throw noTopic();
  const channel = access.channelsOf(device.deviceTemplateId).get(parts.channel);
  if (!channel) throw noTopic();
  return { device, channel };
}

function noTopic(): PlatformError {
  return new PlatformError('notFound', { message: 'The topic does not exist.' });
}

/**
 * Looks again whether the caller may read, in the middle of long reading.
 * @throws PlatformError 401/31 when its session has ended, and as findSeries; 404/100 when it sees less than it did.
 */
export function demandStillReadable(
  services: Services,
  caller: Caller,
  topic: string,
  begun: SeenSeries | undefined,
): void {
  const current = currentCaller(services, caller);
  if (!current) throw new PlatformError('tokenInvalid');
  services.access.demand(current, 'subscribe', 'device');
  const now = findSeries(services, current, topic);
  if (begun && now && begun.window.from < now.window.from) throw noTopic();
}

/** Characters of the texts of one page; a page with more ends early, after one point at least. */
export const pageCharacters = 1024 * 1024;
/** Points up to which a page is read without waiting for a turn, and points that take as long as a row of a list. */
const shortPage = 100;
const pointsOfRow = 20;

/**
 * Points of a range, `show`n when it is the caller's turn. Those of one category are looked for over many turns of the event
 * loop, for which nobody else waits.
 */
export async function readInTurn<R>(
  { messages, reads }: Pick<Services, 'messages' | 'reads'>,
  caller: Caller,
  key: SeenSeries,
  range: Range,
  category: string | undefined,
  show: (points: StoredPoint[]) => R,
): Promise<R> {
  if (category !== undefined) return show(await messages.series.page(key, range, category));
  if (range.limit <= shortPage + 1) return show(await messages.series.page(key, range));
  return reads.run(laneOf(caller), range.limit / pointsOfRow, async () => show(await messages.series.page(key, range)));
}

/** A stretch of time: `from` inclusive and `to` exclusive, in milliseconds. */
export interface Stretch {
  from: number;
  to: number;
}

/**
 * What the query names; what it leaves open is as in `former`, so that the pages of one range belong together.
 * @throws PlatformError 400/106 for what is no date, and an end before the start.
 */
export function readRange(query: SeriesQuery, now: number, former?: Stretch): Stretch {
  const start = readDate('startDateTime', query.startDateTime);
  // Points stored in this millisecond belong to the past.
  const to = readDate('endDateTime', query.endDateTime) ?? former?.to ?? Math.max(now + 1, start ?? now);
  const from = start ?? former?.from ?? to - defaultSpan;
  if (from > to) throw invalid('endDateTime', 'must not be before startDateTime');
  return { from, to };
}

/** How the points of one answer are shown. */
export function showPoints({ omitNull = false }: SeriesQuery): (point: StoredPoint) => ShownValue {
  return ({ time, category, numericValue, stringValue, aheadOfTime }) => {
    const shown: ShownValue = { time: new Date(time).toISOString(), category };
    if (!omitNull || numericValue !== null) shown.numericValue = numericValue;
    if (!omitNull || stringValue !== null) shown.stringValue = stringValue;
    if (aheadOfTime) shown.aheadOfTime = true;
    return shown;
  };
}

/** Values of an answer: points or aggregates. */
export interface Values<V> {
  all: readonly V[];
  /** What the values of a group have in common. */
  keyOf: Record<'category' | 'time', (value: V) => string | number>;
  show(value: V): ShownValue;
}

/** Values that become text in one step, and characters of a piece of text. */
const valuesAtOnce = 100;
const pieceLength = 16 * 1024;

/**
 * The JSON of values, in pieces. As `groupType` asks: flat, by category, or by time; groups in the order of their first
 * value.
 */
export async function* jsonOf<V>(
  { all, keyOf, show }: Values<V>,
  { groupType = 0 }: SeriesQuery,
): AsyncGenerator<string> {
  const longWork = new LongWork();
  const by = groupType === 1 ? 'category' : 'time';
  const groups = groupType === 0 ? [all] : await groupsOf(all, keyOf[by], longWork);
  let text = '';
  for (const [number, group] of groups.entries()) {
    const name = groupType === 0 ? undefined : show(group[0] as V)[by];
    if (name !== undefined) text += `${number > 0 ? ',' : ''}{"${by}":${JSON.stringify(name)},"values":[`;
    for (let from = 0; from < group.length; from += valuesAtOnce) {
      const shown = group.slice(from, from + valuesAtOnce).map(show);
      const rest = name === undefined ? shown : shown.map(({ [by]: _, ...value }) => value);
      text += `${from > 0 ? ',' : ''}${JSON.stringify(rest).slice(1, -1)}`;
      if (text.length < pieceLength) continue;
      yield text;
      text = '';
      await longWork.giveWay();
    }
    if (name !== undefined) text += ']}';
  }
  yield text;
}

async function groupsOf<V>(
  all: readonly V[],
  keyOf: (value: V) => string | number,
  longWork: LongWork,
): Promise<V[][]> {
  const groups = new Map<string | number, V[]>();
  for (const [place, value] of all.entries()) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group) group.push(value);
    else groups.set(key, [value]);
    if ((place + 1) % valuesAtOnce === 0) await longWork.giveWay();
  }
  return [...groups.values()];
}
