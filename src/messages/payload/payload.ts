/** Reads payloads of stored channels into points: which form a payload has, and how large it may be. */
import { jsonSize } from '../../core/formats/json-size.ts';
import { csvForm, readCsv } from './forms/csv.ts';
import { float32Form, readFloat } from './forms/float32.ts';
import { isTimed, jsonForm, readJson, timedIsUnknown } from './forms/json.ts';
import { readSenml, senmlForm } from './forms/senml.ts';
import { decode, isBlank, parseExactly, type Reading } from './reading.ts';

/** Maxima of a payload; Infinity for no limit. */
export interface PayloadLimits {
  points: number;
  /** Levels of JSON. */
  depth: number;
}
const unlimited: PayloadLimits = { points: Number.POSITIVE_INFINITY, depth: Number.POSITIVE_INFINITY };

/** The forms that a channel template can fix. */
export type FixedForm = 'csv' | 'json' | 'senml' | 'float32';

/** The accepted form, for the explanation of a refusal. */
const accepted: Record<FixedForm, string> = { csv: csvForm, json: jsonForm, senml: senmlForm, float32: float32Form };

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
  const { json, digits } = parseExactly(text);
  if (json === undefined) return { reason: 'It cannot be parsed.' };
  return within(form === 'json' ? readJson(json, now, digits) : readSenml(json, now, digits), limits);
}

function within(reading: Reading, limits: PayloadLimits): Reading {
  return 'points' in reading ? withinLimits(reading, limits) : reading;
}

/**
 * The points of a payload on a `timeSeries` channel, by the first form that fits; one bad row refuses the whole payload. `now`
 * (milliseconds) is the time of points that name none. What is over a limit is refused before anything is built of it.
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
  const { json, digits } = parseExactly(text);
  if (json === undefined) return { reason: `CSV: ${csv.reason} JSON: it cannot be parsed.` };
  if (isTimed(Array.isArray(json) ? json[0] : json)) return { reason: timedIsUnknown };
  const senml = readSenml(json, now, digits);
  if ('points' in senml) return withinLimits(senml, limits);
  const plain = readJson(json, now, digits);
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

function withinLimits(reading: Extract<Reading, { points: unknown }>, { points }: PayloadLimits): Reading {
  return reading.points.length > points ? { reason: tooManyPoints(points) } : reading;
}

function tooManyPoints(most: number): string {
  return `It has more than ${most} points (SLIPWAY_MQTT_MAX_POINTS): send them in several payloads.`;
}
