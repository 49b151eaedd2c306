/** How what is counted elsewhere becomes lines for Prometheus: everything is read when it is asked for. */
import { Counter, Gauge, type Metric, type Registry } from 'prom-client';
import { type Latency, latencyBounds } from '../../../db/sqlite/latency.ts';

type Labels = Record<string, string>;

/** A store that cannot be read is when the rest of the metrics is needed most. */
async function attempt<R>(read: () => R | Promise<R>, unknown: R): Promise<R> {
  try {
    return await read();
  } catch {
    return unknown;
  }
}

/** Without a sample while `read` fails or gives NaN, which means that the value is not known. */
export function gauge(registry: Registry, name: string, help: string, read: () => number | Promise<number>): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    async collect() {
      const value = await attempt(read, Number.NaN);
      // Without labels a reset would leave a 0, which says something else.
      if (Number.isNaN(value)) this.remove();
      else this.set(value);
    },
  });
}

export function counter(registry: Registry, name: string, help: string, read: () => number): void {
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
export function counterBy(
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

/** One sample for each that `read` gives and that is not NaN; none when it fails. */
export function gaugeBy(
  registry: Registry,
  name: string,
  help: string,
  labelNames: readonly string[],
  read: () => Array<[Labels, number]> | Promise<Array<[Labels, number]>>,
): void {
  new Gauge({
    name,
    help,
    labelNames,
    registers: [registry],
    async collect() {
      const lines = await attempt(read, []);
      this.reset();
      for (const [labels, value] of lines) if (!Number.isNaN(value)) this.set(labels, value);
    },
  });
}

/** As gaugeBy, of what only grows. */
export function countersBy(
  registry: Registry,
  name: string,
  help: string,
  labelNames: readonly string[],
  read: () => Array<[Labels, number]>,
): void {
  new Counter({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const [labels, value] of read()) this.inc(labels, value);
    },
  });
}

/** Times in their buckets, which prom-client would count far more slowly than the broker can wait for. */
export function histogram(registry: Registry, name: string, help: string, read: () => Array<[Labels, Latency]>): void {
  const get = async () => ({
    name,
    help,
    type: 'histogram',
    aggregator: 'sum',
    values: read().flatMap(([labels, latency]) => linesOf(name, labels, latency)),
  });
  registry.registerMetric({ name, get } as unknown as Metric);
}

function linesOf(name: string, labels: Labels, { counts, count, sum }: Latency) {
  let below = 0;
  const buckets = latencyBounds.map((bound, at) => {
    below += counts[at] as number;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: String(bound) }, value: below };
  });
  return [
    ...buckets,
    { metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: count },
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
