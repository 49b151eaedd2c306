import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

/** Fields of every entity. */
const statements = `
  ALTER TABLE "identities" ADD COLUMN "emailUnproven" INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE "identities" ADD COLUMN "name" TEXT;
  ALTER TABLE "identities" ADD COLUMN "firstName" TEXT;
  ALTER TABLE "identities" ADD COLUMN "lastName" TEXT;
  ALTER TABLE "identities" ADD COLUMN "company" TEXT;
  ALTER TABLE "identities" ADD COLUMN "department" TEXT;
  ALTER TABLE "identities" ADD COLUMN "phoneNumber" TEXT;
  ALTER TABLE "identities" ADD COLUMN "address" TEXT;

  CREATE TABLE "applications" (
${commonColumns},
    "name" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "tokenHash" TEXT NOT NULL,
    "accessTokenLifetime" INTEGER,
    "revealResetToken" INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "applications_token" ON "applications" ("tokenHash");
  CREATE INDEX "applications_created" ON "applications" ("accountId", "created", "id") WHERE "deleted" IS NULL;

  CREATE TABLE "sessionsOfAll" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "userId" TEXT REFERENCES "identities" ("id") ON DELETE CASCADE,
    "applicationId" TEXT REFERENCES "applications" ("id") ON DELETE CASCADE,
    "created" TEXT NOT NULL,
    "expires" TEXT NOT NULL,
    "ended" TEXT,
    "csrfHash" TEXT NOT NULL,
    "address" TEXT,
    CHECK (("userId" IS NULL) <> ("applicationId" IS NULL))
  ) STRICT;
  INSERT INTO "sessionsOfAll" ("id", "accountId", "userId", "created", "expires", "ended", "csrfHash")
    SELECT "id", "accountId", "userId", "created", "expires", "ended", "csrfHash" FROM "sessions";
  DROP TABLE "sessions";
  ALTER TABLE "sessionsOfAll" RENAME TO "sessions";
  CREATE INDEX "sessions_user" ON "sessions" ("userId", "address");
  CREATE INDEX "sessions_application" ON "sessions" ("applicationId") WHERE "applicationId" IS NOT NULL;
  CREATE INDEX "sessions_expires" ON "sessions" ("expires");

  CREATE TABLE "mailedTokens" (
    "tokenHash" TEXT NOT NULL PRIMARY KEY,
    "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
    "purpose" TEXT NOT NULL,
    "email" TEXT,
    "created" TEXT NOT NULL,
    "expires" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "mailedTokens_user" ON "mailedTokens" ("userId", "purpose");
  CREATE INDEX "mailedTokens_expires" ON "mailedTokens" ("expires");

  CREATE TABLE "mfaMethods" (
    "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
    "method" TEXT NOT NULL,
    "created" TEXT NOT NULL,
    "confirmed" TEXT,
    "sealedSecret" TEXT,
    "phoneNumber" TEXT,
    "lastStep" INTEGER,
    "codeHash" TEXT,
    "codeExpires" TEXT,
    "tries" INTEGER NOT NULL,
    PRIMARY KEY ("userId", "method")
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE "recoveryCodes" (
    "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
    "codeHash" TEXT NOT NULL,
    PRIMARY KEY ("userId", "codeHash")
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE "mfaLogins" (
    "tokenHash" TEXT NOT NULL PRIMARY KEY,
    "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
    "renewalType" TEXT,
    "expires" TEXT NOT NULL,
    "tries" INTEGER NOT NULL,
    "codesSent" INTEGER NOT NULL,
    "codeHash" TEXT,
    "codeExpires" TEXT
  ) STRICT;
  CREATE INDEX "mfaLogins_user" ON "mfaLogins" ("userId");
  CREATE INDEX "mfaLogins_expires" ON "mfaLogins" ("expires");

  CREATE TABLE "identityProviders" (
${commonColumns},
    "name" TEXT NOT NULL,
    "issuer" TEXT NOT NULL,
    "clientId" TEXT NOT NULL,
    "sealedClientSecret" TEXT,
    "scope" TEXT NOT NULL,
    "redirectUris" TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "identityProviders_name" ON "identityProviders" ("accountId", "name") WHERE "deleted" IS NULL;

  CREATE TABLE "federatedIdentities" (
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "issuer" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
    "created" TEXT NOT NULL,
    PRIMARY KEY ("accountId", "issuer", "subject")
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX "federatedIdentities_user" ON "federatedIdentities" ("userId");

  CREATE TABLE "federatedLogins" (
    "stateHash" TEXT NOT NULL PRIMARY KEY,
    "providerId" TEXT NOT NULL REFERENCES "identityProviders" ("id") ON DELETE CASCADE,
    "browserHash" TEXT NOT NULL,
    "sealed" TEXT NOT NULL,
    "expires" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "federatedLogins_provider" ON "federatedLogins" ("providerId");
  CREATE INDEX "federatedLogins_expires" ON "federatedLogins" ("expires");

  CREATE TABLE "auditRecords" (
    "sequence" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "id" TEXT NOT NULL UNIQUE,
    "accountId" TEXT NOT NULL,
    "time" TEXT NOT NULL,
    "event" TEXT NOT NULL,
    "outcome" TEXT NOT NULL,
    "actorKind" TEXT,
    "actorId" TEXT,
    "targetKind" TEXT,
    "targetId" TEXT,
    "address" TEXT,
    "details" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "auditRecords_time" ON "auditRecords" ("accountId", "time", "sequence");
  CREATE INDEX "auditRecords_event" ON "auditRecords" ("accountId", "event", "time", "sequence");
  CREATE INDEX "auditRecords_actor" ON "auditRecords" ("accountId", "actorId", "time", "sequence") WHERE "actorId" IS NOT NULL;
  CREATE INDEX "auditRecords_target" ON "auditRecords" ("accountId", "targetId", "time", "sequence") WHERE "targetId" IS NOT NULL;
`;

const appendOnly = ['UPDATE', 'DELETE'].map(
  (verb) => `CREATE TRIGGER "auditRecords_no_${verb.toLowerCase()}" BEFORE ${verb} ON "auditRecords"
    BEGIN SELECT RAISE(ABORT, 'audit records are append-only'); END`,
);

/** Whatever changes a password: logins that began with the former one end. */
const newPassword = `CREATE TRIGGER "identities_new_password" AFTER UPDATE OF "passwordHash" ON "identities"
  WHEN NEW."passwordHash" IS NOT OLD."passwordHash"
  BEGIN DELETE FROM "mfaLogins" WHERE "userId" = NEW."id"; END`;

/**
 * Identity: profiles, applications and their sessions, emailed tokens, second factors, federated login, and the audit record.
 * Secrets are hashed, or sealed where they must be read again.
 */
export const name = '0005-identity';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [...statements.split(';'), ...appendOnly, newPassword]);
}
