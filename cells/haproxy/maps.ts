/** The map files of HAProxy: what says which cell a request belongs to. The running HAProxy changes them with `set map`. */
import { slotOf } from '../../src/core/ids.ts';
import type { CellsConfig } from '../config.ts';

/** The names of the map files in the directory of `haproxy.cfg`. */
export const mapFiles = { slots: 'slots.map', ids: 'ids.map', hosts: 'hosts.map' } as const;

/**
 * The content of each map file, one key and its value a line. Every slot has its own line, so that one can be switched alone.
 * Ids have the slot of their account and not its cell: with the slot, they are switched too.
 */
export function mapsOf(config: Pick<CellsConfig, 'cells' | 'cellOfSlot' | 'accounts'>): Record<string, string> {
  const slots = [...config.cellOfSlot].sort();
  const ids = [...config.accounts].flatMap(([accountId, listed]) =>
    listed.map((id) => [id.toLowerCase(), slotOf(accountId)] as const),
  );
  const hosts = [...config.cells.keys()].map((name) => [name, name] as const);
  return { [mapFiles.slots]: linesOf(slots), [mapFiles.ids]: linesOf(ids), [mapFiles.hosts]: linesOf(hosts) };
}

function linesOf(entries: readonly (readonly [string, string])[]): string {
  return entries.map(([key, value]) => `${key} ${value}\n`).join('');
}
