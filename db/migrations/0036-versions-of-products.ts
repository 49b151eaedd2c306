import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const counts = 'firmwareVersionCounts';
/** In this order a package finds its devices, and a list those of a version. */
const keys = ['accountId', 'firmwareVersion', 'deviceTemplateId', 'provisioningState'];
const names = keys.map((name) => `"${name}"`).join(', ');
const isCounted = (row: string) => `${row}"deleted" IS NULL AND ${row}"firmwareVersion" IS NOT NULL`;
const isOldRow = keys.map((name) => `"${name}" = old."${name}"`).join(' AND ');
const countNew = `INSERT INTO "${counts}" SELECT ${keys.map((name) => `new."${name}"`)}, 1 WHERE ${isCounted('new.')}
  ON CONFLICT DO UPDATE SET "count" = "count" + 1;`;
const countOld = `UPDATE "${counts}" SET "count" = "count" - 1 WHERE ${isOldRow} AND ${isCounted('old.')};
  DELETE FROM "${counts}" WHERE ${isOldRow} AND "count" = 0;`;
const changing = ['firmwareVersion', 'deviceTemplateId', 'provisioningState', 'deleted'];

/** The counts of firmware versions know the product, too: a package shows how many devices run it. */
export const name = '0036-versions-of-products';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    ...['added', 'removed', 'changed'].map((event) => `DROP TRIGGER "${counts}_${event}"`),
    `DROP TABLE "${counts}"`,
    `CREATE TABLE "${counts}" (
       ${keys.map((name) => `"${name}" TEXT NOT NULL`)}, "count" INTEGER NOT NULL, PRIMARY KEY (${names})
     ) STRICT, WITHOUT ROWID`,
    `INSERT INTO "${counts}" SELECT ${names}, count(*) FROM "devices" WHERE ${isCounted('')} GROUP BY ${names}`,
    `CREATE TRIGGER "${counts}_added" AFTER INSERT ON "devices" BEGIN ${countNew} END`,
    `CREATE TRIGGER "${counts}_removed" AFTER DELETE ON "devices" BEGIN ${countOld} END`,
    `CREATE TRIGGER "${counts}_changed" AFTER UPDATE OF ${changing.map((name) => `"${name}"`)} ON "devices"
     WHEN ${changing.map((name) => `new."${name}" IS NOT old."${name}"`).join(' OR ')}
     BEGIN ${countOld} ${countNew} END`,
  ]);
}
