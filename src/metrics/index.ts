/** What the process counts, in the text form of Prometheus at /metrics (decisions 5). */
import { Counter, Gauge, Registry } from 'prom-client';
import type { Context } from '../context.js';
import type { App } from '../http.js';
import { demandToken } from '../operator-token.js';
import { expiringSoon, warnedDays } from '../registry/certificate-expiry.js';

/** Mounts the endpoint: open unless a token is configured, which callers then send as Bearer. */
export function metricsRoutes(
  app: App,
  ctx: Pick<Context, 'broker' | 'bridges' | 'config' | 'messages' | 'keeping' | 'registry' | 'clock'>,
): void {
  const registry = new Registry();
  brokerMetrics(registry, ctx);
  bridgeMetrics(registry, ctx);
  messageMetrics(registry, ctx);
  certificateMetrics(registry, ctx);
  const { metricsToken } = ctx.config;
  app.get('/metrics', { schema: { hide: true } }, async (request, reply) => {
    demandToken(request, metricsToken);
    reply.header('cache-control', 'no-store').type(registry.contentType);
    return reply.send(await registry.metrics());
  });
}

/** Everything is read when it is asked for: the broker counts on its own. */
function brokerMetrics(registry: Registry, { broker }: Pick<Context, 'broker'>): void {
  const { counters } = broker;
  gauge(registry, 'slipway_mqtt_sockets', 'Open sockets of MQTT.', () => broker.gauges.sockets);
  gauge(registry, 'slipway_mqtt_connections', 'MQTT clients that are connected.', () => broker.gauges.connections);
  gauge(registry, 'slipway_mqtt_stored_sessions', 'Stored MQTT sessions.', () => broker.gauges.storedSessions);
  gauge(registry, 'slipway_streams', 'Streams of server-sent events.', () => broker.gauges.streams);
  counterBy(registry, 'slipway_mqtt_limit_hits_total', 'How often a limit was reached.', 'limit', counters.limitHits);
  counterBy(
    registry,
    'slipway_mqtt_refused_connects_total',
    'CONNECTs that were refused.',
    'reason',
    counters.refusedConnects,
  );
  counter(
    registry,
    'slipway_http_basic_failures_total',
    'Usernames and passwords over HTTP that were refused.',
    () => counters.failedBasics,
  );
  counter(
    registry,
    'slipway_mqtt_refused_publishes_total',
    'Messages that were refused.',
    () => counters.refusedPublishes,
  );
  counter(
    registry,
    'slipway_mqtt_refused_subscriptions_total',
    'Filters that were refused.',
    () => counters.refusedSubscriptions,
  );
  counter(
    registry,
    'slipway_mqtt_shed_messages_total',
    'QoS 0 messages not sent to clients that do not read.',
    () => counters.shed,
  );
  counter(
    registry,
    'slipway_mqtt_dropped_messages_total',
    'Messages that fell out of the queues of stored sessions.',
    () => counters.dropped,
  );
}

/** Of all accounts together. What the system or an empty store does not say is not a number. */
function messageMetrics(
  registry: Registry,
  { messages, keeping, config }: Pick<Context, 'messages' | 'keeping' | 'config'>,
): void {
  const { maxBytes } = config.messages;
  gauge(registry, 'slipway_messages_bytes', 'Bytes of messages.db in use.', () => messages.size);
  gauge(registry, 'slipway_messages_max_bytes', 'Its cap, SLIPWAY_MESSAGES_MAX_BYTES; 0 is none.', () => maxBytes);
  gauge(
    registry,
    'slipway_messages_outbox_pending_bytes',
    'Payload that bridges have not delivered yet.',
    () => messages.outboxPending,
  );
  gauge(registry, 'slipway_messages_points', 'Stored points.', () => messages.usage().points);
  gauge(registry, 'slipway_messages_logs', 'Stored log entries.', () => messages.usage().logs);
  gauge(registry, 'slipway_messages_oldest_timestamp_seconds', 'Time of the oldest of them, since 1970.', () => {
    const { oldest } = messages.usage();
    return oldest === null ? Number.NaN : oldest / 1000;
  });
  gauge(registry, 'slipway_messages_refused', '1 while messages are refused for want of space.', () =>
    messages.full ? 1 : 0,
  );
  gauge(registry, 'slipway_disk_free_bytes', 'Free on the disk of the data directory.', () => keeping.diskFree ?? NaN);
}

/** Of all accounts, certificates of devices and CAs: counted when asked for, in an index, and to a hundred thousand. */
function certificateMetrics(registry: Registry, ctx: Pick<Context, 'registry' | 'clock'>): void {
  new Gauge({
    name: 'slipway_certificates_expiring',
    help: 'Registered certificates that expire soon.',
    labelNames: ['kind', 'within'],
    registers: [registry],
    collect() {
      const { certificates, authorities } = expiringSoon(ctx);
      const within = `${warnedDays}d`;
      this.set({ kind: 'device', within }, certificates.count);
      this.set({ kind: 'authority', within }, authorities.count);
    },
  });
}

function bridgeMetrics(registry: Registry, { bridges }: Pick<Context, 'bridges'>): void {
  const { counters } = bridges;
  const count = (name: string, help: string, read: () => number) =>
    counter(registry, `slipway_bridge_${name}_total`, help, read);
  count('delivered_messages', 'Messages that targets have accepted.', () => counters.delivered);
  count('failed_batches', 'Batches that were not accepted.', () => counters.failed);
  count('dropped_messages', 'Best-effort messages that were not delivered.', () => counters.dropped);
  count('dead_letters', 'Guaranteed messages that could not be delivered.', () => counters.dead);
  new Gauge({
    name: 'slipway_bridge_pending_messages',
    help: 'Guaranteed messages on their way; 100000 is that or more.',
    labelNames: ['kind'],
    registers: [registry],
    collect() {
      for (const [kind, pending] of Object.entries(bridges.pendingByKind())) this.set({ kind }, pending);
    },
  });
}

function gauge(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

function counter(registry: Registry, name: string, help: string, read: () => number): void {
  new Counter({
    name,
    help,
    registers: [registry],
    collect() {
      this.reset();
      this.inc(read());
    },
  });
}

/** One line for each key of `counts`, those at 0 too. */
function counterBy(
  registry: Registry,
  name: string,
  help: string,
  label: string,
  counts: Readonly<Record<string, number>>,
): void {
  new Counter({
    name,
    help,
    labelNames: [label],
    registers: [registry],
    collect() {
      this.reset();
      for (const [key, count] of Object.entries(counts)) this.inc({ [label]: key }, count);
    },
  });
}
