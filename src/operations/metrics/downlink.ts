/** Firmware and commands in /metrics. */
import type { Registry } from 'prom-client';
import type { Registry as DeviceRegistry } from '../../../db/registry/index.ts';
import type { Downloads } from '../../firmware/delivery/downloads.ts';
import { counter, gauge, gaugeBy } from './exposing.ts';

interface Services {
  registry: DeviceRegistry;
  downloads: Downloads;
}

export function downlinkMetrics(registry: Registry, { registry: entities, downloads }: Services): void {
  gauge(registry, 'slipway_firmware_downloads', 'Downloads that hold a place.', () => downloads.places.taken);
  gauge(
    registry,
    'slipway_firmware_downloads_waiting',
    'Downloads without a place, whose readers do not read.',
    () => downloads.waiting,
  );
  counter(
    registry,
    'slipway_firmware_downloads_ended_total',
    'Downloads that were ended because their readers did not read.',
    () => downloads.ended,
  );
  counter(
    registry,
    'slipway_firmware_downloads_refused_total',
    'Downloads that were told to try again.',
    () => downloads.places.refused,
  );
  counter(registry, 'slipway_firmware_sent_bytes_total', 'Bytes of firmware that were sent.', () => downloads.sent);
  gaugeBy(registry, 'slipway_firmware_devices', 'Devices of rollouts, by state.', ['state'], () =>
    states(entities, 'firmwareCounts'),
  );
  gaugeBy(registry, 'slipway_commands', 'Commands, by state.', ['state'], () => states(entities, 'commandCounts'));
}

/** Sums that triggers keep: no row of a device is read. */
async function states(
  { query }: DeviceRegistry,
  table: 'firmwareCounts' | 'commandCounts',
): Promise<Array<[Record<string, string>, number]>> {
  const rows = await query
    .selectFrom(table)
    .select((eb) => ['state', eb.fn.sum<number>('count').as('count')])
    .groupBy('state')
    .execute();
  return rows.map(({ state, count }) => [{ state }, Number(count)]);
}
