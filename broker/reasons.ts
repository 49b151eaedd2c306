import { type ErrorDetail, type FailureKind, failure } from '../src/core/errors.ts';
import type { Rejection } from '../src/ports/broker-ports.ts';
import { type LimitName, type PublishRefusal, type RefusalReason, variableOf } from './connections/counters.ts';

interface Row {
  kind: FailureKind;
  /** Instead of the sentence of the kind; the variable of the limit stands before it. */
  message?: string;
  details?: ErrorDetail[];
  /** The reason code of MQTT 5. */
  mqtt5: number;
  /** What a PUBLISH that is refused for it counts as. */
  counted?: PublishRefusal;
  /** The limit that has been reached. */
  limit?: LimitName;
  /** Whether a connection ends by it; `below 5`: only one whose level cannot say why instead. */
  ends?: true | 'below 5';
}

const isMalformed = [{ path: 'topic', message: 'is malformed' }];
/** Said to a device of its own topics alone: of others nobody learns what is there. */
const isNotOfTemplate = [{ path: 'topic', message: 'no such channel on the template of the device' }];
const farOver = { kind: 'tooMany', message: 'far over it, disconnected.', mqtt5: 0x96, ends: true } as const;

/**
 * Why the broker refuses a message or a filter, or does not do all that was asked. Programs compare the code; people read
 * the sentence on `_rejected`, in the list of refusals and over HTTP.
 */
const rows = {
  notPermitted: { kind: 'forbidden', mqtt5: 0x87, counted: 'not_permitted' },
  noSuchChannel: { kind: 'notFound', mqtt5: 0x87, counted: 'no_such_channel' },
  noChannelOfItsOwn: { kind: 'notFound', details: isNotOfTemplate, mqtt5: 0x87, counted: 'no_such_channel' },
  /** A topic or filter that no channel can have, and one that is no filter. */
  noChannelTopic: { kind: 'notFound', mqtt5: 0x90, counted: 'no_such_channel' },
  noChannelFilter: { kind: 'notFound', mqtt5: 0x8f },
  malformedFilter: { kind: 'invalid', details: [{ path: 'filter', message: 'is malformed' }], mqtt5: 0x8f },
  noSuchSubscription: { kind: 'notFound', mqtt5: 0x11 },
  packetIdInUse: { kind: 'invalid', message: 'The packet id is that of another message.', mqtt5: 0x91 },
  controlOverHttp: {
    ...{ kind: 'forbidden', message: 'Control topics are used over MQTT only.' },
    ...{ mqtt5: 0x87, counted: 'no_such_channel' },
  },
  renewalOverHttp: {
    ...{ kind: 'forbidden', message: 'A credential is renewed over MQTT, or with POST /enroll/renew.' },
    ...{ mqtt5: 0x87, counted: 'no_such_channel' },
  },
  malformedTopic: {
    ...{ kind: 'invalid', details: isMalformed, mqtt5: 0x90, counted: 'malformed', ends: 'below 5' },
  },
  tooManyLevels: {
    ...{ kind: 'invalid', details: isMalformed, mqtt5: 0x90, counted: 'malformed' },
    ...{ limit: 'max_topic_levels', ends: 'below 5' },
  },
  tooManyFilters: {
    ...{ kind: 'tooMany', message: 'the client has too many filters.', mqtt5: 0x97 },
    ...{ limit: 'max_subscriptions' },
  },
  tooManyFilterBytes: {
    ...{ kind: 'tooMany', message: 'the filters of stored sessions of the account are too large.', mqtt5: 0x97 },
    ...{ limit: 'max_filter_bytes_per_account' },
  },
  tooManyGroups: { kind: 'tooMany', message: 'the account has too many shared subscriptions.', mqtt5: 0x97 },
  payloadTooLarge: {
    ...{ kind: 'tooLarge', message: 'the payload is too large.', mqtt5: 0x95, counted: 'too_large' },
    ...{ limit: 'max_payload_bytes', ends: true },
  },
  propertiesTooLarge: {
    ...{ kind: 'tooLarge', message: 'the message has too many properties.', mqtt5: 0x97, counted: 'too_large' },
    ...{ limit: 'max_property_bytes' },
  },
  responseTopicNotPermitted: {
    ...{ kind: 'forbidden', message: 'The sender may not subscribe to the response topic.' },
    ...{ mqtt5: 0x87, counted: 'not_permitted' },
  },
  noText: {
    ...{ kind: 'invalid', message: 'The payload is said to be text, and is no UTF-8.' },
    ...{ mqtt5: 0x99, counted: 'not_readable' },
  },
  tooManyRefusals: {
    ...{ kind: 'tooMany', message: 'refused too often, disconnected.', mqtt5: 0x97, counted: 'too_often' },
    ...{ limit: 'refusals_per_minute', ends: true },
  },
  tooManyUnreleased: {
    ...{ kind: 'tooMany', message: 'too many QoS 2 messages of the account wait for PUBREL, disconnected.' },
    ...{ mqtt5: 0x97, limit: 'max_unreleased_per_account', ends: true },
  },
  tooManyMessages: { ...farOver, limit: 'publish_rate_per_client' },
  tooManyBytes: { ...farOver, limit: 'byte_rate_per_client' },
  tooManyPoints: { ...farOver, limit: 'point_rate_per_client' },
  /** A service cannot use the payload, and says why. */
  notUsable: { kind: 'invalid', mqtt5: 0x99, counted: 'not_readable' },
  notReadable: { kind: 'invalid', message: 'The payload was delivered but not stored.', mqtt5: 0x99 },
  storedInPart: { kind: 'invalid', message: 'The payload was delivered, and stored in part.', mqtt5: 0x99 },
  notRetained: { kind: 'invalid', message: 'The message was delivered but not retained.', mqtt5: 0x97 },
  notStored: { kind: 'server', message: 'The message could not be stored.', mqtt5: 0x80 },
  storeFull: { kind: 'storeFull', message: 'The message could not be stored.', mqtt5: 0x97 },
} as const satisfies Record<string, Row>;

export type ReasonCode = keyof typeof rows;
const byCode: Record<ReasonCode, Row> = rows;
const codes = Object.keys(rows) as ReasonCode[];

/** Why a server ends a connection: the reason code of MQTT 5, and its Reason String. */
export interface End {
  code: number;
  sentence?: string | undefined;
}

export const ends = {
  secret: { code: 0x87, sentence: 'The secret is in force no more.' },
  certificate: { code: 0x87, sentence: 'The certificate is in force no more.' },
  revocation: { code: 0x87, sentence: 'The certificate has been revoked.' },
  session: { code: 0x87, sentence: 'The login session has ended.' },
  role: { code: 0x98, sentence: 'No role of it may connect any more.' },
  place: { code: 0x98, sentence: 'Nothing is within its reach any more.' },
  deletion: { code: 0x98, sentence: 'It has been deleted.' },
  enrolled: { code: 0x98, sentence: 'It was there to enroll.' },
  shuttingDown: { code: 0x8b, sentence: 'The service stops. Connect again.' },
  keepAlive: { code: 0x8d, sentence: 'Nothing came within one and a half times the keepalive.' },
  takenOver: { code: 0x8e, sentence: 'Another connection has the same client id.' },
  useAnotherServer: { code: 0x9c, sentence: 'The account is on another server. Connect again.' },
  unspecified: { code: 0x80 },
} as const satisfies Record<string, End>;

/** Nobody has subscribed to a message, and nothing stored it. */
export const noMatchingSubscribers = 0x10;
export const packetIdInUse = 0x91;
export const packetIdNotFound = 0x92;

/** Why a CONNECT is refused: the return code of CONNACK up to level 4, and the reason code of MQTT 5. */
export const connectReasons = {
  level: { connack: 1, mqtt5: 0x84 },
  identifier_rejected: { connack: 2, mqtt5: 0x85 },
  unavailable: { connack: 3, mqtt5: 0x88 },
  bad_credentials: { connack: 4, mqtt5: 0x86 },
  not_authorized: { connack: 5, mqtt5: 0x87 },
} as const satisfies Record<RefusalReason, { connack: number; mqtt5: number }>;

/** A reason with its sentence, and with what can be said of this one case. */
export interface Reason extends Rejection {
  code: ReasonCode;
}

export function reason(code: ReasonCode, more?: ErrorDetail[]): Reason {
  const { kind, message, limit, details = more } = byCode[code];
  const sentence = message !== undefined && limit ? `${variableOf(limit)}: ${message}` : message;
  return {
    ...failure(kind, { ...(sentence !== undefined && { message: sentence }), ...(details && { details }) }),
    code,
  };
}

/** What a service says of a message. */
export function unusable(rejection: Rejection): Reason {
  return { ...rejection, code: 'notUsable' };
}

/** What the table says of a reason. */
export function rowOf({ code }: Pick<Reason, 'code'>): Row {
  return byCode[code];
}

/** Whether a connection of this level ends by a reason. */
export function endsConnection(why: Pick<Reason, 'code'>, level: 3 | 4 | 5): boolean {
  const { ends } = rowOf(why);
  return ends === true || (ends === 'below 5' && level < 5);
}

/** Whether MQTT 5 acknowledges a message with a failure for this reason. */
export function isFailure(code: number): boolean {
  return code >= 0x80;
}

/** The reason of a limit by which a connection ends; undefined for a limit that no device is told of. */
export function reasonOfLimit(limit: LimitName): Reason | undefined {
  const code = codes.find((one) => byCode[one].limit === limit);
  return code && reason(code);
}
