/** Fleets as filters of devices. */
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, unknownReference } from '../../core/errors.ts';
import { CompiledFilter, type KeptFilter } from '../../entity/filters/compiled.ts';
import { allOf } from '../../entity/filters/predicate.ts';
import { findLive } from '../../entity/verbs.ts';
import type { FilterServices } from '../filters.ts';
import { compileKeptFilters } from './filter.ts';

export type Fleet = Row<'fleets'>;

/** Those of some fleets that the caller may read. */
export function readableFleets({ access }: Pick<FilterServices, 'access'>, caller: Caller, fleets: Fleet[]): Fleet[] {
  if (!access.may(caller, 'read', 'fleet')) return [];
  const reader = access.narrow(caller, 'read', 'fleet');
  return fleets.filter((fleet) => access.reachesRow(reader, 'fleets', fleet));
}

/** The live fleet that `path` names. @throws PlatformError 400/102 for one that the caller may not read. */
export async function demandFleet(
  services: FilterServices,
  caller: Caller,
  id: string,
  path = 'fleetId',
): Promise<Fleet> {
  const row = await findLive(services.registry.query, 'fleets', caller.accountId, id);
  const [fleet] = row ? readableFleets(services, caller, [row]) : [];
  if (!fleet) throw unknownReference(path);
  return fleet;
}

/** What fleets select of the devices that the caller reads. Those of an organization hold what is in it or below it. */
export async function compileFleets(
  services: FilterServices,
  caller: Caller,
  fleets: readonly Pick<Fleet, 'filter' | 'organizationId'>[],
): Promise<KeptFilter[]> {
  const texts = fleets.map(({ filter, organizationId }) =>
    organizationId === null ? [filter] : [filter, `within eq "${organizationId}"`],
  );
  const kept = await compileKeptFilters(services, caller, texts.flat());
  return texts.map(({ length }) => {
    const parts = kept.splice(0, length);
    return {
      filter: CompiledFilter.all(parts.map(({ filter }) => filter)),
      problem: parts[0]?.problem ?? null,
      explain: () => parts.flatMap((part) => part.explain()),
      predicate: () => allOf(parts.map((part) => part.predicate())),
    };
  });
}

export async function compileFleet(services: FilterServices, caller: Caller, fleet: Fleet): Promise<KeptFilter> {
  const [kept] = await compileFleets(services, caller, [fleet]);
  return kept as KeptFilter;
}

/**
 * The filter of the fleet that `path` names, for what is done to devices: once something of it is gone, nobody can say which are meant.
 * @throws PlatformError as demandFleet, and 400/106.
 */
export async function demandWholeFleet(
  services: FilterServices,
  caller: Caller,
  id: string,
  path: string,
): Promise<CompiledFilter> {
  const { filter, problem } = await compileFleet(services, caller, await demandFleet(services, caller, id, path));
  if (problem !== null) throw invalid(path, `names a fleet whose filter has a problem. ${problem}`);
  return filter;
}
