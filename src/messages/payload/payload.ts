/** Reads payloads: points on a stored channel, an entry on `_log`. */
import { type LogInput, type Point, type Severity, severities } from '../../../db/messages/store.js';
import { parseDate } from '../../entity/values.js';
import { jsonSize } from '../../formats/json-size.js';

/** The points of a payload, or why it holds none. */
export type Reading = { points: Point[] } | { reason: string };

/** Maxima of a payload; Infinity for no limit. */
export interface PayloadLimits {
  points: number;
  /** Levels of JSON. */
  depth: number;
}
const unlimited: PayloadLimits = { points: Number.POSITIVE_INFINITY, depth: Number.POSITIVE_INFINITY };

/** Bytes of UTF-8 that a category or a text may have. */
export const textLimit = 1024;
/** Milliseconds since 1970; what lies outside no query can ask for, because dates have four digits for the year. */
const firstTime = Date.parse('0000-01-01T00:00:00.000Z');
/** Seconds since 1970 in the year 2000. */
const firstSeconds = Date.parse('2000-01-01T00:00:00.000Z') / 1000;
const lastTime = Date.parse('9999-12-31T23:59:59.999Z');
/** SenML: a time below this many seconds is relative to now (RFC 8428, 4.5.3). */
const relativeLimit = 2 ** 28;
const decimal = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;

/** The accepted form, for the explanation of a refusal. */
const accepted: Record<FixedForm, string> = {
  csv: 'CSV: lines of timestamp,category,numericValue,stringValue, such as 1700000000000,temperature,21.5,',
  json: 'JSON: a number, or an object of numbers, texts and booleans, such as {"temperature": 21.5}',
  senml: 'SenML: such as [{"n": "temperature", "v": 21.5}]',
  float32: 'float32: four bytes, little-endian',
};

/**
/** The forms that a channel template can fix. */
export type FixedForm = 'csv' | 'json' | 'senml' | 'float32';

/**
 * The points of a payload on a channel whose template fixes the form; one bad row refuses the whole payload. `now` and
 * limits as for readPoints.
 */
export function readForm(form: FixedForm, payload: Buffer, now: number, limits = unlimited): Reading {
  const reading = form === 'float32' ? readFloat(payload, now) : readTextAs(form, payload, now, limits);
  return 'points' in reading ? reading : { reason: `This channel takes ${accepted[form]}. ${reading.reason}` };
}

function readTextAs(form: 'csv' | 'json' | 'senml', payload: Buffer, now: number, limits: PayloadLimits): Reading {
  const text = decode(payload);
  if (text === undefined) return { reason: 'It is not text in UTF-8.' };
  const excess = excessOf(text, limits);
  if (excess !== undefined) return { reason: excess };
  if (form === 'csv') return within(readCsv(text, now), limits);
  const json = parseJson(text);
  if (json === undefined) return { reason: 'It cannot be parsed.' };
  return within(form === 'json' ? readJson(json, now) : readSenml(json, now), limits);
}

function within(reading: Reading, limits: PayloadLimits): Reading {
  return 'points' in reading ? withinLimits(reading, limits) : reading;
}

/**
 * The points of a payload on a `timeSeries` channel. The forms are tried one after the other; one bad row refuses
 * the whole payload. `now` in milliseconds is the time of points that name none. What is over a limit is refused before
 * anything is built of it.
 */
export function readPoints(payload: Buffer, now: number, limits = unlimited): Reading {
  const text = readTextPoints(payload, now, limits);
  if ('points' in text || payload.length === 0) return text;
  // Four bytes of text that somebody has meant as text.
  const meant = payload.length === 4 ? payload.toString('latin1') : '';
  if (meant === 'true' || meant === 'null' || /^\s*[+-]?\d*,\d+\s*$/.test(meant))
    return { reason: `${text.reason} Numbers have a decimal point, such as 21.5.` };
  const float = readFloat(payload, now);
  return 'points' in float ? float : { reason: `${text.reason} Float: ${float.reason}` };
}

/** As readPoints, without the float: what was sent as text is not taken for one. The reason has a word on each form. */
export function readTextPoints(payload: Buffer, now: number, limits = unlimited): Reading {
  const text = decode(payload);
  if (text === undefined) return { reason: 'CSV, JSON: it is not text in UTF-8.' };
  if (text.trim() === '') return { reason: 'The payload is empty.' };
  const excess = excessOf(text, limits);
  if (excess !== undefined) return { reason: excess };
  const csv = readCsv(text, now);
  if ('points' in csv) return withinLimits(csv, limits);
  const json = parseJson(text);
  if (json === undefined) return { reason: `CSV: ${csv.reason} JSON: it cannot be parsed.` };
  if (isTimed(Array.isArray(json) ? json[0] : json)) return { reason: timedIsUnknown };
  const senml = readSenml(json, now);
  if ('points' in senml) return withinLimits(senml, limits);
  const plain = readJson(json, now);
  return 'points' in plain
    ? withinLimits(plain, limits)
    : { reason: `CSV: ${csv.reason} SenML: ${senml.reason} JSON: ${plain.reason}` };
}

/** Why a payload is too large to be read, found by counting alone; undefined where it may be read. */
function excessOf(text: string, { points, depth }: PayloadLimits): string | undefined {
  // This beginning is never CSV, whose rows begin with a timestamp or a comma.
  if (/^\s*[[{]/.test(text)) {
    const size = jsonSize(text, { depth, members: points });
    if (size.depth > depth) return `JSON: it is nested more than ${depth} levels deep (SLIPWAY_MQTT_MAX_DEPTH).`;
    return size.members > points ? tooManyPoints(points) : undefined;
  }
  let lines = 0;
  for (let start = 0; start < text.length && lines <= points + 1; ) {
    const feed = text.indexOf('\n', start);
    const end = feed === -1 ? text.length : feed;
    if (!isEmptyLine(text, start, end)) lines += 1;
    start = end + 1;
  }
  // One line may be that of the column names.
  return lines > points + 1 ? tooManyPoints(points) : undefined;
}

function isEmptyLine(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const unit = text.charCodeAt(at);
    if (!isBlank(unit) && unit !== 0x0d) return false;
  }
  return true;
}

function withinLimits(reading: { points: Point[] }, { points }: PayloadLimits): Reading {
  return reading.points.length > points ? { reason: tooManyPoints(points) } : reading;
}

function tooManyPoints(most: number): string {
  return `It has more than ${most} points (SLIPWAY_MQTT_MAX_POINTS): send them in several payloads.`;
}

/** Objects of ts and values are the form of other services; as categories they would be two wrong points. */
function isTimed(json: unknown): boolean {
  return isObject(json) && 'ts' in json && 'values' in json;
}

const timedIsUnknown = `An object with ts and values is not a form of points. Take ${accepted.json}; or, with a time, ${accepted.csv}.`;

/** The names of the columns; as the first line of CSV they are no row. */
export const csvColumns = 'timestamp,category,numericValue,stringValue';

/** CSV: rows of `csvColumns`, split at the first three commas, no quoting. */
function readCsv(text: string, now: number): Reading {
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

  const time = timestamp === '' ? now : readTime(timestamp);
  if (time !== undefined && areSeconds(time, now) && !timestamp.includes('T'))
    return `the timestamp ${time} would be in January 1970; as milliseconds it is ${time * 1000}.`;
  if (time === undefined) return 'the timestamp is neither epoch milliseconds nor an ISO 8601 date.';
  const numericValue = number === '' ? null : readDecimal(number);
  if (numericValue === undefined) return 'the number is not decimal and finite.';
  return toPoint(time, category, numericValue, text === '' ? null : text);
}

function indexOrEnd(line: string, from: number): number {
  const index = line.indexOf(',', from);
  return index === -1 ? line.length : index;
}

/** SenML, the old object and the array of RFC 8428. */
function readSenml(json: unknown, now: number): Reading {
  if (isObject(json) && Array.isArray(json.e)) return readOldSenml(json, json.e, now);
  return Array.isArray(json) ? readRfcSenml(json, now) : { reason: 'it is neither an array nor has it a list e.' };
}

/** The old form: base values stand once, next to the entries `e`; `bv` is a boolean. */
function readOldSenml(base: Record<string, unknown>, entries: unknown[], now: number): Reading {
  const points: Point[] = [];
  for (const [index, entry] of entries.entries()) {
    if (!isObject(entry)) return { reason: `entry ${index + 1}: it is not an object.` };
    const { n, t, v, sv, bv } = entry;
    const point = senmlPoint(
      { name: [base.bn, n], seconds: [base.bt, t], number: [undefined, v], boolean: bv, text: sv },
      now,
    );
    if (typeof point === 'string') return { reason: `entry ${index + 1}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'it holds no entry.' };
}

/** RFC 8428: base values hold from their record on; `vb` is a boolean, `vd` data as base64, `bv` is added to `v`. */
function readRfcSenml(records: unknown[], now: number): Reading {
  const points: Point[] = [];
  let bn: unknown;
  let bt: unknown;
  let bv: unknown;
  for (const [index, record] of records.entries()) {
    if (!isObject(record)) return { reason: `record ${index + 1}: it is not an object.` };
    bn = record.bn ?? bn;
    bt = record.bt ?? bt;
    bv = record.bv ?? bv;
    const { n, t, v, vs, vb, vd } = record;
    const holdsNoValue = [v, vs, vb, vd].every((value) => value === undefined);
    // A record may carry base values or a sum alone (RFC 8428, 4.2).
    if (holdsNoValue && ['bn', 'bt', 'bv', 'bu', 'bs', 'bver', 's'].some((name) => name in record)) continue;
    const point = senmlPoint({ name: [bn, n], seconds: [bt, t], number: [bv, v], boolean: vb, text: vs ?? vd }, now);
    if (typeof point === 'string') return { reason: `record ${index + 1}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'it holds no value.' };
}

/** One SenML value; pairs are a base value and the entry's own. */
interface SenmlValue {
  name: [unknown, unknown];
  seconds: [unknown, unknown];
  number: [unknown, unknown];
  boolean: unknown;
  text: unknown;
}

function senmlPoint({ name, seconds, number, boolean, text }: SenmlValue, now: number): Point | string {
  const [baseName = '', ownName = ''] = name;
  if (typeof baseName !== 'string' || typeof ownName !== 'string') return 'the name is not a text.';
  const [baseTime = 0, ownTime = 0] = seconds;
  if (!isNumber(baseTime) || !isNumber(ownTime)) return 'the time is not a number.';
  const [baseNumber = 0, ownNumber] = number;
  if (!isNumber(baseNumber) || (ownNumber !== undefined && !isNumber(ownNumber))) return 'the value is not a number.';
  if (boolean !== undefined && typeof boolean !== 'boolean') return 'the boolean value is not a boolean.';
  if (text !== undefined && typeof text !== 'string') return 'the text value is not a text.';

  const total = baseTime + ownTime;
  const time = Math.round(total * 1000) + (total < relativeLimit ? now : 0);
  const numericValue =
    ownNumber !== undefined ? baseNumber + ownNumber : boolean === undefined ? null : Number(boolean);
  return toPoint(time, baseName + ownName, numericValue, text ?? null);
}

/** JSON: a number, or an object of numbers, texts and booleans by category; `null` is skipped. */
function readJson(json: unknown, now: number): Reading {
  if (isTimed(json)) return { reason: timedIsUnknown };
  if (!isObject(json)) {
    const point = typeof json === 'number' ? toPoint(now, '', json, null) : 'it is not a number or an object.';
    return typeof point === 'string' ? { reason: point } : { points: [point] };
  }
  const points: Point[] = [];
  for (const [category, value] of Object.entries(json)) {
    if (value === null) continue;
    const point = jsonPoint(category, value, now);
    if (typeof point === 'string') return { reason: `property ${category.slice(0, 100)}: ${point}` };
    points.push(point);
  }
  return points.length > 0 ? { points } : { reason: 'it holds no value.' };
}

function jsonPoint(category: string, value: unknown, now: number): Point | string {
  if (typeof value === 'string') return toPoint(now, category, null, value);
  if (typeof value === 'number' || typeof value === 'boolean') return toPoint(now, category, Number(value), null);
  return 'it is not a number, a text or a boolean.';
}

/** Exactly four bytes, a little-endian float. */
function readFloat(payload: Buffer, now: number): Reading {
  if (payload.length !== 4) return { reason: `it has ${payload.length} bytes, not 4.` };
  const point = toPoint(now, '', payload.readFloatLE(0), null);
  return typeof point === 'string' ? { reason: point } : { points: [point] };
}

/** A point within the limits of every form, or what is wrong with it. */
function toPoint(time: number, category: string, number: number | null, text: string | null): Point | string {
  if (!isInYears(time)) return 'the time is not in the years 0000 to 9999.';
  if (number === null && text === null) return 'it has neither a number nor a text.';
  if (number !== null && !Number.isFinite(number)) return 'the number is not finite.';
  if (isTooLong(category) || (text !== null && isTooLong(text))) return `a text is longer than ${textLimit} bytes.`;
  if (isMalformed(category) || (text !== null && isMalformed(text))) return 'a text holds half a character.';
  // Zero has one form in the store.
  return { time, category, numericValue: number === 0 ? 0 : number, stringValue: text };
}

function isInYears(time: number): boolean {
  return time >= firstTime && time <= lastTime;
}

/** Whether a number of milliseconds makes sense only as seconds: as these it is between 2000 and now. */
function areSeconds(time: number, now: number): boolean {
  return time >= firstSeconds && time * 1000 <= now;
}

function readTime(text: string): number | undefined {
  return /^-?\d{1,16}$/.test(text) ? Number(text) : parseDate(text);
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

function isBlank(unit: number): boolean {
  return unit === 0x20 || unit === 0x09;
}

function isTooLong(text: string): boolean {
  // A UTF-16 unit has at most three bytes in UTF-8.
  return text.length * 3 > textLimit && Buffer.byteLength(text) > textLimit;
}

/** Unpaired surrogates come from JSON escapes only, and no UTF-8 can hold them. */
function isMalformed(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

function decode(payload: Buffer): string | undefined {
  try {
    return utf8.decode(payload);
  } catch {
    return undefined;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

// Logs

const severityNames: Readonly<Record<string, Severity>> = {
  ...(Object.fromEntries(severities.map((severity) => [severity, severity])) as Record<Severity, Severity>),
  informational: 'info',
  warning: 'warn',
};

/** Whom an entry is of is known from the topic, never from what it says. */
export const identifying: ReadonlySet<string> = new Set([
  'id',
  'accountId',
  'deviceId',
  'organizationId',
  'sourceId',
  'templateId',
  'entityId',
  'entityType',
]);
/** Levels of nesting that are kept as they are; deeper payloads are kept as text. */
const depthLimit = 32;

/** A log level by any of its names, in any letter case. */
export function readSeverity(name: unknown): Severity | undefined {
  if (typeof name !== 'string') return undefined;
  const lower = name.trim().toLowerCase();
  return Object.hasOwn(severityNames, lower) ? severityNames[lower] : undefined;
}

/**
 * A log entry of a payload on `_log`. Every payload makes one: what is no JSON object is the message, and properties of
 * no known meaning are kept under `custom`. `now` in milliseconds is the time of an entry that names none.
 */
export function readLogEntry(payload: Buffer, now: number): LogInput {
  const text = payload.toString('utf8');
  const json = parseJson(text);
  if (!isObject(json) || isDeeper(json, depthLimit)) return plainEntry(text, now);

  const { message, details, severity, code, tags, sourceTimestamp, custom, ...rest } = json;
  const own = Object.entries(rest).filter(([name]) => !identifying.has(name));
  const level = readSeverity(severity);
  const time = readSourceTime(sourceTimestamp, now);
  // Unreadable values are kept in `custom`.
  if (severity !== undefined && severity !== null && level === undefined) own.push(['severity', severity]);
  if (sourceTimestamp !== undefined && sourceTimestamp !== null && time === undefined)
    own.push(['sourceTimestamp', sourceTimestamp]);
  if (custom !== undefined && custom !== null && !isObject(custom)) own.push(['custom', custom]);
  const kept = { ...(isObject(custom) ? custom : {}), ...Object.fromEntries(own) };
  return {
    time: time ?? now,
    severity: level ?? 'info',
    message: asText(message),
    code: asText(code),
    ...(typeof code === 'number' && { codeIsNumber: true }),
    details: asText(details),
    tags: (Array.isArray(tags) ? tags : [tags]).map(asText).filter((tag) => tag !== null),
    custom: Object.keys(kept).length > 0 ? kept : null,
  };
}

function plainEntry(message: string, time: number): LogInput {
  return { time, severity: 'info', message, code: null, details: null, tags: [], custom: null };
}

/**
 * The time at the source: epoch milliseconds, as a number or a text, or an ISO 8601 date; in the years 0000 to 9999.
 * Returns undefined for any other form, and for what makes sense only as seconds.
 */
export function readSourceTime(value: unknown, now: number): number | undefined {
  const time =
    typeof value === 'number' ? Math.round(value) : typeof value === 'string' ? readTime(value.trim()) : undefined;
  if (time === undefined || !isInYears(time)) return undefined;
  const isDate = typeof value === 'string' && value.includes('T');
  return !isDate && areSeconds(time, now) ? undefined : time;
}

function asText(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.replace(/\p{Surrogate}/gu, '\ufffd');
}

function isDeeper(value: unknown, limit: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return limit === 0 || Object.values(value).some((inner) => isDeeper(inner, limit - 1));
}
