/** Changes of MQTT sessions. Each is absolute: writing it twice has the effect of writing it once. */

/** What a message of MQTT 5 takes along. */
export interface StoredProperties {
  /** Those that travel with the message, as bytes of the protocol; null without any. */
  properties: Uint8Array | null;
  /** Milliseconds since 1970; null for a message that does not expire. */
  expires: number | null;
}

/** `id` grows in the order of acceptance, over the life of the file. */
export interface StoredMessage extends StoredProperties {
  id: number;
  topic: string;
  qos: number;
  payload: Uint8Array;
  /** 1 for one that was published to be retained. */
  retain: number;
}

export interface RetainedMessage extends StoredProperties {
  accountId: string;
  topic: string;
  qos: number;
  payload: Uint8Array;
  /** Milliseconds since 1970; 0 for one of before 0.2.0. */
  stored: number;
}

/** A will, with what its owner had proven: the generation of a secret, the login session, or the id of a certificate or CA. */
export interface StoredWill {
  clientId: string;
  topic: string;
  qos: number;
  retain: number;
  payload: Uint8Array;
  generation: number | null;
  sessionId: string | null;
  properties: Uint8Array | null;
  /** Seconds from its publication on; null for a will that does not expire. */
  messageExpiry: number | null;
  /** Seconds from the end of the connection on. */
  delay: number;
  /** When it is published, in milliseconds since 1970; null while its client is connected. */
  due: number | null;
}

/** Stored sessions and all that is theirs, and what is retained. Numbers are those of the file that it comes from. */
export interface MqttState {
  sessions: { id: number; clientId: string; left: number | null; expiry: number | null }[];
  /** Session, filter, options, subscription identifier. */
  subscriptions: [number, string, number, number | null][];
  /** Message, session, packet id, released. */
  queue: [number, number, number | null, number][];
  incoming: [number, number][];
  messages: (StoredMessage & { payload: Buffer })[];
  retained: (StoredProperties & { accountId: string; topic: string; qos: number; payload: Buffer; stored?: number })[];
  wills: StoredWill[];
}

export type MqttChange =
  /** `left` in milliseconds since 1970, null while a client holds the session; `expiry` in seconds, null for the server's own. */
  | { kind: 'session'; session: number; clientId: string; left: number | null; expiry: number | null }
  /** The end of a session; `messages` are those in its queue. */
  | { kind: 'endSession'; session: number; messages: number[] }
  | { kind: 'subscribe'; session: number; filter: string; options: number; identifier: number | null }
  | { kind: 'unsubscribe'; session: number; filter: string }
  /** A message of an account, and the sessions in whose queues it is. */
  | { kind: 'message'; accountId: string; message: StoredMessage; sessions: readonly number[] }
  /** One place in a queue: the packet id under which it was sent, and whether PUBREL has taken its place. */
  | { kind: 'queue'; session: number; id: number; packetId: number | null; released: number }
  | { kind: 'unqueue'; session: number; id: number }
  | { kind: 'incoming'; session: number; packetId: number }
  | { kind: 'unincoming'; session: number; packetId: number }
  | { kind: 'retain'; retained: RetainedMessage }
  | { kind: 'unretain'; topic: string }
  | { kind: 'will'; will: StoredWill }
  /** Of a will that is on disk. */
  | { kind: 'willDue'; clientId: string; due: number }
  | { kind: 'unwill'; clientId: string };

/** The key of a change: of two changes with the same key, the later counts. */
export function keyOf(change: MqttChange): string {
  switch (change.kind) {
    case 'session':
    case 'endSession':
      return `session ${change.session}`;
    case 'subscribe':
    case 'unsubscribe':
      return `filter ${change.session} ${change.filter}`;
    case 'message':
      return `message ${change.message.id}`;
    case 'queue':
    case 'unqueue':
      return queueKey(change);
    case 'incoming':
    case 'unincoming':
      return `incoming ${change.session} ${change.packetId}`;
    case 'retain':
      return `retained ${change.retained.topic}`;
    case 'unretain':
      return `retained ${change.topic}`;
    case 'will':
      return `will ${change.will.clientId}`;
    case 'willDue':
    case 'unwill':
      return `will ${change.clientId}`;
  }
}

export function queueKey({ session, id }: { session: number; id: number }): string {
  return `queue ${session} ${id}`;
}
