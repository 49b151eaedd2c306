import type { Registry } from 'prom-client';
import type { Traffic } from '../../http/traffic.ts';
import { counterBy, countersBy, histogram } from './exposing.ts';

export function trafficMetrics(registry: Registry, traffic: Traffic): void {
  countersBy(
    registry,
    'slipway_http_requests_total',
    'Requests that were answered.',
    ['method', 'route', 'status'],
    () =>
      [...traffic.routes].flatMap(({ method, route, byStatus }) =>
        [...byStatus].map(([status, count]): [Record<string, string>, number] => [
          { method, route, status: String(status) },
          count,
        ]),
      ),
  );
  histogram(registry, 'slipway_http_request_seconds', 'From a request to the end of its answer.', () =>
    [...traffic.routes].map(({ method, route, latency }) => [{ method, route }, latency]),
  );
  counterBy(
    registry,
    'slipway_http_refusals_total',
    'Requests that were answered with an error, by its kind.',
    'kind',
    traffic.refusals,
  );
}
