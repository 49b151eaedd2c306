/** Credentials of devices that are being renewed: the former one ends when the new one has connected, or in time. */
import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

export const name = '0040-renewals';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    `CREATE TABLE "renewals" (
       "deviceId" TEXT NOT NULL PRIMARY KEY,
       "accountId" TEXT NOT NULL,
       "certificateId" TEXT,
       "generation" INTEGER,
       "formerCertificateId" TEXT,
       "formerGeneration" INTEGER,
       "until" TEXT NOT NULL
     ) STRICT, WITHOUT ROWID`,
  ]);
}
