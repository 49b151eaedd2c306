/** The devices that a job is about, as its rows. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Caller } from '../../core/caller.ts';
import { invalid, type PlatformError } from '../../core/errors.ts';
import { type Selection, selectedDevices, selectionQuery } from '../../registry/devices/selection.ts';
import type { FactoryContext } from '../context.ts';
import { maxRows } from '../provisioning/rows.ts';

/** Devices that are selected in one go, and that are looked up by their ids. */
const atOnce = 1000;
const lookedUpAtOnce = 250;

/** All devices that are selected now. @throws PlatformError as selectionQuery; 400/106 for more than a job has rows. */
export async function allSelected(ctx: FactoryContext, caller: Caller, selection: Selection): Promise<string[]> {
  const query = await selectionQuery(ctx, caller, selection);
  const selected: string[] = [];
  for (;;) {
    const page = { after: selected.at(-1) ?? '', limit: atOnce };
    const more = await selectedDevices(ctx, caller, query, page);
    selected.push(...more);
    if (selected.length > maxRows) throw tooMany(selection.fleetId === undefined ? 'filter' : 'fleetId');
    if (more.length < atOnce) return selected;
    await nextTurn();
  }
}

export function tooMany(path: string): PlatformError {
  return invalid(path, `must select at most ${maxRows} devices`);
}

/**
 * The rows of devices, in two parts if some are to be first; the serial number is for anyone who reads them, and of the account's own
 * devices alone.
 */
export async function rowsOf(
  { registry }: FactoryContext,
  accountId: string,
  ids: readonly string[],
  isFirst: (deviceId: string) => boolean = () => false,
): Promise<string[]> {
  const [first, others]: [string[], string[]] = [[], []];
  for (let from = 0; from < ids.length; from += lookedUpAtOnce) {
    const batch = ids.slice(from, from + lookedUpAtOnce);
    const devices = registry.query
      .selectFrom('devices')
      .select(['id', 'serialNumber'])
      .where('accountId', '=', accountId);
    const serials = new Map(
      (await devices.where('id', 'in', batch).execute()).map((one) => [one.id, one.serialNumber]),
    );
    for (const id of batch)
      (isFirst(id) ? first : others).push(JSON.stringify({ values: { id, serialNumber: serials.get(id) } }));
    await nextTurn();
  }
  return [...first, ...others];
}
