/** The types of stored messages: points of series, log entries, and the queries for both. */
import type { FoundPlace, LogSearch } from './logs/search.ts';

/** Milliseconds since 1970 that a date can hold, either way. */
export const timeLimit = 8.64e15;
/** Every point there can be. */
export const everything = { from: -timeLimit, to: timeLimit + 1 } as const;

/** One value of a series; `time` in milliseconds since 1970. */
export interface Point {
  time: number;
  category: string;
  numericValue: number | null;
  stringValue: string | null;
  /** When it came, in milliseconds since 1970, if its time was more than a day ahead of that. */
  arrived?: number;
}

/** Each possession of a device has a series of its own (0 when it is left out), and in it points that came ahead of their time. */
export interface SeriesKey {
  accountId: string;
  deviceId: string;
  channelTemplateId: string;
  possession?: number;
  ahead?: boolean;
}

/** What is seen of a device: points of this possession and later ones, and nothing from before a time (milliseconds since 1970). */
export interface Seen {
  readonly first: number;
  readonly from: number;
}

/** The series of a channel as a reader sees them; whole without `window`. */
export interface SeriesView extends Omit<SeriesKey, 'possession' | 'ahead'> {
  window?: Seen;
}

/** Last points of a device that are wanted: each of one category of these channel templates, or of all without it. */
export interface LastsOfDevice extends Pick<SeriesView, 'accountId' | 'deviceId' | 'window'> {
  wanted: readonly { channels: ReadonlySet<string>; category?: string }[];
}

/** Levels of a log entry, most severe first; `lifecycle` is next to them. */
export const severities = [
  'emergency',
  'alert',
  'critical',
  'error',
  'warn',
  'notice',
  'info',
  'debug',
  'lifecycle',
] as const;
export type Severity = (typeof severities)[number];

/** `time` is the source's, `received` the service's; both in milliseconds since 1970. */
export interface LogEntry {
  id: string;
  accountId: string;
  deviceId: string;
  time: number;
  received: number;
  severity: Severity;
  message: string | null;
  code: string | null;
  /** Whether the code was sent as a number. */
  codeIsNumber?: boolean;
  details: string | null;
  tags: string[];
  custom: Record<string, unknown> | null;
  /** Of the service itself, about a connection; what anybody has sent never is. */
  byService: boolean;
}
export type NewLogEntry = Omit<LogEntry, 'byService'> & Partial<Pick<LogEntry, 'byService'>>;
export type LogInput = Pick<
  LogEntry,
  'time' | 'severity' | 'message' | 'code' | 'codeIsNumber' | 'details' | 'tags' | 'custom'
>;

/** A place between two points of a series. */
export interface Cursor {
  time: number;
  sequence: number;
}

/**
 * `from` inclusive and `to` exclusive, in milliseconds; `after` in the direction of `order`. Reading ends early behind the
 * point whose texts exceed `characters`, but not before the second point: the first alone is a page.
 */
export interface Range {
  from: number;
  to: number;
  order: 'asc' | 'desc';
  limit: number;
  characters?: number;
  after?: Cursor;
  /** Without points that came ahead of their time. */
  withoutAhead?: boolean;
}

/** Points as they were stored: `sequence` tells apart those of one time, and grows over the life of the file. */
export type StoredPoint = Omit<Point, 'arrived'> & { sequence: number; aheadOfTime?: true };

/** A search of the log; a missing end of the range means no bound. */
export type LogQuestion = Omit<LogSearch, 'from' | 'to' | 'severities'> & {
  from?: number | undefined;
  to?: number | undefined;
  severities?: readonly Severity[] | undefined;
};

/** A log entry that was looked for; `score` is how well it fits, 1 when nothing was asked of its text. */
export type FoundEntry = LogEntry & { score: number };

/** Entries of a page, up to some bytes, and where the others are, for `more` of LogReads. */
export interface LogsPart {
  entries: FoundEntry[];
  rest: FoundPlace[];
}

/** The beginning of a page of the entries that were looked for, how many there are, and the best score of them all. */
export interface LogsRead extends LogsPart {
  total: number;
  maxScore: number;
}

/** Bytes of an entry as it came; a page of a thousand entries is answered at once. */
export const maxLogEntryLength = 16_384;
