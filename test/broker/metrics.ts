/** What /metrics says, for tests that watch it. */
import type { LimitName } from '../../broker/connections/counters.ts';
import type { Fixture } from './fixture.ts';

/** The value of a line of /metrics, its labels included. */
export async function metric({ service }: Pick<Fixture, 'service'>, line: string): Promise<number | undefined> {
  const { text } = await service.direct.http('GET', '/metrics', { token: null });
  const found = text.split('\n').find((one) => one.startsWith(`${line} `));
  return found === undefined ? undefined : Number(found.slice(line.length));
}

/** How often a limit has been reached. */
export function hits(f: Pick<Fixture, 'service'>, limit: LimitName): Promise<number | undefined> {
  return metric(f, `slipway_mqtt_limit_hits_total{limit="${limit}"}`);
}
