import type { EntityTable } from './records.ts';

/** One device as the view `wholeDevices` shows it. SQLite opens a join in 25 µs, and looks up these values in one. */
const presence = (name: string) => `(SELECT p."${name}" FROM "devicePresence" AS p WHERE p."row" = d."row")`;
const noted = [
  ...['lastConnected', 'externalIp', 'geoIpLatitude', 'geoIpLongitude', 'reverseDns', 'offlineSince', 'usualInterval'],
];

const wholeDevice = `SELECT d.*, substr(d."accountId", 27) AS "account",
  coalesce(${presence('connected')}, 0) AS "connected",
  coalesce(${presence('silent')}, 0) AS "silent", ${noted.map((name) => `${presence(name)} AS "${name}"`).join(', ')}
  FROM "devices" AS d WHERE d."id" = ?`;

/** Reads one entity by its id; as text with `?` for the id. */
export function wholeById(table: EntityTable): string {
  return table === 'devices' ? wholeDevice : `SELECT * FROM "${table}" WHERE "id" = ?`;
}

/** Where whole rows of a table are read. */
export function wholeOf(table: EntityTable): EntityTable {
  return table === 'devices' ? ('wholeDevices' as EntityTable) : table;
}
