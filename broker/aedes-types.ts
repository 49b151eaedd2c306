/** The types of a connection and of its messages: ours, and what the published types of Aedes 1.2 leave out. Nothing else reaches into Aedes. */
import type { EventEmitter } from 'node:events';
import type { Aedes, AedesPublishPacket, Client, PublishPacket } from 'aedes';
import type { Caller } from '../src/access.ts';
import type { Turns } from './packets/turns.ts';

/** A will as the CONNECT packet carries it: a PUBLISH without `cmd`. */
export type Will = Omit<PublishPacket, 'cmd' | 'dup' | 'payload'> & { payload: Buffer };

/** A PUBLISH on its way through the hooks; `authorizePublish` may rewrite it before it is delivered. */
export type Incoming = PublishPacket & { payload: Buffer };

/** A message on its way to one subscriber; `nl` when one that sent it must not get it back. */
export type Outgoing = AedesPublishPacket & { clientId?: string; nl?: boolean };

/** The `brokerId` of a message for one client: it is not among the messages of all, and may overtake those that wait. */
export const forOneClient = 'one client';

/** Whether the counter of a message says where it is among those of all. Retained messages have no such place. */
export function isOrdered({ brokerId }: Pick<Outgoing, 'brokerId'>): boolean {
  return !!brokerId && brokerId !== forOneClient;
}

type Deliver = (packet: Outgoing, done: (error?: Error) => void) => void;

/** The socket of a client, for those above it. */
export interface Connection {
  /** The protocol level of its CONNECT; undefined before. */
  readonly level: number | undefined;
  /** Packets that are being handled. */
  readonly inFlight: number;
  /** A message that has passed holds so many points. */
  charge(points: number): void;
  /** CONNACK has been sent: the deadline is over, and the larger limits hold. */
  opened(): void;
}

export interface BrokerClient extends Client {
  /** Ours, from preConnect on; undefined before CONNECT. */
  live?: LiveClient;
  /** Ours, as soon as Aedes has the client. */
  connection?: Connection;
  /** Reads the CONNECT, and nothing after it. */
  _parser: EventEmitter & { _queue: unknown; parse(bytes: Buffer): number };
  /** The will that fires when the connection ends; null once it has fired or has been dropped. */
  will: Will | null;
  /** The will of a CONNECT that is not finished yet. */
  _will: Will | null;
  /** The packet id that the next message gets. */
  _nextId: number;
  /** Whether a DISCONNECT has come: then the will is void. */
  _disconnected: boolean;
  /** Ends the connection; `_keepaliveInterval` is milliseconds, or 0 and less for none. */
  readonly _keepaliveTimer: NodeJS.Timeout | null;
  readonly _keepaliveInterval: number;
  /** Delivers a message to this client, by the QoS of the subscription. */
  deliver0: Deliver;
  deliverQoS: Deliver;
  /** Calls back when the socket has drained; ends the connection when it does not in time. */
  waitForDrain(done: (error?: Error) => void): void;
  readonly subscriptions: Readonly<Record<string, { qos: 0 | 1 | 2 }>>;
}

export interface BrokerCore extends Aedes {
  /** The counter of the last message. */
  counter: number;
  /** Hands a message of this client on to its subscribers. */
  publish: Aedes['publish'] & ((packet: Incoming, client: BrokerClient, done: (error?: Error) => void) => void);
  /** Forgets a client that was registered although it had been closed. */
  deleteClient(clientId: string): void;
}

/** One connection, from its CONNECT packet on. Aedes can lose a live client; this registry cannot. */
export interface LiveClient {
  readonly client: BrokerClient;
  /** The client id as it was sent; Aedes knows one that is private to the principal. */
  readonly clientId: string;
  readonly address: string | undefined;
  /** In the log. */
  readonly connectionId: string | undefined;
  /** Set once the credential is proven. */
  identity: ProvenIdentity | undefined;
  /** Whether CONNACK has been sent and the session is in use. */
  ready: boolean;
  ended: boolean;
  /** Whether it was ended because its principal was cut off: then its will is void. */
  kicked: boolean;
  /** Whether its first message has been noted; the one thing of it that a PUBLISH looks at. */
  hasPublished: boolean;
  /** Its messages on their way to the registry. */
  reporting: number;
  /** Topic filters in force, those of a restored session included. */
  readonly filters: Set<string>;
  /** Lowest and highest QoS among the filters; deliveries are capped to it. */
  lowestQos: 0 | 1 | 2;
  highestQos: 0 | 1 | 2;
  /** Refused packets since `since` (milliseconds); the window is a minute. */
  refusals: { since: number; count: number };
  /** The order of what is answered to this client, and of its messages to others. */
  readonly turns: Turns;
  /** The order of the messages to this client. */
  readonly leaving: Turns;
  /** The counter of the last message in its reach that this client has been offered. */
  lastHeard: number;
  /** The next packet expected from the client for a message, by packet id; undefined before the first. */
  sent: Map<number, 'puback' | 'pubrec' | 'pubcomp'> | undefined;
  /** QoS 2 messages of this connection that wait for their PUBREL; undefined before the first. */
  unreleased: Set<number> | undefined;
  /** Filters of the SUBSCRIBE under way that were refused, if any, and who hears when all of it has been answered. */
  refusedFilters: Set<string> | undefined;
  whenSubscribed: (() => void) | undefined;
  /** Whether a stored session was found. */
  sessionPresent: boolean;
}

export interface ProvenIdentity {
  caller: Caller;
  /** The owner of sessions: the device, the identity, or the entity that holds the secret. */
  readonly principal: string;
  /** The secret that was proven; undefined for a JWT and for a certificate. */
  readonly generation: number | undefined;
  readonly sessionId: string | undefined;
  /** Of the token of a session, in milliseconds: unused for so long, the session lets nobody in. */
  readonly tokenLifetime: number | undefined;
  /** The certificate, or the CA, that let it in. */
  readonly certificateId: string | undefined;
  /** Milliseconds since 1970; Infinity for a secret. */
  readonly expires: number;
  /** `<root>/<account>/d/<device>/` of a device; undefined for users. */
  readonly ownChannels: string | undefined;
}
