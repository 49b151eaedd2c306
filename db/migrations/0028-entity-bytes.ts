import type { Kysely } from 'kysely';
import { addKept as add, countRows, type RowSize, trigger } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

const tables: Record<string, RowSize> = {
  devices: { row: 1000, texts: { serialNumber: 7, firmwareVersion: 7, fields: 1.5 } },
  organizations: { row: 500, texts: { name: 2, fields: 1.5 } },
  endUsers: { row: 600, texts: { fields: 1.5 } },
  deviceTemplates: { row: 400, texts: { name: 2, fields: 1.5 } },
  endUserTemplates: { row: 400, texts: { name: 2, fields: 1.5 } },
  organizationTemplates: { row: 400, texts: { name: 2, fields: 1.5 } },
  channelTemplates: { row: 450, texts: { name: 2 } },
  customFields: { row: 500, texts: { name: 2, description: 1, default: 1 } },
  applications: { row: 500, texts: { name: 1 } },
  identityProviders: {
    row: 500,
    texts: { name: 2, issuer: 1, clientId: 1, sealedClientSecret: 1, scope: 1, redirectUris: 1 },
  },
  bridges: { row: 500, texts: { name: 2, sealedUrl: 1, sealedSecret: 1, settings: 1 } },
  certificates: { row: 900, texts: { certificate: 1, subject: 1, issuer: 1 } },
  certificateAuthorities: { row: 700, texts: { name: 2, certificate: 1, subject: 2, challenge: 1 } },
  accountUsers: { row: 400 },
  firmwarePackages: { row: 500, texts: { name: 1, description: 1 } },
  firmwareFiles: { row: 400, texts: { name: 2, revision: 1, signature: 1 } },
  firmwareUploads: { row: 350, texts: { name: 1 } },
  firmwareRollouts: { row: 600, texts: { target: 1, stages: 1 } },
  firmwareTargets: { row: 130 },
  firmwareDeliveries: { row: 500, texts: { message: 1, files: 1 } },
  identities: {
    row: 500,
    texts: {
      ...{ email: 1, emailKey: 2, passwordHash: 1, name: 1, firstName: 1, lastName: 1, company: 1, department: 1 },
      ...{ phoneNumber: 1, address: 1, addressObject: 1 },
    },
  },
  credentials: { row: 600 },
  associationCodes: { row: 300 },
  sessions: { row: 500 },
  federatedIdentities: { row: 200, texts: { issuer: 2, subject: 2 } },
  idempotentAnswers: { row: 500 },
};

/** A content counts once for an account, however many of its packages have it. */
const sameContent = (row: 'NEW' | 'OLD') =>
  `EXISTS (SELECT 1 FROM "firmwareFiles" WHERE "accountId" = ${row}."accountId" AND "sha256" = ${row}."sha256"
   AND ("packageId" <> ${row}."packageId" OR "name" <> ${row}."name"))`;
const contents = [
  `INSERT INTO "kept" SELECT "accountId", 'firmwareBytes', sum("bytes") FROM (
     SELECT "accountId", max("size") AS "bytes" FROM "firmwareFiles" GROUP BY "accountId", "sha256"
     UNION ALL SELECT "accountId", "received" FROM "firmwareUploads") GROUP BY "accountId"`,
  trigger(
    'firmwareFiles_content_kept',
    'INSERT ON "firmwareFiles"',
    add('NEW', 'firmwareBytes', 'NEW."size"', `NOT ${sameContent('NEW')}`),
  ),
  trigger(
    'firmwareFiles_content_gone',
    'DELETE ON "firmwareFiles"',
    add('OLD', 'firmwareBytes', '-OLD."size"', `NOT ${sameContent('OLD')}`),
  ),
  trigger(
    'firmwareUploads_received_kept',
    'INSERT ON "firmwareUploads"',
    add('NEW', 'firmwareBytes', 'NEW."received"'),
  ),
  trigger(
    'firmwareUploads_received_gone',
    'DELETE ON "firmwareUploads"',
    add('OLD', 'firmwareBytes', '-OLD."received"'),
  ),
  trigger(
    'firmwareUploads_received_changed',
    'UPDATE OF "received" ON "firmwareUploads"',
    add('NEW', 'firmwareBytes', 'NEW."received" - OLD."received"'),
  ),
];

/** How many bytes on disk, about, the entities and the firmware of an account take; kept by triggers. */
export const name = '0028-entity-bytes';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    `ALTER TABLE "firmwareTargets" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`,
    `UPDATE "firmwareTargets" SET "accountId" = (SELECT "accountId" FROM "firmwareRollouts" WHERE "id" = "rolloutId")`,
    ...Object.entries(tables).flatMap(([table, size]) => countRows(table, size)),
    ...contents,
  ]);
}
