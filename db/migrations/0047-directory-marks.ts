import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** What lies beside the registry since a server has run on it; the fingerprint of a key is keyed by it. */
const statements = [
  `CREATE TABLE "directoryMarks" (
     "name" TEXT NOT NULL PRIMARY KEY,
     "fingerprint" TEXT NOT NULL
   ) STRICT, WITHOUT ROWID`,
];

export const name = '0047-directory-marks';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
