import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** The value of a field of a row as filters compare it; null where it is of another type than the field. */
const comparedValue = (row: string) => {
  const path = `'$."' || "field"."id" || '"'`;
  const [type, value] = [`json_type(${row}"fields", ${path})`, `json_extract(${row}"fields", ${path})`];
  return `CASE "field"."fieldType"
    WHEN 'boolean' THEN CASE WHEN ${type} IN ('true', 'false') THEN ${value} END
    WHEN 'int' THEN CASE WHEN ${type} = 'integer' THEN ${value} END
    WHEN 'float' THEN CASE WHEN ${type} IN ('integer', 'real') THEN ${value} END
    WHEN 'datetime' THEN CASE WHEN ${type} = 'text' THEN instant(${value}) END
    WHEN 'lat' THEN CASE WHEN ${type} = 'text' THEN CAST(${value} AS REAL) END
    WHEN 'long' THEN CASE WHEN ${type} = 'text' THEN CAST(${value} AS REAL) END
    ELSE CASE WHEN ${type} = 'text' THEN fold(${value}) END
  END`;
};
const isIndexed = `"field"."indexed" = 1 AND "field"."deleted" IS NULL`;
const valuesOf = (
  row: string,
) => `SELECT "field"."id", ${comparedValue(row)} AS "value", ${row}"row" FROM "customFields" AS "field"
  WHERE "field"."templateId" = ${row}"deviceTemplateId" AND ${isIndexed} AND ${row}"deleted" IS NULL AND "value" IS NOT NULL`;
const add = `INSERT INTO "fieldValues" ${valuesOf('NEW.')};`;
const remove = `DELETE FROM "fieldValues" WHERE ("fieldId", "value", "row") IN (${valuesOf('OLD.')});`;

/** The values of all devices of the template of a field. */
const addAll = `INSERT INTO "fieldValues" SELECT "field"."id", ${comparedValue('"device".')} AS "value", "device"."row"
  FROM "customFields" AS "field" CROSS JOIN "devices" AS "device"
  WHERE "field"."id" = NEW."id" AND ${isIndexed} AND substr("device"."accountId", 27) = substr(NEW."accountId", 27)
    AND "device"."deleted" IS NULL AND "device"."deviceTemplateId" = NEW."templateId" AND "value" IS NOT NULL;`;

const statements: readonly string[] = [
  'ALTER TABLE "customFields" ADD COLUMN "indexed" INTEGER NOT NULL DEFAULT 0',
  `CREATE TABLE "fieldValues" ("fieldId" TEXT NOT NULL, "value" ANY NOT NULL, "row" INTEGER NOT NULL,
     PRIMARY KEY ("fieldId", "value", "row")) STRICT, WITHOUT ROWID`,
  `CREATE TRIGGER "devices_values_added" AFTER INSERT ON "devices" BEGIN ${add} END`,
  `CREATE TRIGGER "devices_values_removed" AFTER DELETE ON "devices" BEGIN ${remove} END`,
  `CREATE TRIGGER "devices_values_changed" AFTER UPDATE OF "fields", "deleted" ON "devices"
   WHEN NEW."fields" IS NOT OLD."fields" OR NEW."deleted" IS NOT OLD."deleted" BEGIN ${remove} ${add} END`,
  // Also of one that is added: an account that moves may bring its field after its devices.
  `CREATE TRIGGER "customFields_values_added" AFTER INSERT ON "customFields" WHEN NEW."kind" = 'devices' AND NEW."indexed" = 1
   BEGIN ${addAll} END`,
  `CREATE TRIGGER "customFields_values_changed" AFTER UPDATE OF "indexed", "fieldType", "deleted" ON "customFields"
   WHEN NEW."kind" = 'devices' AND (OLD."indexed" = 1 OR NEW."indexed" = 1) AND (NEW."indexed" IS NOT OLD."indexed"
     OR NEW."fieldType" IS NOT OLD."fieldType" OR NEW."deleted" IS NOT OLD."deleted")
   BEGIN DELETE FROM "fieldValues" WHERE "fieldId" = OLD."id"; ${addAll} END`,
  `CREATE TRIGGER "customFields_values_removed" AFTER DELETE ON "customFields" WHEN OLD."indexed" = 1 BEGIN
     DELETE FROM "fieldValues" WHERE "fieldId" = OLD."id"; END`,
];

/** Custom fields of devices that are indexed: their values, in the order in which filters compare them. */
export const name = '0064-indexed-fields';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
