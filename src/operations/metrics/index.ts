/** The metrics of the process, in the text format of Prometheus at /metrics. */

import { Registry } from 'prom-client';
import type { Registry as DeviceRegistry } from '../../../db/registry/index.ts';
import type { Bridges } from '../../bridges/index.ts';
import { expiringSoon, warnedDays } from '../../certificates/expiry.ts';
import type { Clock } from '../../core/clock.ts';
import type { App } from '../../http/app.ts';
import { demandToken } from '../../http/guards/operator-token.ts';
import type { Traffic } from '../../http/traffic.ts';
import { brokerMetrics } from './broker.ts';
import type { MetricsContext } from './context.ts';
import { downlinkMetrics } from './downlink.ts';
import { counter, counterBy, gauge, gaugeBy } from './exposing.ts';
import { limitMetrics } from './limits.ts';
import { processMetrics } from './process.ts';
import { storeMetrics } from './stores.ts';
import { trafficMetrics } from './traffic.ts';

/** Mounts the endpoint: open unless a token is configured, which callers then send as Bearer. */
export function metricsRoutes(
  app: App,
  ctx: Pick<
    MetricsContext,
    | 'broker'
    | 'bridges'
    | 'clock'
    | 'config'
    | 'downloads'
    | 'enrollment'
    | 'health'
    | 'jobs'
    | 'labels'
    | 'longAnswers'
    | 'keeping'
    | 'payloads'
    | 'readers'
    | 'reads'
    | 'messages'
    | 'passwords'
    | 'registry'
    | 'schemas'
    | 'secrets'
  >,
  traffic: Traffic,
): void {
  const registry = new Registry();
  brokerMetrics(registry, ctx);
  bridgeMetrics(registry, ctx);
  downlinkMetrics(registry, ctx);
  storeMetrics(registry, ctx);
  limitMetrics(registry, ctx);
  queueMetrics(registry, ctx);
  certificateMetrics(registry, ctx);
  counterBy(
    registry,
    'slipway_enrollments_total',
    'Exchanges of enrollment, by what has become of them.',
    'outcome',
    ctx.enrollment.counts,
  );
  trafficMetrics(registry, traffic);
  const lag = processMetrics(registry);
  app.addHook('onClose', async () => lag.stop());
  gauge(registry, 'slipway_ready', '1 while /health/ready says that it is.', async () =>
    (await ctx.health.problems()).length === 0 ? 1 : 0,
  );
  const { metricsToken } = ctx.config;
  app.get('/metrics', { schema: { hide: true } }, async (request, reply) => {
    demandToken(request, metricsToken);
    reply.header('cache-control', 'no-store').type(registry.contentType);
    return reply.send(await registry.metrics());
  });
}

/** How much waits for whom: a queue that stays long says what the service cannot keep up with. */
function queueMetrics(
  registry: Registry,
  {
    broker,
    jobs,
    labels,
    longAnswers,
    messages,
    passwords,
    payloads,
    readers,
    reads,
    registry: entities,
    schemas,
    secrets,
  }: Pick<
    MetricsContext,
    | 'broker'
    | 'jobs'
    | 'labels'
    | 'longAnswers'
    | 'messages'
    | 'passwords'
    | 'payloads'
    | 'readers'
    | 'reads'
    | 'registry'
    | 'schemas'
    | 'secrets'
  >,
): void {
  gauge(registry, 'slipway_jobs_running', 'Jobs at work.', () => jobs.running);
  gaugeBy(registry, 'slipway_queue_depth', 'What waits in a queue.', ['queue'], async () => {
    const depths = {
      ...broker.queues,
      // The one that has to be read: the others are told without it.
      jobs: await jobs.waiting().catch(() => Number.NaN),
      messages_writer: messages.pending,
      messages_reader: messages.reading,
      registry_writer: entities.writer.waiting,
      secret_hashing: secrets.waiting,
      login_hashing: passwords.waiting,
      payload_reading: payloads.waiting,
      label_drawing: labels.waiting,
      schema_checking: schemas.waiting,
      large_reads: reads.waiting,
      long_reads: readers.waiting,
      long_answers: longAnswers.waiting,
    };
    return Object.entries(depths).map(([queue, depth]) => [{ queue }, depth]);
  });
}

/** Of all accounts, certificates of devices and CAs: counted when asked for, in an index, and to a hundred thousand. */
function certificateMetrics(registry: Registry, ctx: { registry: DeviceRegistry; clock: Clock }): void {
  const labels = ['kind', 'within'];
  gaugeBy(registry, 'slipway_certificates_expiring', 'Registered certificates that expire soon.', labels, () => {
    const { certificates, authorities } = expiringSoon(ctx);
    const within = `${warnedDays}d`;
    return [
      [{ kind: 'device', within }, certificates.count],
      [{ kind: 'authority', within }, authorities.count],
    ];
  });
}

function bridgeMetrics(registry: Registry, { bridges }: { bridges: Bridges }): void {
  const { counters } = bridges;
  const count = (name: string, help: string, read: () => number) =>
    counter(registry, `slipway_bridge_${name}_total`, help, read);
  count('delivered_messages', 'Messages that targets have accepted.', () => counters.delivered);
  count('failed_batches', 'Batches that were not accepted.', () => counters.failed);
  count('dropped_messages', 'Best-effort messages that were not delivered.', () => counters.dropped);
  count('expired_messages', 'Messages that expired before they could be sent.', () => counters.expired);
  count('dead_letters', 'Guaranteed messages that could not be delivered.', () => counters.dead);
  gaugeBy(
    registry,
    'slipway_bridge_pending_messages',
    'Pending guaranteed messages. 100000 means 100000 or more.',
    ['kind'],
    () => Object.entries(bridges.pendingByKind()).map(([kind, pending]) => [{ kind }, pending]),
  );
  const labels = ['bridge', 'kind'];
  const perBridge = (name: string, help: string, read: (one: ReturnType<Bridges['behind']>[number]) => number) =>
    gaugeBy(registry, `slipway_bridge_${name}`, help, labels, () =>
      bridges.behind().map((one) => [{ bridge: one.id, kind: one.kind }, read(one)]),
    );
  perBridge(
    'queue_messages',
    'Guaranteed messages of a bridge on their way; 2000 is that or more.',
    (one) => one.pending,
  );
  perBridge('lag_seconds', 'For how long the oldest of them has waited.', (one) => one.seconds);
}
