/** The types of messages, on their way in and out. */
import type { StoredProperties } from '../db/messages/sessions/changes.ts';
import type { ClientProperties } from '../src/core/formats/message-properties.ts';

/** A PUBLISH, of every level of MQTT. */
export interface Publish {
  cmd: 'publish';
  topic: string;
  payload: Buffer;
  qos: 0 | 1 | 2;
  retain: boolean;
  dup: boolean;
  messageId?: number | undefined;
}

/** What a message of MQTT 5 takes along, also on its way through `broker/routing.ts`. */
export interface Carried {
  /** Bytes of the properties that travel with it. */
  properties?: Uint8Array | undefined;
  /** When it expires, in milliseconds since 1970; `forNow` for one that is kept for nobody. */
  messageExpiry?: number | undefined;
}

/** The expiry of a message that goes to those who can have it at once. To all who keep messages it expired long ago. */
export const forNow = 0;

export function isForNow({ messageExpiry }: Carried): boolean {
  return messageExpiry === forNow;
}

/** A will as the CONNECT packet carries it; `delay` in seconds. */
export type Will = Pick<Publish, 'topic' | 'payload' | 'qos' | 'retain'> & {
  delay?: number;
  clientProperties?: ClientProperties | undefined;
};

/**
 * A PUBLISH as it came; `clientProperties` are what an MQTT 5 client says of it, until that is carried along; `clientId` is
 * its publisher.
 * It is numbered when it is handed on.
 */
export type Incoming = Publish &
  Carried & {
    clientProperties?: ClientProperties | undefined;
    clientId?: string;
    brokerId?: typeof forAll;
    brokerCounter?: number;
  };

/** The group of a shared subscription. */
export interface GroupName {
  /** Account, share name and filter. */
  readonly key: string;
  /** As it is subscribed to. */
  readonly shared: string;
}

/**
 * A message on its way to one subscriber; `identifiers` are those of its filters that match, `group` is that for which it was
 * chosen; `isFirst` is what was retained when it subscribed.
 */
export type Outgoing = Publish &
  Carried & {
    /** Undefined for what is retained, and for what a stored session has kept. */
    brokerId?: typeof forAll | typeof forOneClient | undefined;
    brokerCounter: number;
    clientId?: string;
    identifiers?: number[];
    group?: GroupName;
    isFirst?: true;
  };

/** A filter of a client. A bridge wants no message back that it has sent, and the retain flag as it was published; `identifier` is that of MQTT 5. */
export interface Subscription {
  topic: string;
  qos: 0 | 1 | 2;
  rh?: number;
  rap?: boolean;
  nl?: boolean;
  identifier?: number;
  /** Of a stored session that has not received what was retained. */
  isRetainedDue?: boolean;
}

/** The same as it is written to the disk. */
export function storedProperties({ properties, messageExpiry }: Carried): StoredProperties {
  return { properties: properties ?? null, expires: messageExpiry ?? null };
}

/** Bytes of a message, as the store counts them. */
export function sizeOf(message: {
  topic: string;
  payload: Uint8Array;
  properties?: Uint8Array | null | undefined;
}): number {
  return Buffer.byteLength(message.topic) + message.payload.length + (message.properties?.length ?? 0);
}

/** And as it comes from there: nothing where there was nothing. */
export function carriedOf({ properties, expires }: StoredProperties): Carried {
  return { ...(properties !== null && { properties }), ...(expires !== null && { messageExpiry: expires }) };
}

/** The `brokerId` of a message for all who have subscribed. Its counter says where it is among those of all. */
export const forAll = 'all';
/** That of a message for one client: it is not among the messages of all, and may overtake those that wait. */
export const forOneClient = 'one client';

/** Whether the counter of a message says where it is among those of all. Retained messages have no such place. */
export function isOrdered({ brokerId }: Pick<Outgoing, 'brokerId'>): boolean {
  return brokerId === forAll;
}
