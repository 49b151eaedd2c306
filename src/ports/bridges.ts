/** Messages on their way to other systems. */
import type { StoredProperties } from '../../db/messages/sessions/changes.ts';
import type { Channel } from '../core/channels.ts';

/** A message that has been accepted on a channel, no matter who published it. */
export interface AcceptedMessage extends StoredProperties {
  accountId: string;
  deviceId: string;
  channel: Channel;
  qos: number;
  payload: Uint8Array;
}

/** The bridges of accounts: they take over messages of channels with a `streamBridgeDelivery`. */
export interface BridgeService {
  /** Whether messages of this channel go to a bridge of the account. */
  takes(message: Pick<AcceptedMessage, 'accountId' | 'channel'>): boolean;
  /** How many rows of the outbox a message of this channel takes: one for each bridge of the account. */
  outboxRowsOf(message: Pick<AcceptedMessage, 'accountId' | 'channel'>): number;
  /** The reason why a message of this channel cannot be guaranteed now: no room for what the account has pending. */
  refusal(message: Pick<AcceptedMessage, 'accountId' | 'channel'>): Error | undefined;
  /** Calls `done` once: for level 2 when the message is on disk, or with the error for which it is not; for level 1 at once. */
  takeMessage(message: AcceptedMessage, done: (error?: Error) => void): void;
}
