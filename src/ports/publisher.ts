/** Messages of callers that have no connection. */

import type { Socket } from 'node:net';
import type { LogInput } from '../../db/messages/store.ts';
import type { Placement } from '../../db/registry/index.ts';
import type { Caller } from '../core/caller.ts';
import type { Allowance, Failure } from '../core/errors.ts';
import type { ClientProperties } from '../core/formats/message-properties.ts';
import type { CredentialInForce, PresentedCertificate } from './proofs.ts';

/** Messages of callers that have no connection. */
export interface Publisher {
  /**
   * Proves a username and password as CONNECT does, under the same limits: late where too many have failed, and not at
   * all where too many were wrong for one username from one address.
   */
  proveCaller(username: string, password: string, address: string): Promise<ProvenCaller | ProofRefusal>;
  /**
   * Proves the client certificate of a socket, under the same limits. `username` is the id of the device or of its account,
   * or empty. Undefined if the socket has none.
   */
  proveCertificate(socket: Socket, username: string, address: string): Promise<ProvenCaller | ProofRefusal | undefined>;
  /** The client certificate of a socket; undefined if it has none. */
  presentedBy(socket: Socket): PresentedCertificate | undefined;
  /** The decision about a caller's PUBLISH on a topic, or SUBSCRIBE to a filter, without carrying it out. */
  decide(caller: Caller, action: 'publish' | 'subscribe', topic: string): 'granted' | 'refused' | 'malformed';
  /**
   * Publishes as a caller without a connection: what PUBACK promises is true when it resolves. Refusals are explained as over MQTT,
   * and here. @throws PlatformError 429/-199 past the rates of one client; what the store says when it takes nothing more.
   */
  publish(caller: Caller, message: Direct): Promise<Published>;
  /**
   * Stores a log entry that came over HTTP and delivers it on the device's `_log`; its id when it is on disk, as before
   * a PUBACK. Rejects when it could not be stored.
   */
  logPosted(device: Placement, entry: LogInput & { received: number }, payload: Buffer): Promise<string>;
}

/** Why a message was refused or not stored; `errorBody` makes of it what `_rejected` says. */
export type Rejection = Failure;

/** The caller that has proven a password. */
export interface ProvenCaller {
  caller: Caller;
  /** Undefined for a token. */
  credential: CredentialInForce | undefined;
  /** As what it may act now; undefined when it has been cut off since. */
  currentCaller(): Caller | undefined;
}

/**
 * Why a username and password were not accepted: `wrong` (an invalid token, too), right for an entity that may not
 * speak now (in the trash, say), or not looked at, past the limit whose variable is `limit`.
 */
export interface ProofRefusal {
  refused: 'wrong' | 'notNow' | 'tooMany';
  limit?: string;
  allowance?: Allowance;
}

/** A message that comes without a connection. */
export interface Direct {
  topic: string;
  payload: Buffer;
  qos: 0 | 1 | 2;
  retain: boolean;
  /** What an MQTT 5 client would say of it. */
  clientProperties?: ClientProperties | undefined;
}

/**
 * What has become of it: refused when it was not delivered; delivered with a rejection when it could not be stored, all of
 * it. `points` are those that were.
 */
export interface Published {
  delivered: boolean;
  rejection?: Rejection | undefined;
  points?: number;
}
