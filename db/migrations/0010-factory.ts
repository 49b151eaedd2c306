import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

/** What every entity has. */
const statements = `
  ALTER TABLE "applications" ADD COLUMN "deviceTemplateId" TEXT;
  ALTER TABLE "applications" ADD COLUMN "organizationId" TEXT;
  ALTER TABLE "applications" ADD COLUMN "maxDevices" INTEGER;
  ALTER TABLE "applications" ADD COLUMN "madeDevices" INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE "applications" ADD COLUMN "expiresAt" TEXT;

  ALTER TABLE "credentials" ADD COLUMN "previousHash" TEXT;
  ALTER TABLE "credentials" ADD COLUMN "previousGeneration" INTEGER;
  ALTER TABLE "credentials" ADD COLUMN "previousUntil" TEXT;
  CREATE INDEX "credentials_previous" ON "credentials" ("previousUntil") WHERE "previousUntil" IS NOT NULL;

  CREATE TABLE "publications" (
    "deviceId" TEXT NOT NULL PRIMARY KEY,
    "time" TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE "verifications" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "deviceId" TEXT NOT NULL,
    "serialNumber" TEXT NOT NULL,
    "passed" INTEGER NOT NULL,
    "connected" INTEGER NOT NULL,
    "published" INTEGER NOT NULL,
    "time" TEXT NOT NULL,
    "createdById" TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX "verifications_time" ON "verifications" ("accountId", "time", "id");
  CREATE INDEX "verifications_device" ON "verifications" ("deviceId", "time");
  CREATE INDEX "verifications_serialNumber" ON "verifications" ("accountId", "serialNumber", "time");

  CREATE TABLE "certificateAuthorities" (${commonColumns},
    "name" TEXT NOT NULL,
    "certificate" TEXT NOT NULL,
    "fingerprint" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "validFrom" TEXT NOT NULL,
    "validTo" TEXT NOT NULL,
    "createDevices" INTEGER NOT NULL,
    "deviceTemplateId" TEXT,
    "organizationId" TEXT
  ) STRICT;
  CREATE UNIQUE INDEX "certificateAuthorities_name"
    ON "certificateAuthorities" ("accountId", "name") WHERE "deleted" IS NULL;
  CREATE UNIQUE INDEX "certificateAuthorities_fingerprint"
    ON "certificateAuthorities" ("fingerprint") WHERE "deleted" IS NULL;
  CREATE INDEX "certificateAuthorities_subject" ON "certificateAuthorities" ("subject") WHERE "deleted" IS NULL;
  CREATE TABLE "certificates" (${commonColumns},
    "entityId" TEXT NOT NULL,
    "entityType" TEXT NOT NULL,
    "certificate" TEXT NOT NULL,
    "fingerprint" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "issuer" TEXT NOT NULL,
    "validFrom" TEXT NOT NULL,
    "validTo" TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "certificates_fingerprint" ON "certificates" ("fingerprint") WHERE "deleted" IS NULL;
  CREATE INDEX "certificates_entity" ON "certificates" ("entityId") WHERE "deleted" IS NULL;
  CREATE INDEX "certificates_validTo" ON "certificates" ("validTo") WHERE "deleted" IS NULL;
  CREATE INDEX "certificates_created" ON "certificates" ("accountId", "created", "id") WHERE "deleted" IS NULL;
  CREATE INDEX "certificates_deleted" ON "certificates" ("deleted") WHERE "deleted" IS NOT NULL;

  CREATE TABLE "jobs" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "createdByKind" TEXT NOT NULL,
    "action" TEXT NOT NULL,
    "parameters" TEXT NOT NULL,
    "checksum" TEXT,
    "dryRun" INTEGER NOT NULL,
    "state" TEXT NOT NULL,
    "total" INTEGER NOT NULL,
    "done" INTEGER NOT NULL,
    "failed" INTEGER NOT NULL,
    "skipped" INTEGER NOT NULL,
    "reason" TEXT,
    "finished" TEXT,
    "expires" TEXT,
    "confirmed" TEXT,
    "undone" TEXT,
    "sealedKey" TEXT
  ) STRICT;
  CREATE INDEX "jobs_created" ON "jobs" ("accountId", "created", "id");
  CREATE UNIQUE INDEX "jobs_checksum" ON "jobs" ("checksum") WHERE "checksum" IS NOT NULL;
  CREATE INDEX "jobs_open" ON "jobs" ("state") WHERE "state" IN ('pending', 'running');
  CREATE INDEX "jobs_expires" ON "jobs" ("expires") WHERE "expires" IS NOT NULL;
  CREATE TABLE "jobRows" (
    "jobId" TEXT NOT NULL REFERENCES "jobs" ("id") ON DELETE CASCADE,
    "row" INTEGER NOT NULL,
    "state" TEXT NOT NULL,
    "input" TEXT NOT NULL,
    "deviceId" TEXT,
    "before" TEXT,
    "errors" TEXT,
    "sealedResult" BLOB,
    PRIMARY KEY ("jobId", "row")
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX "jobRows_state" ON "jobRows" ("jobId", "state", "row");
`;

/** From the factory line to the field: stations, jobs, certificates, overlapping secrets, verifications. */
export const name = '0010-factory';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
