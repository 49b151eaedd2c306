/** Reads an entry of `_log`. */
import { type LogInput, type Severity, severities } from '../../../db/messages/store.ts';
import { areSeconds, isInYears, isObject, parseJson, readTime, textOf } from './reading.ts';

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
  const text = textOf(payload);
  const json = parseJson(text);
  if (!isObject(json) || isDeeper(json, depthLimit)) return plainEntry(text, now);

  const { message, details, severity, code, tags, sourceTimestamp, custom, ...rest } = json;
  const own = Object.entries(rest).filter(([name]) => !identifying.has(name));
  const level = readSeverity(severity);
  const time = readSourceTime(sourceTimestamp);
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
export function readSourceTime(value: unknown): number | undefined {
  const time =
    typeof value === 'number' ? Math.round(value) : typeof value === 'string' ? readTime(value.trim()) : undefined;
  if (time === undefined || !isInYears(time)) return undefined;
  const isDate = typeof value === 'string' && value.includes('T');
  return !isDate && areSeconds(time) ? undefined : time;
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
