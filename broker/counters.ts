/** The limits of the README's table: each is its variable without `SLIPWAY_MQTT_`, in lower case. */
export const limitNames = [
  'connect_timeout_seconds',
  'max_connections',
  'max_connections_per_address',
  'max_connections_per_principal',
  'connect_rate_per_address',
  'failed_connects_per_address',
  'failed_connects_per_principal',
  'max_packet_bytes_before_connect',
  'max_payload_bytes',
  'publish_rate_per_client',
  'refusals_per_minute',
  'max_subscriptions',
  'max_topic_levels',
  'max_keepalive_seconds',
  'max_queue',
  'session_expiry_hours',
] as const;
export type LimitName = (typeof limitNames)[number];

/** The variable by which a limit is set. */
export function variableOf(limit: LimitName): string {
  return `SLIPWAY_MQTT_${limit.toUpperCase()}`;
}

/** Why a CONNECT was refused, as CONNACK says it. */
export const refusalReasons = ['identifier_rejected', 'unavailable', 'bad_credentials', 'not_authorized'] as const;
export type RefusalReason = (typeof refusalReasons)[number];

/** What the broker has turned away since its start. */
export interface Counters {
  refusedConnects: Record<RefusalReason, number>;
  /** Usernames and passwords over HTTP. */
  failedBasics: number;
  refusedPublishes: number;
  refusedSubscriptions: number;
  /** QoS 0 messages not sent to a subscriber that does not read. */
  shed: number;
  /** Messages that fell out of a full session queue. */
  dropped: number;
  limitHits: Record<LimitName, number>;
}

export function newCounters(): Counters {
  return {
    refusedConnects: zeros(refusalReasons),
    failedBasics: 0,
    refusedPublishes: 0,
    refusedSubscriptions: 0,
    shed: 0,
    dropped: 0,
    limitHits: zeros(limitNames),
  };
}

function zeros<K extends string>(names: readonly K[]): Record<K, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<K, number>;
}
