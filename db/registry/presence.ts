/** What the service notes about a connected device: a table of its own next to `devices`, see `wholeDevices`. */
import type { Db, Tx } from './index.ts';
import { insertMany } from './many.ts';
import { presenceNames } from './records/devices.ts';
import type { Device, DevicePresence } from './records.ts';
import { rowsOf } from './statement.ts';

const isPresence: ReadonlySet<string> = new Set(presenceNames);

/** A device's values, or some of them, by the table that holds them. */
export function splitDevice<D extends Partial<Device>>(values: D) {
  const entries = Object.entries(values);
  return {
    own: Object.fromEntries(entries.filter(([name]) => !isPresence.has(name))) as Omit<D, keyof DevicePresence>,
    presence: Object.fromEntries(entries.filter(([name]) => isPresence.has(name))) as Partial<DevicePresence>,
  };
}

/** Inserts devices, and what their makers say about their presence. */
export async function insertDevices(tx: Tx, devices: readonly Device[]): Promise<void> {
  await insertMany(tx, 'devices', devices, { except: isPresence });
  const said = devices.filter(({ externalIp, reverseDns }) => externalIp !== null || reverseDns !== null);
  await notePresence(
    tx,
    said.map(({ id, externalIp, reverseDns }) => ({ id, presence: { externalIp, reverseDns } })),
  );
}

export interface PresenceNote {
  id: string;
  presence: Partial<DevicePresence>;
}

/**
 * Writes these values of the presence of devices, each of which is named once, and no others: each column that is named costs
 * its index. Those with values for the same columns go by one statement.
 */
export async function notePresence(tx: Db, notes: readonly PresenceNote[]): Promise<void> {
  const byColumns = new Map<string, unknown[][]>();
  for (const { id, presence } of notes) {
    const columns = Object.keys(presence).join();
    const rows = byColumns.get(columns) ?? [];
    byColumns.set(columns, rows);
    rows.push([id, ...Object.values(presence)]);
  }
  byColumns.delete('');
  for (const [columns, rows] of byColumns) await rowsOf(tx, noting(columns), [JSON.stringify(rows)]);
}

const known = new Map<string, string>();

function noting(names: string): string {
  let statement = known.get(names);
  if (statement === undefined) {
    const columns = names.split(',').map((name) => `"${name}"`);
    const values = columns.map((_, at) => `"note"."value" ->> ${at + 1}`);
    // In this order: each device is looked up by its id.
    statement = `INSERT INTO "devicePresence" ("row", "account", ${columns})
      SELECT "row", CASE WHEN "deleted" IS NULL THEN substr("accountId", 27) END, ${values}
      FROM json_each(?) AS "note" CROSS JOIN "devices" AS "device" ON "device"."id" = "note"."value" ->> 0
      WHERE true
      ON CONFLICT ("row") DO UPDATE SET ${columns.map((column) => `${column} = excluded.${column}`)}`;
    known.set(names, statement);
  }
  return statement;
}
