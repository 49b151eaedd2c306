import { Latency } from '../../db/sqlite/latency.ts';
import { handledChannels } from '../../src/core/topics.ts';

/** The MQTT limits of docs/limits.md: each is its variable without `SLIPWAY_MQTT_`, in lower case. */
export const limitNames = [
  'connect_timeout_seconds',
  'max_connections',
  'max_connections_per_address',
  'max_connections_per_principal',
  'max_connections_per_device',
  'connect_rate_per_address',
  'failed_connects_per_address',
  'failed_connects_per_principal',
  'max_packet_bytes_before_connect',
  'max_payload_bytes',
  'max_property_bytes',
  'publish_rate_per_client',
  'byte_rate_per_client',
  'point_rate_per_client',
  'refusals_per_minute',
  'max_subscriptions',
  'max_topic_levels',
  'max_keepalive_seconds',
  'max_queue',
  'max_stored_sessions_per_account',
  'max_filter_bytes_per_account',
  'max_will_bytes_per_account',
  'max_queue_bytes_per_account',
  'max_retained_per_account',
  'max_retained_bytes_per_account',
  'max_unreleased_per_account',
  'session_expiry_hours',
] as const;
export type LimitName = (typeof limitNames)[number];

/** The variable by which a limit is set. */
export function variableOf(limit: LimitName): string {
  return `SLIPWAY_MQTT_${limit.toUpperCase()}`;
}

/** Why a CONNECT was refused, as CONNACK says it; `level` is a protocol level that the broker does not speak. */
export const refusalReasons = [
  'level',
  'identifier_rejected',
  'unavailable',
  'bad_credentials',
  'not_authorized',
] as const;
export type RefusalReason = (typeof refusalReasons)[number];

/** Why a PUBLISH was refused. */
export const publishRefusals = [
  'no_such_channel',
  'not_permitted',
  'not_readable',
  'malformed',
  'too_large',
  'too_often',
] as const;
export type PublishRefusal = (typeof publishRefusals)[number];

/** Why a filter was refused. */
export const filterRefusals = ['out_of_reach', 'too_many', 'malformed', 'too_often'] as const;
export type FilterRefusal = (typeof filterRefusals)[number];

/** Where a message was going; `none` is nowhere, because it was refused. */
export const channelKinds = ['timeSeries', 'simple', ...handledChannels, 'none'] as const;
export type ChannelKind = (typeof channelKinds)[number];

/**
 * What became of a message: on disk; delivered, with nothing to store; delivered, and its payload not, or not all of it,
 * taken, as `_rejected` says; not acknowledged, because the store did not take it; refused.
 */
export const outcomes = ['stored', 'delivered', 'rejected', 'failed', 'refused'] as const;
export type MessageOutcome = (typeof outcomes)[number];

/** Counts of accepted and refused work since the start of the broker. */
export interface Counters {
  /** Published, by whatever way they came. */
  messages: Record<ChannelKind, Record<MessageOutcome, number>>;
  /** Handed to clients, each counted once for every client. */
  sent: number;
  /** From a PUBLISH of QoS 1 to its PUBACK. */
  acknowledgement: Latency;
  refusedConnects: Record<RefusalReason, number>;
  /** Usernames and passwords over HTTP. */
  failedBasics: number;
  refusedPublishes: Record<PublishRefusal, number>;
  refusedSubscriptions: Record<FilterRefusal, number>;
  /** QoS 0 messages not sent to a subscriber that does not read. */
  shed: number;
  /** Messages that fell out of a full session queue, and those longer than a client takes. */
  dropped: Record<'queue' | 'size', number>;
  /** Messages that expired before they could be delivered, in queues and retained. */
  expired: number;
  limitHits: Record<LimitName, number>;
}

export function newCounters(): Counters {
  const messages = Object.fromEntries(channelKinds.map((kind) => [kind, zeros(outcomes)]));
  return {
    messages: messages as Counters['messages'],
    sent: 0,
    acknowledgement: new Latency(),
    refusedConnects: zeros(refusalReasons),
    failedBasics: 0,
    refusedPublishes: zeros(publishRefusals),
    refusedSubscriptions: zeros(filterRefusals),
    shed: 0,
    dropped: { queue: 0, size: 0 },
    expired: 0,
    limitHits: zeros(limitNames),
  };
}

/** Counts a PUBLISH that was refused. */
export function refusePublish(counters: Counters, reason: PublishRefusal): void {
  counters.refusedPublishes[reason] += 1;
  counters.messages.none.refused += 1;
}

function zeros<K extends string>(names: readonly K[]): Record<K, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<K, number>;
}
