/** Whose lane something waits in. */
import type { Lane } from '../scheduler/lanes.ts';
import { networkOf, networksOf } from './networks.ts';

const strangers = 'network ';

/** The lane of somebody whose account is not known yet: in the wide network of its address, by the narrow one. */
export function strangerLane(address: string): Lane {
  const networks = networksOf(address).map(({ key }) => key);
  return { accountId: strangers + networks.at(-1), callerId: String(networks[0]) };
}

/** Whether the account of a lane stands for strangers. */
export function areStrangers(accountId: string): boolean {
  return accountId.startsWith(strangers);
}

/** The lane of a caller that nobody knows yet. All of them share one turn, in which addresses take turns. */
export function laneOfAddress(address: string): Lane {
  return { accountId: 'strangers', callerId: networkOf(address) };
}

/** The lane of an authenticated caller. */
export function laneOf({ accountId, id }: { accountId: string; id: string }): Lane {
  return { accountId, callerId: id };
}
