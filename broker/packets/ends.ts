/** What a connection and its client are told when it ends. */
import { lineOf } from '../../src/core/errors.ts';
import type { BrokerClient } from '../client-types.ts';
import type { LimitName } from '../connections/counters.ts';
import { OverLimit } from '../connections/limits.ts';
import type { Rates } from '../connections/publish-rate.ts';
import { type End, ends, reasonOfLimit, rowOf } from '../reasons.ts';
import type { Disconnect } from './codec.ts';
import { MalformedConnect5 } from './connect.ts';
import { faults, Malformed } from './fields.ts';

/** The limit that a client is over, by what it sends too much of. */
export const rateLimits = {
  packets: 'publish_rate_per_client',
  bytes: 'byte_rate_per_client',
  points: 'point_rate_per_client',
} as const satisfies Record<keyof Rates, LimitName>;

/** What DISCONNECT says of the will and of the session. */
export function disconnected(client: BrokerClient, { sendsWill, sessionExpiry }: Disconnect): void {
  if (!sendsWill) client.will = undefined;
  if (sessionExpiry !== undefined) client.sessionExpiry = sessionExpiry;
}

/** What CONNACK says of a CONNECT that cannot be read; undefined where it is not answered. */
export function codeOfMalformedConnect(error: unknown, isLevel5: boolean): number | undefined {
  if (error instanceof MalformedConnect5) return error.code;
  return isLevel5 && error instanceof OverLimit ? faults.tooLarge : undefined;
}

/** What DISCONNECT says of the error by which a connection ends. */
export function endOf(error: Error): End {
  if (error instanceof Malformed) return { code: error.code, sentence: error.message };
  const why = error instanceof OverLimit ? reasonOfLimit(error.limit) : undefined;
  return why ? { code: rowOf(why).mqtt5, sentence: lineOf(why) } : ends.unspecified;
}
