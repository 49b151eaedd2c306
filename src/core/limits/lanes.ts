/** Whose lane something waits in. */
import type { Lane } from '../scheduler/lanes.ts';
import { networkOf, networksOf } from './networks.ts';

/** How the lanes of those begin whose account is not known yet, the first of them first. */
const behindAccounts = ['holder ', 'network ', 'failing network '] as const;
const [holders, strangers, failing] = behindAccounts;

/** The rank of lanes that go last. */
export const lastRank = behindAccounts.length;

/** Callers of accounts have rank 0; then come holders of a device's code, then strangers, and those who have failed come last. */
export function rankOf(accountId: string): number {
  return behindAccounts.findIndex((begin) => accountId.startsWith(begin)) + 1;
}

/** The lane of somebody whose account is not known yet: in the wide network of its address, by the narrow one. */
export function strangerLane(address: string, hasFailed = false): Lane {
  const networks = networksOf(address).map(({ key }) => key);
  return { accountId: (hasFailed ? failing : strangers) + networks.at(-1), callerId: String(networks[0]) };
}

/** The lane of somebody who has shown the code of a device. */
export function holderLane(deviceId: string, address: string): Lane {
  return { accountId: holders + deviceId, callerId: networkOf(address) };
}

/** The lane of a caller that nobody knows yet. All of them share one turn, in which addresses take turns. */
export function laneOfAddress(address: string): Lane {
  return { accountId: 'strangers', callerId: networkOf(address) };
}

/** The lane of an authenticated caller. */
export function laneOf({ accountId, id }: { accountId: string; id: string }): Lane {
  return { accountId, callerId: id };
}
