/** The devices that a body selects: the one way from a filter, or a fleet, to their ids. */
import { Type } from 'typebox';
import type { Caller } from '../../core/caller.ts';
import { invalid, unknownReference } from '../../core/errors.ts';
import { bodyFilters, demandBelow, type ListQuery, type SearchServices } from '../../entity/list-query.ts';
import { deviceListing } from './device.ts';
import { deviceIds } from './search.ts';

export const { filters, partial: partialFilters } = bodyFilters(deviceListing);

/** `filter` of a body that selects what GET /devices would list. */
export const selectionFilter = Type.Object(filters, {
  additionalProperties: false,
  minProperties: 1,
  description: `At least one of ${Object.keys(filters).join(', ')}, as in GET /devices: all must match; ${partialFilters.join(' and ')} match where they contain the text, ignoring case, the others where they are equal. All devices that it selects now are rows of the job.`,
});

/** What selects devices: one of the two. */
export interface Selection {
  filter?: Readonly<Record<string, unknown>> | undefined;
  fleetId?: string | undefined;
}

/** @throws PlatformError 400/106 for a filter that must not select everything; 400/102 for an unknown fleet. */
export function demandSelection({ filter = {}, fleetId }: Selection): void {
  if (fleetId !== undefined) throw unknownReference('fleetId');
  // A shell variable that is not set must not select everything.
  for (const [name, value] of Object.entries(filter))
    if (typeof value === 'string' && value.trim() === '') throw invalid(`filter.${name}`, 'must not be empty');
  demandBelow(filter, 'filter.below');
}

/** The ids of the devices in the caller's reach that are selected now, from after the id `after`, in the order of ids: at most `limit`. */
export function selectedDevices(
  services: SearchServices,
  caller: Caller,
  { filter }: Selection,
  cut: { after: string; limit: number },
): Promise<string[]> {
  const query = { ...filter, accountId: caller.accountId } as ListQuery;
  return deviceIds(services, { caller, listing: deviceListing, query, state: 'live' }, cut);
}
