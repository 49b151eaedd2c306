import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** Orders of GET /devices: each is read from an index, ties by id. */
const sorts = [
  'serialNumber',
  'created',
  'lastModified',
  'deviceTemplateId',
  'organizationId',
  'provisioningState',
  'firmwareVersion',
].map((column) => [`devices_by_${column}`, `"accountId", "${column}", "id"`, '']);

/** Filters of GET /devices in its default order. What most devices do not have costs nothing for those. */
const filters = [
  ...['provisioningState', 'connected'].map((column) => [column, '']),
  ...['latitude', 'longitude', 'lastConnected', 'externalIp', 'geoIpLatitude', 'geoIpLongitude', 'reverseDns'].map(
    (column) => [column, ` AND "${column}" IS NOT NULL`],
  ),
].map(([column, condition]) => [`devices_with_${column}`, `"accountId", "${column}", "serialNumber", "id"`, condition]);

const indexes = [['devices_by_id', '"accountId", "id"', ''], ...sorts, ...filters].map(
  ([index, columns, condition]) =>
    `CREATE INDEX "${index}" ON "devices" (${columns}) WHERE "deleted" IS NULL${condition}`,
);

/** What is counted: every live device of an account, and those with each value of these columns (null is ''). */
const facets = {
  all: `''`,
  deviceTemplateId: '@."deviceTemplateId"',
  organizationId: `coalesce(@."organizationId", '')`,
  provisioningState: '@."provisioningState"',
  connected: 'cast(@."connected" AS TEXT)',
};

/** Adds `step` to the counts of the row that a trigger calls `new` or `old`. */
function count(row: 'new' | 'old', step: 1 | -1, names: string[]): string {
  return names
    .map((facet) => {
      const value = facets[facet as keyof typeof facets].replace('@', row);
      return `INSERT INTO "deviceCounts" SELECT ${row}."accountId", '${facet}', ${value}, ${step} WHERE ${row}."deleted" IS NULL
        ON CONFLICT DO UPDATE SET "count" = "count" + ${step};`;
    })
    .join('\n');
}

const every = Object.keys(facets);
const index = (row: 'new' | 'old') =>
  row === 'new'
    ? `INSERT INTO "devicesText" (rowid, "serialNumber", "firmwareVersion") SELECT new."row", new."serialNumber", new."firmwareVersion" WHERE new."deleted" IS NULL;`
    : 'DELETE FROM "devicesText" WHERE rowid = old."row";';

const triggers = [
  `CREATE TRIGGER "devices_added" AFTER INSERT ON "devices" BEGIN ${count('new', 1, every)} ${index('new')} END`,
  `CREATE TRIGGER "devices_removed" AFTER DELETE ON "devices" BEGIN ${count('old', -1, every)} ${index('old')} END`,
  `CREATE TRIGGER "devices_trashed" AFTER UPDATE OF "deleted" ON "devices" BEGIN
     ${count('old', -1, every)} ${count('new', 1, every)} ${index('old')} ${index('new')} END`,
  ...every
    .filter((facet) => facet !== 'all')
    .map(
      (facet) => `CREATE TRIGGER "devices_${facet}" AFTER UPDATE OF "${facet}" ON "devices"
        WHEN new."${facet}" IS NOT old."${facet}" AND new."deleted" IS NULL AND old."deleted" IS NULL
        BEGIN ${count('old', -1, [facet])} ${count('new', 1, [facet])} END`,
    ),
  `CREATE TRIGGER "devices_text" AFTER UPDATE OF "serialNumber", "firmwareVersion" ON "devices"
     WHEN new."deleted" IS NULL AND old."deleted" IS NULL BEGIN ${index('old')} ${index('new')} END`,
];

const statements = [
  ...indexes,
  `CREATE TABLE "deviceCounts" (
    "accountId" TEXT NOT NULL,
    "facet" TEXT NOT NULL,
    "value" TEXT NOT NULL,
    "count" INTEGER NOT NULL,
    PRIMARY KEY ("accountId", "facet", "value")
  ) STRICT, WITHOUT ROWID`,
  `CREATE VIRTUAL TABLE "devicesText" USING fts5("serialNumber", "firmwareVersion", tokenize = 'trigram', content = '', contentless_delete = 1)`,
  ...every.map(
    (
      facet,
    ) => `INSERT INTO "deviceCounts" SELECT "accountId", '${facet}', ${facets[facet as keyof typeof facets].replace('@.', '')}, count(*)
      FROM "devices" WHERE "deleted" IS NULL GROUP BY 1, 3`,
  ),
  'INSERT INTO "devicesText" (rowid, "serialNumber", "firmwareVersion") SELECT "row", "serialNumber", "firmwareVersion" FROM "devices" WHERE "deleted" IS NULL',
  ...triggers,
];

/**
 * Lists of devices at a million of them: an index for each order and filter, counts kept by triggers, and a trigram index
 * for partial matches. Counts and text are of live devices.
 */
export const name = '0003-device-lists';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
