import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * What eviction by account asks for: how many bytes each account has stored, about, and at which sequences blocks of its
 * data begin. What is there already is put into blocks of 4,096 sequences.
 */
const statements = [
  'ALTER TABLE "messageCounts" ADD COLUMN "bytes" INTEGER NOT NULL DEFAULT 0',
  `CREATE TABLE "arrivals" (
    "accountId" TEXT NOT NULL,
    "first" INTEGER NOT NULL,
    "bytes" INTEGER NOT NULL,
    PRIMARY KEY ("accountId", "first")
  ) WITHOUT ROWID, STRICT`,
  `INSERT INTO "arrivals" SELECT "accountId", min("sequence"), sum("bytes") FROM (
     SELECT s."accountId", p."sequence", 32 + coalesce(octet_length(p."text"), 0) AS "bytes"
       FROM "points" p JOIN "series" s ON s."id" = p."series"
     UNION ALL
     SELECT "accountId", "sequence", 240 + octet_length("tags")
       + coalesce(octet_length("message"), 0) + coalesce(octet_length("code"), 0)
       + coalesce(octet_length("details"), 0) + coalesce(octet_length("custom"), 0)
       FROM "logs"
   ) GROUP BY "accountId", "sequence" / 4096`,
  `UPDATE "messageCounts" SET "bytes" = coalesce(
     (SELECT sum(a."bytes") FROM "arrivals" a WHERE a."accountId" = "messageCounts"."accountId"), 0)`,
];

export const name = 'messages-0008';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
