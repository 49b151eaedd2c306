import type { Registry } from 'prom-client';
import type { MessageStore } from '../../../db/messages/store.ts';
import type { Registry as DeviceRegistry } from '../../../db/registry/index.ts';
import type { Config } from '../../core/config.ts';
import { limits } from '../../core/limits/table.ts';
import { highestUse, type LimitUse, limitUse } from '../../core/limits/use.ts';
import type { BrokerState } from '../../ports/broker-state.ts';
import { gaugeBy } from './exposing.ts';

/** Milliseconds for which the highest use is not counted again: it takes some queries for each account. */
const countedFor = 60_000;

/** Every limit, and the highest use of it by any account. */
export function limitMetrics(
  registry: Registry,
  services: { registry: DeviceRegistry; messages: MessageStore; broker: Pick<BrokerState, 'kept'>; config: Config },
): void {
  const use: LimitUse = limitUse(services);
  let highest: ReturnType<typeof highestUse> | undefined;
  let since = 0;
  gaugeBy(registry, 'slipway_limit', 'Configured limits; 0 means no limit.', ['limit'], () =>
    limits.map(({ name }) => [{ limit: name }, services.config.limits[name]]),
  );
  gaugeBy(registry, 'slipway_limit_highest_use', 'The highest use by any account.', ['limit'], async () => {
    if (!highest || performance.now() - since > countedFor) {
      since = performance.now();
      highest = highestUse(services, use);
      highest.catch(() => {
        highest = undefined;
      });
    }
    return [...(await highest)].map(([name, used]) => [{ limit: name }, used]);
  });
}
