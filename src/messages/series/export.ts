/**
 * A whole range as CSV or NDJSON: points are read and sent a little at a time, which takes no more memory than
 * a page; a rollup is within its limits.
 */
import type { Cursor, Point, Range, StoredPoint } from '../../../db/messages/store.ts';
import type { Caller } from '../../core/caller.ts';
import type { Config } from '../../core/config.ts';
import { spreadsheetCell } from '../../core/formats/spreadsheets.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { parseTopic } from '../../core/topics.ts';
import type { Answer } from '../../http/answers/streamed-list.ts';
import { csvColumns } from '../payload/forms/csv.ts';
import {
  demandStillReadable,
  findSeries,
  pageCharacters,
  readInTurn,
  readRange,
  type SeriesQuery,
  type Services,
  type ShownValue,
  type Stretch,
  showPoints,
} from './query.ts';
import { sumUp } from './rollups.ts';

const pointsAtOnce = 1000;
const linesAtOnce = 200;

export type Format = 'csv' | 'ndjson';

/** A form of whole ranges: how points begin, and one of them; how a rollup begins, and a value of it. */
interface Form {
  type: string;
  head: string;
  lines(query: SeriesQuery): (point: StoredPoint) => string;
  valuesHead(aggregates: readonly string[]): string;
  valueLine(value: ShownValue, aggregates: readonly string[], query: SeriesQuery): string;
}

const forms: Record<Format, Form> = {
  csv: {
    type: 'text/csv; charset=utf-8; header=present',
    head: `${csvColumns}\n`,
    lines: csvLines,
    valuesHead: (aggregates) => `${['time', 'category', ...aggregates].join()}\n`,
    valueLine: csvValueLine,
  },
  ndjson: {
    type: 'application/x-ndjson; charset=utf-8',
    head: '',
    lines: (query) => {
      const show = showPoints(query);
      return (point) => `${JSON.stringify(show(point))}\n`;
    },
    valuesHead: () => '',
    valueLine: (value) => `${JSON.stringify(value)}\n`,
  },
};

/** The answer: headers, and a text that is made while it is sent. */
export interface Export {
  headers: Record<string, string>;
  writeParts(answer: Answer): AsyncGenerator<string>;
}

/**
 * Every point that is in the range at the start, once; reading goes on as the receiver takes it, and ends with it or the caller's
 * right. @throws PlatformError as findSeries; 400/106 for a bad range.
 */
export function exportSeries(
  services: Services,
  caller: Caller,
  topic: string,
  format: Format,
  query: SeriesQuery,
): Export {
  const form = forms[format];
  const key = findSeries(services, caller, topic);
  const { from, to } = readRange(query, services.clock.now());

  async function* writeParts(answer: Answer): AsyncGenerator<string> {
    await answer.takePlace();
    const line = form.lines(query);
    if (form.head) yield form.head;
    for (let after: Cursor | undefined; key; ) {
      const range: Range = {
        from,
        to,
        order: query.order ?? 'asc',
        limit: pointsAtOnce,
        characters: pageCharacters,
        ...(after && { after }),
      };
      const [points, piece] = await readInTurn(
        services,
        caller,
        key,
        range,
        query.category,
        (found) => [found, found.map(line).join('')] as const,
      );
      if (piece) yield piece;
      after = points.at(-1);
      if (points.length === 0) return;
      demandStillReadable(services, caller, topic, key);
    }
  }

  return {
    headers: { 'content-type': form.type, ...attachment(services.config, topic, { from, to }, format) },
    writeParts,
  };
}

/** A rollup of the whole range, a value on each line. @throws PlatformError as sumUp. */
export async function exportRollup(
  services: Services,
  caller: Caller,
  topic: string,
  format: Format,
  rollup: string,
  query: SeriesQuery,
): Promise<Export> {
  const form = forms[format];
  const { sums, show, wanted, ...range } = await sumUp(services, caller, topic, rollup, query);
  async function* writeParts(): AsyncGenerator<string> {
    const longWork = new LongWork();
    yield form.valuesHead(wanted);
    for (let place = 0; place < sums.length; place += linesAtOnce) {
      const some = sums.slice(place, place + linesAtOnce);
      yield some.map((sum) => form.valueLine(show(sum), wanted, query)).join('');
      await longWork.giveWay();
    }
  }
  return {
    headers: { 'content-type': form.type, ...attachment(services.config, topic, range, `${rollup}.${format}`) },
    writeParts,
  };
}

/** The name under which it is kept: channel, device, from when, until when. */
function attachment({ topicRoot }: Config, topic: string, { from, to }: Stretch, ending: string) {
  const { channel = '', deviceId = '' } = parseTopic(topicRoot, topic) ?? {};
  const name = `${channel}_${deviceId}_${compact(from)}_${compact(to)}.${ending}`;
  const plain = name.replace(/[^\w.-]/g, '_');
  return { 'content-disposition': `attachment; filename="${plain}"; filename*=UTF-8''${encodeName(name)}` };
}

/** 20260131T093000Z: no sign in it that a file's name cannot have. */
function compact(time: number): string {
  return new Date(time).toISOString().replace(/[-:]|\.\d+/g, '');
}

/**
 * Raw rows that our own reader takes back: what would end a row or a column too early becomes a blank, and a point with
 * neither a number nor a text is left out. With `quote`, rows for spreadsheets: quoted, and no text is a formula.
 */
function csvLines({ quote = false }: SeriesQuery): (point: Point) => string {
  return ({ time, category, numericValue, stringValue }) => {
    const at = new Date(time).toISOString();
    const number = numericValue ?? '';
    if (quote)
      return `${at},${spreadsheetCell(category)},${number},${stringValue === '' ? '""' : spreadsheetCell(stringValue ?? '')}\n`;
    const text = oneLine(stringValue ?? '');
    return numericValue === null && text === '' ? '' : `${at},${inColumn(category)},${number},${text}\n`;
  };
}

function csvValueLine(value: ShownValue, aggregates: readonly string[], { quote = false }: SeriesQuery): string {
  const { time, category = '' } = value;
  const numbers = aggregates.map((name) => value[name] ?? '');
  return `${[time, quote ? spreadsheetCell(category) : inColumn(category), ...numbers].join()}\n`;
}

function inColumn(text: string): string {
  return oneLine(text.replaceAll(',', ' '));
}

/** Blanks around a column are not the text's. */
function oneLine(text: string): string {
  return text.replace(/[\r\n]/g, ' ').replace(/^[ \t]+|[ \t]+$/g, '');
}

function encodeName(name: string): string {
  return encodeURIComponent(name.toWellFormed()).replace(/['()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}
