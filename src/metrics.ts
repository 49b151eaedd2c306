/** What the process counts, in the text form of Prometheus at /metrics (decisions 5). */
import { createHash, timingSafeEqual } from 'node:crypto';
import { Counter, Gauge, Registry } from 'prom-client';
import type { Context } from './context.js';
import { PlatformError } from './errors.js';
import type { App } from './http.js';

/** Mounts the endpoint: open unless a token is configured, which callers then send as Bearer. */
export function metricsRoutes(app: App, ctx: Pick<Context, 'broker' | 'config'>): void {
  const registry = new Registry();
  brokerMetrics(registry, ctx);
  const { metricsToken } = ctx.config;
  app.get('/metrics', { schema: { hide: true } }, async (request, reply) => {
    if (metricsToken !== undefined) demandToken(request.headers.authorization, metricsToken);
    reply.header('cache-control', 'no-store').type(registry.contentType);
    return reply.send(await registry.metrics());
  });
}

/** @throws PlatformError 401. */
function demandToken(authorization: string | undefined, token: string): void {
  const [scheme, given] = authorization?.split(' ', 2) ?? [];
  if (scheme?.toLowerCase() !== 'bearer' || !given) throw new PlatformError('tokenMissing');
  if (!timingSafeEqual(digest(given), digest(token))) throw new PlatformError('tokenInvalid');
}

/** Of one length, whatever was sent. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
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
