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
  for (const { id, externalIp, reverseDns } of devices)
    if (externalIp !== null || reverseDns !== null) await notePresence(tx, id, { externalIp, reverseDns });
}

/** Writes these values of a device's presence, and no others: each column that is named costs its index. */
export async function notePresence(tx: Db, id: string, presence: Partial<DevicePresence>): Promise<void> {
  const values = Object.values(presence);
  if (values.length > 0) await rowsOf(tx, noting(Object.keys(presence)), [...values, id]);
}

const known = new Map<string, string>();

function noting(names: readonly string[]): string {
  const key = names.join();
  let statement = known.get(key);
  if (statement === undefined) {
    const columns = names.map((name) => `"${name}"`);
    statement = `INSERT INTO "devicePresence" ("row", "account", ${columns})
      SELECT "row", CASE WHEN "deleted" IS NULL THEN substr("accountId", 27) END, ${columns.map(() => '?')}
      FROM "devices" WHERE "id" = ?
      ON CONFLICT ("row") DO UPDATE SET ${columns.map((column) => `${column} = excluded.${column}`)}`;
    known.set(key, statement);
  }
  return statement;
}
