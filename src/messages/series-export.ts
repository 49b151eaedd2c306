/** A whole range as CSV or NDJSON (decisions 7), read and sent a little at a time: it takes no more memory than a page. */
import { Readable } from 'node:stream';
import type { Cursor, Point, Range } from '../../db/series.js';
import { Slices } from '../../db/slices.js';
import type { Caller } from '../access.js';
import { isoDates } from './iso-dates.js';
import { csvColumns } from './payload.js';
import { demandStill, findSeries, readRange, type SeriesQuery, type Services, showPoints } from './series-query.js';

const pointsAtOnce = 1000;

/** A form of whole ranges: how it begins, and a point of it. */
interface Form {
  type: string;
  head: string;
  lines(query: SeriesQuery): (point: Point) => string;
}

const forms: Record<'csv' | 'ndjson', Form> = {
  csv: { type: 'text/csv; charset=utf-8; header=present', head: `${csvColumns}\n`, lines: csvLines },
  ndjson: {
    type: 'application/x-ndjson; charset=utf-8',
    head: '',
    lines: (query) => {
      const show = showPoints(query);
      return (point) => `${JSON.stringify(show(point))}\n`;
    },
  },
};

/** What is sent: headers, and the body as it is read. */
export interface Export {
  headers: Record<string, string>;
  body: Readable;
}

/**
 * Every point that is in the range at the start, once, in the order of `order`; reading goes on as the receiver takes it,
 * and ends with it, or with the caller's right.
 * @throws PlatformError as findSeries; 400/106 for a bad range.
 */
export function exportSeries(
  services: Services,
  caller: Caller,
  topic: string,
  format: 'csv' | 'ndjson',
  query: SeriesQuery,
): Export {
  const form = forms[format];
  const key = findSeries(services, caller, topic);
  const { from, to } = readRange(query, services.clock.now());

  async function* pieces(): AsyncGenerator<string> {
    const slices = new Slices();
    const line = form.lines(query);
    if (form.head) yield form.head;
    for (let after: Cursor | undefined; key; ) {
      const range: Range = { from, to, order: query.order ?? 'asc', limit: pointsAtOnce, ...(after && { after }) };
      const points = await services.messages.page(key, range, query.category);
      const piece = points.map(line).join('');
      if (piece) yield piece;
      after = points.at(-1);
      if (points.length < pointsAtOnce) return;
      await slices.step();
      demandStill(services, caller, topic);
    }
  }

  const name = `${topic.split('/').at(-1)}.${format}`;
  return {
    headers: {
      'content-type': form.type,
      'content-disposition': `attachment; filename="data.${format}"; filename*=UTF-8''${encodeName(name)}`,
    },
    body: Readable.from(pieces(), { objectMode: false, highWaterMark: 1 }),
  };
}

/**
 * Rows that our own reader takes back. There is no quoting: what would end a row or a column too early becomes a blank. A
 * point whose text is empty and that has no number has no form in CSV.
 */
function csvLines(): (point: Point) => string {
  const date = isoDates();
  return ({ time, category, numericValue, stringValue }) => {
    const text = oneLine(stringValue ?? '');
    if (numericValue === null && text === '') return '';
    return `${date(time)},${oneLine(category.replaceAll(',', ' '))},${numericValue ?? ''},${text}\n`;
  };
}

/** Blanks around a column are not the text's (decisions 7). */
function oneLine(text: string): string {
  return text.replace(/[\r\n]/g, ' ').replace(/^[ \t]+|[ \t]+$/g, '');
}

function encodeName(name: string): string {
  return encodeURIComponent(name.toWellFormed()).replace(/['()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}
