/** The process itself: memory, descriptors, processor time, and how late the event loop is. */
import { readdir, readFile } from 'node:fs/promises';
import type { Registry } from 'prom-client';
import { Latency } from '../../../db/sqlite/latency.ts';
import { countersBy, gauge, gaugeBy, histogram } from './exposing.ts';

/** Milliseconds between two looks at the event loop. */
const lookInterval = 50;

/** `stop` ends the looks at the event loop. */
export function processMetrics(registry: Registry): { stop(): void } {
  const started = Date.now() / 1000 - process.uptime();
  gauge(registry, 'slipway_process_start_time_seconds', 'When the process began, since 1970.', () => started);
  gaugeBy(registry, 'slipway_process_memory_bytes', 'Memory of the process.', ['kind'], () => {
    const { rss, heapUsed, external } = process.memoryUsage();
    return [
      [{ kind: 'resident' }, rss],
      [{ kind: 'heap' }, heapUsed],
      [{ kind: 'external' }, external],
    ];
  });
  gauge(registry, 'slipway_process_open_descriptors', 'Files and sockets that are open.', openDescriptors);
  const most = maxDescriptors();
  gauge(registry, 'slipway_process_max_descriptors', 'How many the system allows.', () => most);
  countersBy(registry, 'slipway_process_cpu_seconds_total', 'Processor time.', ['mode'], () => {
    const { user, system } = process.cpuUsage();
    return [
      [{ mode: 'user' }, user / 1e6],
      [{ mode: 'system' }, system / 1e6],
    ];
  });
  countersBy(registry, 'slipway_event_loop_active_seconds_total', 'Time in which the event loop was busy.', [], () => [
    [{}, performance.eventLoopUtilization().active / 1000],
  ]);
  const lag = new Latency();
  histogram(registry, 'slipway_event_loop_lag_seconds', 'By how much a timer was late.', () => [[{}, lag]]);
  let due = performance.now() + lookInterval;
  const timer = setInterval(() => {
    const now = performance.now();
    lag.observe(Math.max(0, now - due));
    due = now + lookInterval;
  }, lookInterval);
  timer.unref();
  return { stop: () => clearInterval(timer) };
}

/** NaN where the system does not say. */
async function openDescriptors(): Promise<number> {
  try {
    return (await readdir('/proc/self/fd')).length;
  } catch {
    return Number.NaN;
  }
}

async function maxDescriptors(): Promise<number> {
  try {
    const limits = await readFile('/proc/self/limits', 'utf8');
    const [, soft] = /^Max open files\s+(\d+)/m.exec(limits) ?? [];
    return soft === undefined ? Number.NaN : Number(soft);
  } catch {
    return Number.NaN;
  }
}
