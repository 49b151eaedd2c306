/** A search of the log for the reading thread; it has been checked. */
import type { LogRow } from '../threads/protocol.ts';

/** Entries that one question finds: what is beyond them is not counted, and in no page. */
export const maxFound = 10_000;

/** Texts of an entry that can be asked for by value or by word. */
export const textFields = ['message', 'code', 'details', 'tags'] as const;
export type TextField = (typeof textFields)[number];

/** Conditions on an entry besides its time, severity and device. */
export type LogCondition =
  /** Folded; in message, code or details. */
  | { kind: 'contains'; text: string }
  | { kind: 'equals'; field: TextField; value: string }
  | { kind: 'custom'; path: readonly string[]; value: string | number | boolean | null }
  /** One of the words, or all of them; what is found has a score. */
  | { kind: 'words'; field: TextField; words: readonly string[]; all: boolean }
  | { kind: 'devices'; ids: readonly string[] }
  /** In milliseconds; `from` inclusive, `to` exclusive. */
  | { kind: 'received'; from: number; to: number };

/** Whose entries: those of one device that have come `from` a time on, or of all in an account that the caller reaches, an end-user by its organizations. */
export type LogScope =
  | { deviceId: string; from?: number }
  | { accountId: string; organizationIds: readonly string[] | undefined; deviceId: string | undefined };

/** By a column, of the newest entries that fit; those of one value newest first. What has no value comes last. */
export interface LogOrder {
  by: 'received' | 'severity' | 'code' | 'deviceId';
  order: 'asc' | 'desc';
}

/** `from` inclusive and `to` exclusive on the source time, `severities` as they are stored. */
export interface LogSearch {
  scope: LogScope;
  from: number;
  to: number;
  severities: readonly number[];
  conditions: readonly LogCondition[];
  sort: 'newest' | 'oldest' | 'score' | LogOrder;
  offset: number;
  limit: number;
}

export type FoundRow = LogRow & { score: number };

/** An entry that was found and is still to be read. */
export interface FoundPlace {
  sequence: number;
  score: number;
}

/** Entries in the order of a page, up to some bytes, and where the others are. */
export interface FoundPart {
  rows: FoundRow[];
  rest: FoundPlace[];
}

/** `total` counts at most `maxFound` when there are conditions or an account. Undefined when it would take too long. */
export type LogsFound = (FoundPart & { total: number; maxScore: number }) | undefined;
