/** Triggers that note which rows one connection writes while accounts are copied; they are gone with the connection. */

/** A table and the columns that name a row. `isOnePage`: what is written in it is not told apart. */
export interface Watched {
  table: string;
  key: readonly string[];
  isOnePage: boolean;
}

/** What begins to note; what has been noted before is forgotten. */
export function watching(tables: readonly Watched[]): string[] {
  return [
    ...unwatching(tables),
    'CREATE TEMP TABLE "movedKeys" ("table" TEXT NOT NULL, "key" TEXT NOT NULL)',
    ...tables.flatMap((watched) => [
      trigger(watched, 'INSERT', ['NEW']),
      trigger(watched, 'UPDATE', ['OLD', 'NEW']),
      trigger(watched, 'DELETE', ['OLD']),
    ]),
  ];
}

export function unwatching(tables: readonly Watched[]): string[] {
  const names = tables.flatMap(({ table }) => ['INSERT', 'UPDATE', 'DELETE'].map((event) => nameOf(table, event)));
  return [...names.map((name) => `DROP TRIGGER IF EXISTS "temp"."${name}"`), 'DROP TABLE IF EXISTS "temp"."movedKeys"'];
}

/** One row if the connection notes what it writes. */
export const askNoting = `SELECT 1 FROM "temp"."sqlite_schema" WHERE "name" = 'movedKeys'`;
/** Tables and keys (JSON) that were noted, and what forgets them. */
export const readNoted = 'SELECT DISTINCT "table", "key" FROM "temp"."movedKeys"';
export const forgetNoted = 'DELETE FROM "temp"."movedKeys"';

function nameOf(table: string, event: string): string {
  return `moved_${table}_${event}`;
}

function trigger({ table, key, isOnePage }: Watched, event: string, rows: string[]): string {
  const noted = rows.map((row) => {
    // Rows of it have the number of their device, which has an id.
    if (table === 'devicePresence') return `json_array((SELECT "id" FROM "devices" WHERE "row" = ${row}."row"))`;
    return isOnePage ? "'[]'" : `json_array(${key.map((name) => `${row}."${name}"`).join(', ')})`;
  });
  const notes = noted.map((one) => `INSERT INTO "movedKeys" VALUES ('${table}', ${one});`).join(' ');
  return `CREATE TEMP TRIGGER "${nameOf(table, event)}" AFTER ${event} ON "main"."${table}" BEGIN ${notes} END`;
}
