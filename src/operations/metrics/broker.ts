import type { Registry } from 'prom-client';
import type { MetricsContext } from './context.ts';
import { counter, counterBy, countersBy, gauge, histogram } from './exposing.ts';

/** The broker counts on its own; here it is read. */
export function brokerMetrics(registry: Registry, { broker }: Pick<MetricsContext, 'broker'>): void {
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
  counterBy(
    registry,
    'slipway_mqtt_refused_publishes_total',
    'Messages that were refused.',
    'reason',
    counters.refusedPublishes,
  );
  counterBy(
    registry,
    'slipway_mqtt_refused_subscriptions_total',
    'Filters that were refused.',
    'reason',
    counters.refusedSubscriptions,
  );
  countersBy(
    registry,
    'slipway_published_messages_total',
    'Messages that were published, over MQTT and HTTP.',
    ['channel', 'outcome'],
    () =>
      Object.entries(counters.messages).flatMap(([channel, counts]) =>
        Object.entries(counts).map(([outcome, count]): [Record<string, string>, number] => [
          { channel, outcome },
          count,
        ]),
      ),
  );
  counter(registry, 'slipway_mqtt_sent_messages_total', 'Messages handed to clients.', () => counters.sent);
  histogram(registry, 'slipway_mqtt_acknowledgement_seconds', 'From a PUBLISH of QoS 1 to its PUBACK.', () => [
    [{}, counters.acknowledgement],
  ]);
  counter(
    registry,
    'slipway_mqtt_shed_messages_total',
    'QoS 0 messages not sent to clients that do not read.',
    () => counters.shed,
  );
  counterBy(
    registry,
    'slipway_mqtt_dropped_messages_total',
    'Messages that fell out of the queues of stored sessions, and those longer than a client takes.',
    'reason',
    counters.dropped,
  );
  counter(
    registry,
    'slipway_mqtt_expired_messages_total',
    'Messages that expired before they were delivered, in queues and retained.',
    () => counters.expired,
  );
}
