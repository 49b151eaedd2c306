import type { LiveClient } from '../client-types.ts';
import type { Dated } from '../former-messages.ts';
import type { Reach } from './retained-search.ts';

/** What the persistence asks about permissions. */
export interface PersistenceRules {
  /** The device that a topic names, always the same string for one device. */
  deviceOf(topic: string): string | undefined;
  /** The account that a topic names; empty for one that names none. */
  accountOf(topic: string): string;
  /** The account whose sessions a message on `topic` may be for. */
  receivingAccountOf(topic: string): string;
  /** The retained messages that a connection may receive. */
  reachOf(live: LiveClient): Reach;
  /** Whether a filter of a stored session can match anything in its owner's reach. */
  mayStand(clientId: string, filter: string): boolean;
  /** Whether a connection may be told of a message on `topic` now. */
  mayHear(live: LiveClient, topic: string, message?: Dated): boolean;
  /** Whether the owner of a stored session may be told of a message, connected or not. */
  mayQueue(clientId: string, topic: string, message?: Dated): boolean;
  /** Whether anybody is left to whom a stored session can belong. */
  hasOwner(clientId: string): boolean;
  /** Whether an account is on its way to another server. */
  isAway(accountId: string): boolean;
  /** Whether a retained message can ever be delivered again. */
  mayBeRetained(topic: string): boolean;
}
