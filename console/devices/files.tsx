/** Devices to CSV. */
import { spreadsheetCell } from '../../src/core/formats/spreadsheets.ts';
import { toast } from '../parts/dialogs/toast.tsx';
import { downloadCsv } from '../parts/formats/download.ts';
import type { Sort } from '../parts/lists/table.tsx';
import { texts } from '../texts.ts';
import { type DeviceFilter, readColumns } from './query.ts';

const words = texts.devices;
const exported = [
  'id',
  'serialNumber',
  'deviceTemplateId',
  'organizationId',
  'provisioningState',
  'firmwareVersion',
  'connected',
  'lastConnected',
  'created',
] as const;
const maxExported = 100_000;

/** A cell that no spreadsheet takes for a formula. */
function cell(value: unknown): string {
  return typeof value === 'number' ? String(value) : spreadsheetCell(String(value ?? ''));
}

/** Saves the devices that match the filters. A browser holds the whole file, so it has a limit, which is said. */
export async function exportDevices(filter: DeviceFilter, sort: Sort): Promise<void> {
  const lines = [exported.join(',')];
  const pageSize = 1000;
  let count = 0;
  for (let page = 1; page <= maxExported / pageSize; page += 1) {
    const { results = [], meta } = await readColumns({ filter, sort, page, pageSize }, exported);
    lines.push(...results.map((row) => exported.map((name) => cell(row[name])).join(',')));
    count = meta?.count ?? 0;
    if (results.length === 0 || page * pageSize >= count) break;
  }
  downloadCsv('devices', lines.join('\r\n'));
  if (count > maxExported) toast(words.exportCut(maxExported, count));
}
