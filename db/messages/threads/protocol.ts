/** The messages between the message store (store.ts) and its writer thread (writer-worker.ts). */

import type { Failure } from '../../threads/answering.ts';
import type { AccountBytes } from '../outbox/amounts.ts';
import type { OutboxChange } from '../outbox/rows.ts';
import type { MqttChange } from '../sessions/changes.ts';

/** A log entry as its row; `tags` and `custom` are JSON. */
export interface LogRow {
  id: string;
  accountId: string;
  deviceId: string;
  time: number;
  received: number;
  severity: number;
  message: string | null;
  code: string | null;
  /** 1 for a code that was sent as a number. */
  codeIsNumber?: number;
  details: string | null;
  tags: string;
  custom: string | null;
  /** 1 for an entry of the service itself. */
  byService: number;
}

/** Where points and log entries end: the last sequence of each. Both only grow, and in the order of the calls. */
export interface StoreEnd {
  points: number;
  logs: number;
}

/** Called once: without an error when what was given is on disk. `end` is its end there, good until this returns. */
export type Stored = (error?: Error, end?: Readonly<StoreEnd>) => void;

/** How many numbers a point takes in `Batch.points`: index of its key, time, index of its category, number (NaN: none). */
export const pointWidth = 4;

/** Account, device, channel template and possession of a series, and whether it has the points that came ahead of their time. */
export type BatchKey = [
  accountId: string,
  deviceId: string,
  channelTemplateId: string,
  possession: number,
  ahead: 0 | 1,
];

/** The content of one transaction, flat because flat arrays are copied fastest between threads. */
export interface Batch {
  /** Of each series that occurs. */
  keys: BatchKey[];
  categories: string[];
  points: Float64Array;
  /** By index of the point; sparse, most points have none. */
  texts: Map<number, string>;
  /** When points of a series that is ahead came, in milliseconds since 1970, by index of the point. */
  arrived: Map<number, number>;
  /** Keys of points whose categories and marks have been written before. */
  prepared: ReadonlySet<number>;
  logs: LogRow[];
  /** Of MQTT sessions, in their order. */
  changes: MqttChange[];
  outbox: OutboxChange[];
}

/** Whose rows are to be removed: a purged device's points and log, or a purged channel's points on every device. */
export type Purged = { deviceId: string } | { channelTemplateId: string };

/** Expired messages: points of a channel on every device, log entries of an account; `before` in milliseconds. */
export type Expired = { before: number } & ({ channelTemplateId: string } | { logsOf: string });

/** How much may stay: of the file in use, and of one account; an `accountBytes` of 0 is no maximum. */
export interface Room {
  bytes: number;
  accountBytes: number;
}

/** Orders that are carried out in steps, one step for each. */
export type StepOrder =
  /** Points that are about to come: what is kept beside them is written. */
  | { prepare: Batch }
  | { deleteSome: Purged }
  | { expireSome: Expired }
  | { evictSome: Room }
  /** The account whose messages have been removed: its counters go, too. */
  | { forget: string }
  | { tidy: true }
  | { prove: true };

export type Order = { write: Batch } | StepOrder | { close: true };

/**
 * In bytes: `size` is how much of the file is in use, `unused` how much of it is not, `outboxPending` how much payload bridges have not delivered yet,
 * `largest` how much the account that has stored most has stored.
 */
export interface HeldBytes {
  size: number;
  unused: number;
  outboxPending: number;
  largest: number;
}

/**
 * One after `ready` for each order but `close`, in their order. `more`: there are still rows to remove; `commitTime`: milliseconds
 * of COMMIT; `outbox`: pending bytes of the accounts that the order has changed, of all after `ready`.
 */
export type Answer =
  | ({ ready: true; outbox: AccountBytes[] } & HeldBytes)
  | ({ more: boolean; end: StoreEnd; commitTime: number; outbox: AccountBytes[] } & HeldBytes)
  | { failure: Failure };

export interface WorkerSettings {
  path: string;
  /** Of the process that may write. */
  mark: string | undefined;
}
