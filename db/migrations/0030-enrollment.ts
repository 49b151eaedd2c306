import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { countRows } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

const statements = [
  `CREATE TABLE "enrollmentGroups" (${commonColumns},
    "name" TEXT NOT NULL,
    "deviceTemplateId" TEXT NOT NULL,
    "organizationId" TEXT,
    "proof" TEXT NOT NULL,
    "proofAuthorityId" TEXT,
    "issues" TEXT NOT NULL,
    "serialNumberPattern" TEXT NOT NULL,
    "maxDevices" INTEGER,
    "enrolledCount" INTEGER NOT NULL,
    "validFrom" TEXT,
    "validUntil" TEXT,
    "disabled" INTEGER NOT NULL,
    "reprovision" TEXT NOT NULL,
    "certificateAuthorityId" TEXT,
    "certificateDays" INTEGER NOT NULL,
    "overlapDays" INTEGER NOT NULL,
    "claimHash" TEXT,
    "sealedGroupKey" TEXT,
    "sealedHookUrl" TEXT,
    "sealedHookSecret" TEXT,
    "isHookSecretMade" INTEGER NOT NULL) STRICT`,
  `CREATE UNIQUE INDEX "enrollmentGroups_name" ON "enrollmentGroups" ("accountId", "name") WHERE "deleted" IS NULL`,
  `CREATE TABLE "enrollments" (
    "deviceId" TEXT NOT NULL PRIMARY KEY,
    "groupId" TEXT NOT NULL REFERENCES "enrollmentGroups" ("id"),
    "accountId" TEXT NOT NULL,
    "serialNumber" TEXT NOT NULL,
    "enrolled" TEXT NOT NULL,
    "connected" TEXT,
    "used" INTEGER NOT NULL,
    "permitted" INTEGER NOT NULL,
    "allowedUntil" TEXT,
    "proofKeyHash" TEXT,
    "formerHash" TEXT,
    "formerFingerprint" TEXT) STRICT`,
  `CREATE UNIQUE INDEX "enrollments_serialNumber" ON "enrollments" ("groupId", "serialNumber")`,
  `CREATE TABLE "enrollmentRefusals" (
    "sequence" INTEGER PRIMARY KEY AUTOINCREMENT,
    "groupId" TEXT NOT NULL REFERENCES "enrollmentGroups" ("id") ON DELETE CASCADE,
    "accountId" TEXT NOT NULL,
    "time" TEXT NOT NULL,
    "serialNumber" TEXT,
    "address" TEXT,
    "reason" TEXT NOT NULL,
    "proven" INTEGER NOT NULL) STRICT`,
  `CREATE INDEX "enrollmentRefusals_group" ON "enrollmentRefusals" ("groupId", "sequence")`,
  ...countRows('enrollmentGroups', {
    row: 900,
    texts: { name: 2, serialNumberPattern: 1, claimHash: 1, sealedGroupKey: 1, sealedHookUrl: 1, sealedHookSecret: 1 },
  }),
  ...countRows('enrollments', { row: 500, texts: { serialNumber: 2, formerHash: 1 } }),
  ...countRows('enrollmentRefusals', { row: 250, texts: { serialNumber: 1, reason: 1 } }),
];

/** Enrollment groups, the devices that they have made, and what they have refused. */
export const name = '0030-enrollment';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
