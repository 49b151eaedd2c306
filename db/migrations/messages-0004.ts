import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * Messages on their way to bridges. `state` is 0 pending, 1 delivered, 2 dead, and `since` the time of
 * that. The first index answers every question but one by itself: what is pending of one device.
 */
const statements = `
  CREATE TABLE "outbox" (
    "sequence" INTEGER NOT NULL PRIMARY KEY,
    "bridgeId" TEXT NOT NULL,
    "state" INTEGER NOT NULL,
    "since" INTEGER NOT NULL,
    "id" TEXT NOT NULL,
    "deviceId" TEXT NOT NULL,
    "organizationId" TEXT,
    "deviceTemplateId" TEXT NOT NULL,
    "channel" TEXT NOT NULL,
    "qos" INTEGER NOT NULL,
    "time" INTEGER NOT NULL,
    "reason" TEXT,
    "payload" BLOB NOT NULL
  ) STRICT;
  CREATE INDEX "outbox_state" ON "outbox" ("bridgeId", "state", "sequence", "time", "since");
  CREATE INDEX "outbox_device" ON "outbox" ("bridgeId", "deviceId", "sequence") WHERE "state" = 0;
`;

export const name = 'messages-0004';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
