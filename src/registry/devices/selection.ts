/** The devices that a body selects: the one way from a filter, or a fleet, to their ids. */
import { Type } from 'typebox';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import { CompiledFilter } from '../../entity/filters/compiled.ts';
import { bodyFilters, demandBelow, filterText, type ListQuery, type SearchServices } from '../../entity/list-query.ts';
import type { FilterServices } from '../filters.ts';
import { deviceListing } from './device.ts';
import { compileDeviceFilter } from './filter.ts';
import { compileFleet, demandFleet, demandWholeFleet } from './fleet.ts';
import { deviceIds } from './search.ts';

export const { filters, partial } = bodyFilters(deviceListing);

/** `filter` of a body that selects what GET /devices would list. */
export const selectionFilter = Type.Object(filters, {
  additionalProperties: false,
  minProperties: 1,
  description: `At least one of ${Object.keys(filters).join(', ')}, as in GET /devices: all must match; ${partial.join(' and ')} match where they contain the text, ignoring case, or are like it where it has a *, which stands for any text; the others where they are equal. All devices that it selects now are rows of the job.`,
});

/** What a list of devices makes a filter of. */
export const selectionParameters = {
  filter: Type.Optional(filterText),
  fleetId: Type.Optional(Type.String({ maxLength: 64, description: 'In this fleet.' })),
};

/** A fleet in a body, in the place of a filter. */
export const fleetOfBody = Type.Optional(
  Type.String({ maxLength: 64, description: 'The devices of a fleet, instead of a filter.' }),
);

/** The same, or a text. */
export const selection = Type.Union([selectionFilter, filterText]);

/** What selects devices: one of the two. A text is an expression, as in GET /devices. */
export interface Selection {
  filter?: Readonly<Record<string, unknown>> | string | undefined;
  fleetId?: string | undefined;
}

/** @throws PlatformError 400/106 for a text of a filter that is empty or has only stars. */
export function demandNotEmpty(filter: Readonly<Record<string, unknown>>, path = 'filter'): void {
  // A shell variable that is not set must not select everything.
  for (const [name, value] of Object.entries(filter))
    if (typeof value === 'string' && value.replaceAll('*', '').trim() === '')
      throw invalid(`${path}.${name}`, 'must not be empty');
}

/**
 * The filter of devices that a text and a fleet, both of them, stand for. @throws PlatformError 400/106 for a text that is not a filter,
 * 400/102 for a fleet that the caller may not read; 429 while too many reads wait.
 */
export async function compileSelection(
  services: FilterServices,
  caller: Caller,
  { filter, fleetId }: { filter: string | undefined; fleetId: unknown },
): Promise<CompiledFilter | undefined> {
  const parts: CompiledFilter[] = [];
  if (filter !== undefined) parts.push(await compileDeviceFilter(services, caller, filter));
  if (fleetId !== undefined) {
    const fleet = await demandFleet(services, caller, String(fleetId));
    parts.push((await compileFleet(services, caller, fleet)).filter);
  }
  return parts.length === 0 ? undefined : CompiledFilter.all(parts);
}

/**
 * A selection as the query of a list, with its text compiled. @throws PlatformError 400/106 for a text that is not a filter, and for an
 * empty value, which would select everything, and for a fleet of which something is gone; 400/102 for an unknown fleet; 429 while too many reads wait.
 */
export async function selectionQuery(
  services: FilterServices,
  caller: Caller,
  { filter = {}, fleetId }: Selection,
): Promise<ListQuery> {
  const { accountId } = caller;
  if (fleetId !== undefined) return { accountId, filter: await demandWholeFleet(services, caller, fleetId, 'fleetId') };
  if (typeof filter === 'string') return { accountId, filter: await compileDeviceFilter(services, caller, filter) };
  demandNotEmpty(filter);
  demandBelow(filter, 'filter.below');
  return { ...filter, accountId, filter: undefined };
}

/** The ids of the devices in the caller's reach that are selected now, from after the id `after`, in the order of ids: at most `limit`. */
export function selectedDevices(
  services: SearchServices,
  caller: Caller,
  query: ListQuery,
  cut: { after: string; limit: number },
): Promise<string[]> {
  return deviceIds(services, { caller, listing: deviceListing, query, state: 'live' }, cut);
}
