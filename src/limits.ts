/** Every limit, in one table: the configuration, docs/limits.md, GET /usage and /metrics take their rows from it. */
import { type ErrorDetail, PlatformError } from './errors.js';

/** One limit. A row of the table below is all that a new one needs, besides the code that enforces it. */
export interface Limit {
  name: string;
  variable: string;
  default: number;
  /** The smallest and the largest value that the variable takes. */
  min: number;
  max: number;
  /** Whether 0 switches it off. */
  off: boolean;
  unit: 'items' | 'bytes' | 'seconds' | 'hours' | 'per second' | 'per minute' | 'per 15 minutes' | 'per hour';
  /** What has this limit each. Limits of the whole service are not shown to accounts. */
  per: string;
  /** What it bounds and what happens beyond it, for docs/limits.md. */
  about: string;
  /** Whether an account's current use is counted; `limitUse` then has a function of this name. */
  counted: boolean;
}

const row = <const L extends Limit>(limit: L): L => limit;
const million = 1_000_000;
const mostBytes = 999_999_999_999_999;

export const limits = [
  row({
    name: 'channelTemplates',
    variable: 'SLIPWAY_MAX_CHANNEL_TEMPLATES',
    default: 100,
    min: 1,
    max: 10_000,
    off: false,
    unit: 'items',
    per: 'device template',
    about: 'channel templates, without the service channels; more are answered 400',
    counted: true,
  }),
  row({
    name: 'customFields',
    variable: 'SLIPWAY_MAX_CUSTOM_FIELDS',
    default: 100,
    min: 1,
    max: 10_000,
    off: false,
    unit: 'items',
    per: 'template; the device templates of an account share one set',
    about: 'custom fields; more are answered 400',
    counted: true,
  }),
  row({
    name: 'valueBytes',
    variable: 'SLIPWAY_MAX_VALUE_BYTES',
    default: 65_536,
    min: 1024,
    max: 16_777_216,
    off: false,
    unit: 'bytes',
    per: 'entity',
    about: 'all values of its fields together, as JSON; more are answered 400',
    counted: false,
  }),
  row({
    name: 'messagesBytes',
    variable: 'SLIPWAY_MESSAGES_MAX_BYTES',
    default: 0,
    // An empty store already takes a seventh of it, and a cap in the wrong unit would empty a full one.
    min: 1_048_576,
    max: mostBytes,
    off: true,
    unit: 'bytes',
    per: 'service',
    about: 'of `messages.db` in use; beyond it the account furthest above its share loses its oldest messages',
    counted: false,
  }),
  row({
    name: 'httpBodyBytes',
    variable: 'SLIPWAY_HTTP_BODY_BYTES',
    default: 1_048_576,
    min: 1024,
    max: 1_073_741_824,
    off: false,
    unit: 'bytes',
    per: 'request',
    about: 'the largest request body; a larger one is answered 413',
    counted: false,
  }),
  row({
    name: 'idempotencyKeys',
    variable: 'SLIPWAY_MAX_IDEMPOTENCY_KEYS',
    default: 10_000,
    min: 1,
    max: million,
    off: true,
    unit: 'items',
    per: 'caller',
    about: 'Idempotency-Keys of the last 72 hours; requests with more are answered 429',
    counted: true,
  }),
  row({
    name: 'httpConnectionsPerAddress',
    variable: 'SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS',
    default: 256,
    min: 1,
    max: 10 * million,
    off: true,
    unit: 'items',
    per: 'address',
    about:
      'open HTTP connections, without MQTT over WebSocket; more are closed at once. Behind a trusted proxy: requests at the same time; more are answered 429',
    counted: false,
  }),
  row({
    name: 'httpRate',
    variable: 'SLIPWAY_HTTP_RATE_PER_CALLER',
    default: 0,
    min: 1,
    max: million,
    off: true,
    unit: 'per second',
    per: 'caller',
    about: 'requests; more are answered 429',
    counted: false,
  }),
  row({
    name: 'loginFailuresPerIdentity',
    variable: 'SLIPWAY_LOGIN_FAILURES_PER_IDENTITY',
    default: 10,
    min: 1,
    max: million,
    off: true,
    unit: 'per 15 minutes',
    per: 'identity and address',
    about: 'failed logins; more are answered 429',
    counted: false,
  }),
  row({
    name: 'loginFailuresPerAddress',
    variable: 'SLIPWAY_LOGIN_FAILURES_PER_ADDRESS',
    default: 100,
    min: 1,
    max: million,
    off: true,
    unit: 'per hour',
    per: 'address',
    about: 'failed logins; more are answered 429',
    counted: false,
  }),
  row({
    name: 'mqttConnectTimeout',
    variable: 'SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS',
    default: 10,
    min: 1,
    max: 3600,
    off: true,
    unit: 'seconds',
    per: 'connection',
    about: 'from accept to CONNACK; then the socket is closed',
    counted: false,
  }),
  row({
    name: 'mqttConnections',
    variable: 'SLIPWAY_MQTT_MAX_CONNECTIONS',
    default: 0,
    min: 1,
    max: 10 * million,
    off: true,
    unit: 'items',
    per: 'service',
    about: 'open sockets of MQTT, including those without a CONNECT; more are closed at once',
    counted: false,
  }),
  row({
    name: 'mqttConnectionsPerAddress',
    variable: 'SLIPWAY_MQTT_MAX_CONNECTIONS_PER_ADDRESS',
    default: 0,
    min: 1,
    max: 10 * million,
    off: true,
    unit: 'items',
    per: 'address',
    about: 'open sockets of MQTT; more are closed at once',
    counted: false,
  }),
  row({
    name: 'mqttConnectionsPerDevice',
    variable: 'SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE',
    default: 20,
    min: 1,
    max: 10 * million,
    off: true,
    unit: 'items',
    per: 'device',
    about: 'MQTT connections; more are refused with CONNACK 3',
    counted: false,
  }),
  row({
    name: 'mqttConnectionsPerPrincipal',
    variable: 'SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL',
    default: 200,
    min: 1,
    max: 10 * million,
    off: true,
    unit: 'items',
    per: 'user, application, or entity with a secret other than a device',
    about: 'MQTT connections, and as many event streams; more are refused with CONNACK 3 or 429',
    counted: false,
  }),
  row({
    name: 'mqttConnectRate',
    variable: 'SLIPWAY_MQTT_CONNECT_RATE_PER_ADDRESS',
    default: 0,
    min: 1,
    max: million,
    off: true,
    unit: 'per second',
    per: 'address',
    about: 'new connections; more wait for their turn',
    counted: false,
  }),
  row({
    name: 'mqttFailedConnectsPerAddress',
    variable: 'SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS',
    default: 600,
    min: 1,
    max: million,
    off: true,
    unit: 'per minute',
    per: 'address',
    about: 'wrong credentials; more are answered late',
    counted: false,
  }),
  row({
    name: 'mqttFailedConnectsPerPrincipal',
    variable: 'SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL',
    default: 30,
    min: 1,
    max: million,
    off: true,
    unit: 'per minute',
    per: 'principal and address',
    about: 'wrong secrets; more are not tried',
    counted: false,
  }),
  row({
    name: 'mqttPacketBytesBeforeConnect',
    variable: 'SLIPWAY_MQTT_MAX_PACKET_BYTES_BEFORE_CONNECT',
    default: 16_384,
    min: 1,
    max: 268_435_455,
    off: true,
    unit: 'bytes',
    per: 'connection',
    about: 'the largest CONNECT',
    counted: false,
  }),
  row({
    name: 'mqttPayloadBytes',
    variable: 'SLIPWAY_MQTT_MAX_PAYLOAD_BYTES',
    default: 131_072,
    min: 1,
    max: 268_435_455,
    off: true,
    unit: 'bytes',
    per: 'message',
    about: 'the largest payload',
    counted: false,
  }),
  row({
    name: 'mqttPayloadPoints',
    variable: 'SLIPWAY_MQTT_MAX_POINTS',
    default: 5000,
    min: 1,
    max: million,
    off: true,
    unit: 'items',
    per: 'payload on a stored channel',
    about:
      'points; a payload with more is delivered but not stored, as `_rejected` explains, and answered 400 over HTTP',
    counted: false,
  }),
  row({
    name: 'mqttPayloadDepth',
    variable: 'SLIPWAY_MQTT_MAX_DEPTH',
    default: 32,
    min: 1,
    max: 1000,
    off: true,
    unit: 'items',
    per: 'payload on a stored channel',
    about: 'levels of nested JSON; a payload with more is delivered but not stored, and answered 400 over HTTP',
    counted: false,
  }),
  row({
    name: 'mqttPublishRate',
    variable: 'SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT',
    default: 5000,
    min: 1,
    max: 10 * million,
    off: true,
    unit: 'per second',
    per: 'client',
    about: 'PUBLISH, SUBSCRIBE and UNSUBSCRIBE; more are read more slowly, and answered 429 over HTTP',
    counted: false,
  }),
  row({
    name: 'mqttByteRate',
    variable: 'SLIPWAY_MQTT_BYTE_RATE_PER_CLIENT',
    default: 8_388_608,
    min: 1,
    max: 10_000 * million,
    off: true,
    unit: 'per second',
    per: 'client',
    about: 'bytes of PUBLISH; more are read more slowly, and answered 429 over HTTP',
    counted: false,
  }),
  row({
    name: 'mqttPointRate',
    variable: 'SLIPWAY_MQTT_POINT_RATE_PER_CLIENT',
    default: 50_000,
    min: 1,
    max: 100 * million,
    off: true,
    unit: 'per second',
    per: 'client',
    about: 'points; more are read more slowly, and answered 429 over HTTP',
    counted: false,
  }),
  row({
    name: 'mqttSubscriptions',
    variable: 'SLIPWAY_MQTT_MAX_SUBSCRIPTIONS',
    default: 200,
    min: 1,
    max: million,
    off: true,
    unit: 'items',
    per: 'client or event stream',
    about: 'subscriptions; more are refused',
    counted: false,
  }),
  row({
    name: 'mqttTopicLevels',
    variable: 'SLIPWAY_MQTT_MAX_TOPIC_LEVELS',
    default: 16,
    min: 1,
    max: 100,
    off: true,
    unit: 'items',
    per: 'topic or filter',
    about: 'levels; more are refused',
    counted: false,
  }),
  row({
    name: 'mqttKeepalive',
    variable: 'SLIPWAY_MQTT_MAX_KEEPALIVE_SECONDS',
    default: 3600,
    min: 1,
    max: 65_535,
    off: true,
    unit: 'seconds',
    per: 'connection',
    about: 'keepalive; a longer one, or none, is shortened to it',
    counted: false,
  }),
  row({
    name: 'mqttRefusals',
    variable: 'SLIPWAY_MQTT_REFUSALS_PER_MINUTE',
    default: 300,
    min: 1,
    max: million,
    off: true,
    unit: 'per minute',
    per: 'client',
    about: 'refused messages; beyond it the client is disconnected, and answered 429 over HTTP',
    counted: false,
  }),
  row({
    name: 'mqttQueue',
    variable: 'SLIPWAY_MQTT_MAX_QUEUE',
    default: 10_000,
    min: 1,
    max: million,
    off: true,
    unit: 'items',
    per: 'stored session',
    about: 'messages kept for it; beyond it the oldest are dropped',
    counted: false,
  }),
  row({
    name: 'mqttSessionExpiry',
    variable: 'SLIPWAY_MQTT_SESSION_EXPIRY_HOURS',
    default: 168,
    min: 1,
    max: 876_000,
    off: true,
    unit: 'hours',
    per: 'stored session',
    about: 'how long it is kept while nobody is connected',
    counted: false,
  }),
] as const;

type AnyLimit = (typeof limits)[number];
export type LimitName = AnyLimit['name'];
/** The limits whose use by an account is counted. */
export type CountedLimit = Extract<AnyLimit, { counted: true }>['name'];
/** The limits as they are configured, by name; 0 is none. */
export type Limits = Readonly<Record<LimitName, number>>;

/** The limits as `read` gives them. */
export function readLimits(read: (limit: Limit) => number): Limits {
  return Object.fromEntries(limits.map((limit) => [limit.name, read(limit)])) as Limits;
}

/**
 * Checks that `count`, as it would be afterwards, is within the limit. `path` names the property that exceeds it.
 * @throws PlatformError 400 with 106 naming the limit.
 */
export function demandWithin(configured: Limits, name: LimitName, count: number, path: string): void {
  const maximum = configured[name];
  if (maximum === 0 || count <= maximum) return;
  throw new PlatformError('invalid', { details: [exceeded(configured, name, path)] });
}

/** What an error says of a limit that is reached. */
export function exceeded(configured: Limits, name: LimitName, path: string): ErrorDetail {
  const { variable, per, unit } = limits.find((limit) => limit.name === name) as AnyLimit;
  const maximum = configured[name];
  const message = `exceeds the limit ${name} (${variable}): at most ${maximum} ${unit} per ${per.split(';')[0]}`;
  return { path, message, limit: name, maximum };
}
