import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** Rows of a table that count one each, by account. */
const counted = ['auditRecords', 'verifications', 'refusals', 'jobs'];

const columns = [
  // Rows of a job that are still there, and the bytes of what they were given as.
  'ALTER TABLE "jobs" ADD COLUMN "keptRows" INTEGER NOT NULL DEFAULT 0',
  'ALTER TABLE "jobs" ADD COLUMN "keptBytes" INTEGER NOT NULL DEFAULT 0',
  `UPDATE "jobs" SET
     "keptRows" = (SELECT count(*) FROM "jobRows" WHERE "jobId" = "id"),
     "keptBytes" = (SELECT coalesce(sum(octet_length("input")), 0) FROM "jobRows" WHERE "jobId" = "id")`,
  'CREATE INDEX "jobs_kept" ON "jobs" ("accountId", "finished") WHERE "keptRows" > 0',
  `ALTER TABLE "refusals" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`,
  'UPDATE "refusals" SET "accountId" = (SELECT "accountId" FROM "devices" WHERE "id" = "deviceId")',
  'CREATE INDEX "refusals_account" ON "refusals" ("accountId", "sequence")',
  `ALTER TABLE "idempotentAnswers" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`,
  `UPDATE "idempotentAnswers" SET "accountId" = coalesce(
     (SELECT "accountId" FROM "identities" WHERE "id" = "callerId"),
     (SELECT "accountId" FROM "applications" WHERE "id" = "callerId"), '')`,
  `CREATE TABLE "kept" (
     "accountId" TEXT NOT NULL,
     "what" TEXT NOT NULL,
     "amount" INTEGER NOT NULL,
     PRIMARY KEY ("accountId", "what")
   ) STRICT, WITHOUT ROWID`,
];

const add = (row: 'NEW' | 'OLD', what: string, amount: string) =>
  `INSERT INTO "kept" VALUES (${row}."accountId", '${what}', ${amount})
   ON CONFLICT DO UPDATE SET "amount" = "amount" + excluded."amount";`;

const trigger = (name: string, when: string, body: string) =>
  `CREATE TRIGGER "${name}" AFTER ${when} BEGIN ${body} END`;

function counting(table: string): string[] {
  return [
    `INSERT INTO "kept" SELECT "accountId", '${table}', count(*) FROM "${table}" GROUP BY "accountId"`,
    trigger(`${table}_kept`, `INSERT ON "${table}"`, add('NEW', table, '1')),
    trigger(`${table}_gone`, `DELETE ON "${table}"`, add('OLD', table, '-1')),
  ];
}

/** Counts the sum of a column or expression of each row; `of` is given NEW or OLD. */
function summing(table: string, what: string, column: string, of: (row: string) => string): string[] {
  return [
    `INSERT INTO "kept" SELECT "accountId", '${what}', sum(${of(`"${table}"`)}) FROM "${table}" GROUP BY "accountId"`,
    trigger(`${table}_${what}_kept`, `INSERT ON "${table}"`, add('NEW', what, of('NEW'))),
    trigger(`${table}_${what}_gone`, `DELETE ON "${table}"`, add('OLD', what, `-${of('OLD')}`)),
    trigger(
      `${table}_${what}_changed`,
      `UPDATE OF "${column}" ON "${table}" WHEN ${of('NEW')} <> ${of('OLD')}`,
      add('NEW', what, `${of('NEW')} - ${of('OLD')}`),
    ),
  ];
}

/** Of the records of an account only the oldest may go, and only beyond the limit that the service has written down. */
const oldestOnly = [
  'DROP TRIGGER "auditRecords_no_delete"',
  `CREATE TRIGGER "auditRecords_no_delete" BEFORE DELETE ON "auditRecords"
   WHEN EXISTS (SELECT 1 FROM "auditRecords"
       WHERE "accountId" = OLD."accountId" AND ("time", "sequence") < (OLD."time", OLD."sequence"))
     OR NOT EXISTS (SELECT 1 FROM "kept" AS "own", "kept" AS "limit"
       WHERE "own"."accountId" = OLD."accountId" AND "own"."what" = 'auditRecords'
         AND "limit"."accountId" = '' AND "limit"."what" = 'auditLimit' AND "own"."amount" > "limit"."amount")
   BEGIN SELECT RAISE(ABORT, 'audit records are append-only: only the oldest beyond the limit can be removed'); END`,
];

/** How much of what can be kept without end an account has; kept by triggers. */
export const name = '0022-kept';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    ...columns,
    ...counted.flatMap(counting),
    ...summing('jobs', 'jobRows', 'keptRows', (row) => `${row}."keptRows"`),
    ...summing('jobs', 'jobRowBytes', 'keptBytes', (row) => `${row}."keptBytes"`),
    ...summing('idempotentAnswers', 'idempotentBytes', 'answer', (row) => `coalesce(octet_length(${row}."answer"), 0)`),
    ...oldestOnly,
  ]);
}
