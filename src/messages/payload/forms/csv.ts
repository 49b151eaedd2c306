/** CSV: a point per line. */
import type { Point } from '../../../../db/messages/store.ts';
import { areSeconds, isBlank, type Reading, readTime, roundedDigits, toPoint } from '../reading.ts';

/** What it is, for the explanation of a refusal. */
export const csvForm =
  'CSV: lines of timestamp,category,numericValue,stringValue, such as 1700000000000,temperature,21.5,';

const decimal = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;

/** The names of the columns; as the first line of CSV they are no row. */
export const csvColumns = 'timestamp,category,numericValue,stringValue';

/** CSV: rows of `csvColumns`, split at the first three commas, no quoting. */
export function readCsv(text: string, now: number): Reading {
  const points: Point[] = [];
  let start = 0;
  for (let row = 1; start < text.length; row += 1) {
    const feed = text.indexOf('\n', start);
    const end = feed === -1 ? text.length : feed;
    const line = trimBlanks(text.slice(start, feed > start && text[feed - 1] === '\r' ? feed - 1 : end));
    start = end + 1;
    if (line === '' || (row === 1 && line === csvColumns)) continue;
    const point = readRow(line, now);
    if (typeof point === 'string') return { reason: `row ${row}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'there is no row.' };
}

function readRow(line: string, now: number): Point | string {
  const first = line.indexOf(',');
  if (first === -1) return `it has no comma; a row is ${csvColumns}.`;
  const second = indexOrEnd(line, first + 1);
  const third = indexOrEnd(line, second + 1);
  const timestamp = trimBlanks(line.slice(0, first));
  const category = trimBlanks(line.slice(first + 1, second));
  const number = trimBlanks(line.slice(second + 1, third));
  const text = trimBlanks(line.slice(third + 1));
  // Where a comma is the decimal sign, the text would be the decimals.
  if (/^[+-]?\d+$/.test(number) && /^\d+$/.test(text))
    return `${number},${text} is not a number; write ${number}.${text}, with a decimal point.`;

  const time = timestamp === '' ? now : readTime(timestamp);
  if (time !== undefined && areSeconds(time) && !timestamp.includes('T'))
    return `the timestamp ${time} would be in January 1970; as milliseconds it is ${time * 1000}.`;
  if (time === undefined) return 'the timestamp is neither epoch milliseconds nor an ISO 8601 date.';
  const numericValue = number === '' ? null : readDecimal(number);
  if (numericValue === undefined) return 'the number is not decimal and finite.';
  const digits = numericValue === null ? undefined : roundedDigits(number, numericValue);
  return toPoint(time, category, numericValue, text === '' ? (digits ?? null) : text);
}

function indexOrEnd(line: string, from: number): number {
  const index = line.indexOf(',', from);
  return index === -1 ? line.length : index;
}

function readDecimal(text: string): number | undefined {
  const number = decimal.test(text) ? Number(text) : Number.NaN;
  return Number.isFinite(number) ? number : undefined;
}

/** Without blanks and tabs around it; every other character is the sender's. */
function trimBlanks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}
