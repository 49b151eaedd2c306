/** What the published types of Aedes 1.2 leave out and this folder relies on. Nothing else reaches into Aedes. */
import type { Aedes, AedesPublishPacket, Client, PublishPacket } from 'aedes';
import type { LiveClient } from './live-clients.js';

/** A will as the CONNECT packet carries it: a PUBLISH without `cmd`. */
export type Will = Omit<PublishPacket, 'cmd' | 'dup' | 'payload'> & { payload: Buffer };

/** A PUBLISH on its way through the hooks; `authorizePublish` may rewrite it before it is delivered. */
export type Incoming = PublishPacket & { payload: Buffer };

/** A message on its way to one subscriber. */
export type Outgoing = AedesPublishPacket;

export interface BrokerClient extends Client {
  /** Ours, from preConnect on; undefined before CONNECT. */
  live?: LiveClient;
  /** The will that fires when the connection ends; null once it has fired or has been dropped. */
  will: Will | null;
  /** The will of a CONNECT that is not finished yet. */
  _will: Will | null;
  /** The packet id that the next message gets. */
  _nextId: number;
  readonly subscriptions: Readonly<Record<string, { qos: 0 | 1 | 2 }>>;
}

export interface BrokerCore extends Aedes {
  /** The counter of the last message. */
  counter: number;
  /** Forgets a client that was registered although it had been closed. */
  deleteClient(clientId: string): void;
}
