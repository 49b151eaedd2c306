/** The types of a connection. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Caller } from '../src/core/caller.ts';
import type { TrustPath } from '../src/ports/broker-ports.ts';
import type { Match } from './connections/filters.ts';
import type { Outgoing, Subscription, Will } from './message-types.ts';
import type { Codec } from './packets/codec.ts';
import type { NewFilters } from './packets/new-filters.ts';
import type { Turns } from './packets/turns.ts';
import type { End } from './reasons.ts';
import type { PacketIds } from './sessions/packet-ids.ts';

/** The next packet of the connection may come; with an error the connection ends. */
export type PacketDone = (error?: Error | null) => void;

/** A client from its CONNECT on. */
export interface BrokerClient {
  /** Private to the principal; empty until the credential is proven. */
  id: string;
  /** Whether nothing of its session is kept. */
  readonly clean: boolean;
  /** Whether it has begun a new session. */
  readonly cleanStart: boolean;
  /** Seconds that its session is kept when it leaves; Infinity for as long as the server keeps any. DISCONNECT may change it. */
  sessionExpiry: number;
  /** Messages of QoS 1 and 2 that it is sent before it acknowledges any. */
  readonly receiveMaximum: number;
  readonly conn: Duplex;
  /** Of a WebSocket. */
  readonly request: IncomingMessage | undefined;
  readonly live: LiveClient;
  /** How packets are written to it. */
  readonly codec: Codec;
  closed: boolean;
  /** Published when the connection ends; undefined once it has been, or when it is void. */
  will: Will | undefined;
  /** Filters in force. */
  readonly subscriptions: ReadonlyMap<string, Subscription>;
  /** Packets that are being handled. */
  readonly inFlight: number;
  /** A message of it holds so many points. */
  charge(points: number): void;
  /** It is alive: it has sent something, or reads what it is sent. */
  keepAlive(): void;
  /** Whether what it was sent has waited so long that nobody waits for it. */
  readonly isSlow: boolean;
  /** Calls back once the socket has room again, at once when it has, after some seconds, or when the connection ends. */
  whenWritable(done: () => void): void;
  subscribe(filter: Subscription): void;
  unsubscribe(filters: readonly string[]): void;
  /** What its filters say of a message on `topic`; undefined when it is not to have it. `isOwn`: it has published it. */
  matchOf(topic: string, isOwn?: boolean): Match | undefined;
  /** The same for a message that its stored session has kept, for a group or not. */
  matchOfKept(kept: Pick<Outgoing, 'topic' | 'group'>): Match | undefined;
  /** Sends it a message; `done` when the next may follow. */
  deliver(packet: Outgoing, done: () => void): void;
  /** Ends it, by an error if there is one; a client of MQTT 5 that has its CONNACK is told why. */
  endConnection(end: End, error?: Error): void;
  /** Ends it with last bytes, which it has time to read. */
  leaveWith(bytes: Buffer, error?: Error): void;
  /** Ends it by an error. */
  fail(error: Error): void;
  close(): void;
  /** Its connection, which was in use, is registered no more. */
  left(): void;
}

/** One connection, from its CONNECT packet on. */
export interface LiveClient {
  readonly client: BrokerClient;
  /** The client id as it was sent, or as it was assigned; that of `client` is private to the principal. */
  clientId: string;
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
  /** The order of what is answered to this client, and of its messages to others; that of its predecessor goes on. */
  turns: Turns;
  /** The order of the messages to this client. */
  readonly leaving: Turns;
  /** The counter of the last message in its reach that this client has been offered. */
  lastHeard: number;
  /** The highest counter of a message that it has been sent from the queue of its stored session. */
  lastKept: number;
  /** The packet ids of the messages to this client; a stored session has its own, for all its connections. */
  ids: PacketIds;
  /** Messages that wait until the client has acknowledged others, where no stored session keeps them. */
  held: Outgoing[] | undefined;
  /** Messages of groups that have been sent and not acknowledged, by packet id, where no stored session keeps them. */
  shared: Map<number, Outgoing> | undefined;
  /** Called when it may be sent one more; undefined when nothing waits for that. */
  waitingForRoom: Array<() => void> | undefined;
  /** Those whose retained messages it has not received whole; undefined without any. */
  newFilters: NewFilters | undefined;
  /** Whether it is being sent what its stored session has kept. */
  isCatchingUp: boolean;
  /** QoS 2 messages of this connection that wait for their PUBREL; undefined before the first. */
  unreleased: Set<number> | undefined;
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
  readonly ground: TrustPath | undefined;
  /** Milliseconds since 1970; Infinity for a secret. */
  readonly expires: number;
  /** `<root>/<account>/d/<device>/` of a device; undefined for users. */
  readonly ownChannels: string | undefined;
}
