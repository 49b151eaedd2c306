import type { Kysely } from 'kysely';
import { columnsButId, commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

const template = (table: string) => `
  CREATE TABLE "${table}" (${commonColumns},
    "name" TEXT NOT NULL,
    "default" INTEGER NOT NULL,
    "fields" TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "${table}_name" ON "${table}" ("accountId", "name") WHERE "deleted" IS NULL;
  CREATE UNIQUE INDEX "${table}_default" ON "${table}" ("accountId") WHERE "default" = 1;
  CREATE INDEX "${table}_trash" ON "${table}" ("accountId", "deleted") WHERE "deleted" IS NOT NULL;`;

const statements = `
  CREATE TABLE "accounts" ("id" TEXT NOT NULL PRIMARY KEY, "name" TEXT NOT NULL, "created" TEXT NOT NULL) STRICT;

  CREATE TABLE "identities" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "email" TEXT NOT NULL,
    "emailKey" TEXT NOT NULL,
    "passwordHash" TEXT,
    "created" TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "identities_email" ON "identities" ("accountId", "emailKey");

  CREATE TABLE "sessions" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
    "created" TEXT NOT NULL,
    "expires" TEXT NOT NULL,
    "ended" TEXT,
    "csrfHash" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "sessions_user" ON "sessions" ("userId");
  CREATE INDEX "sessions_expires" ON "sessions" ("expires");

  CREATE TABLE "accountUsers" (${commonColumns},
    "userId" TEXT NOT NULL REFERENCES "identities" ("id")
  ) STRICT;
  CREATE UNIQUE INDEX "accountUsers_user" ON "accountUsers" ("userId") WHERE "deleted" IS NULL;

  ${template('deviceTemplates')}
  ${template('endUserTemplates')}
  ${template('organizationTemplates')}

  CREATE TABLE "channelTemplates" (${commonColumns},
    "entityId" TEXT NOT NULL REFERENCES "deviceTemplates" ("id"),
    "entityType" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "streamBridgeDelivery" INTEGER NOT NULL,
    "persistenceType" TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "channelTemplates_name" ON "channelTemplates" ("entityId", "name") WHERE "deleted" IS NULL;
  CREATE INDEX "channelTemplates_account" ON "channelTemplates" ("accountId", "name") WHERE "deleted" IS NULL;

  CREATE TABLE "organizations" (${commonColumns},
    "organizationTemplateId" TEXT NOT NULL REFERENCES "organizationTemplates" ("id"),
    "parentId" TEXT REFERENCES "organizations" ("id"),
    "name" TEXT NOT NULL,
    "fields" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "organizations_name" ON "organizations" ("accountId", "name", "id") WHERE "deleted" IS NULL;
  CREATE INDEX "organizations_parent" ON "organizations" ("parentId", "deleted");
  CREATE INDEX "organizations_template" ON "organizations" ("organizationTemplateId", "deleted");

  CREATE TABLE "endUsers" (${commonColumns},
    "endUserTemplateId" TEXT NOT NULL REFERENCES "endUserTemplates" ("id"),
    "organizationId" TEXT NOT NULL REFERENCES "organizations" ("id"),
    "userId" TEXT NOT NULL REFERENCES "identities" ("id"),
    "fields" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "endUsers_created" ON "endUsers" ("accountId", "created", "id") WHERE "deleted" IS NULL;
  CREATE INDEX "endUsers_user" ON "endUsers" ("userId", "deleted");
  CREATE INDEX "endUsers_organization" ON "endUsers" ("organizationId", "deleted");
  CREATE INDEX "endUsers_template" ON "endUsers" ("endUserTemplateId", "deleted");

  CREATE TABLE "devices" (
    "row" INTEGER NOT NULL PRIMARY KEY,
    "id" TEXT NOT NULL UNIQUE,
    ${columnsButId},
    "deviceTemplateId" TEXT NOT NULL REFERENCES "deviceTemplates" ("id"),
    "organizationId" TEXT REFERENCES "organizations" ("id"),
    "serialNumber" TEXT NOT NULL,
    "provisioningState" TEXT NOT NULL,
    "firmwareVersion" TEXT,
    "latitude" TEXT,
    "longitude" TEXT,
    "connected" INTEGER NOT NULL,
    "lastConnected" TEXT,
    "externalIp" TEXT,
    "geoIpLatitude" TEXT,
    "geoIpLongitude" TEXT,
    "reverseDns" TEXT,
    "fields" TEXT NOT NULL
  ) STRICT;
  CREATE INDEX "devices_template" ON "devices" ("deviceTemplateId", "deleted", "serialNumber", "id");
  CREATE INDEX "devices_organization" ON "devices" ("organizationId", "deleted", "serialNumber", "id");
  CREATE INDEX "devices_connected" ON "devices" ("connected") WHERE "connected" = 1;
  CREATE INDEX "devices_trash" ON "devices" ("accountId", "deleted") WHERE "deleted" IS NOT NULL;

  CREATE TABLE "credentials" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "entityId" TEXT NOT NULL,
    "entityType" TEXT NOT NULL,
    "secretHash" TEXT NOT NULL,
    "generation" INTEGER NOT NULL,
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "lastModified" TEXT NOT NULL,
    "lastModifiedById" TEXT NOT NULL,
    "version" INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "credentials_entity" ON "credentials" ("entityId");
`;

/** Accounts, identities, sessions and the first entity kinds. */
export const name = '0001-foundation';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
