import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * MQTT sessions and what is kept for them. A message for several sessions is stored once; the queue is clustered by
 * message, so that it grows at its end and the last reference to a message is found without an index of its own.
 */
const statements = `
  CREATE TABLE "mqttSessions" ("id" INTEGER NOT NULL PRIMARY KEY, "clientId" TEXT NOT NULL, "left" INTEGER) STRICT;

  CREATE TABLE "mqttSubscriptions" (
    "session" INTEGER NOT NULL,
    "filter" TEXT NOT NULL,
    "options" INTEGER NOT NULL,
    PRIMARY KEY ("session", "filter")
  ) WITHOUT ROWID, STRICT;

  CREATE TABLE "mqttMessages" (
    "id" INTEGER NOT NULL PRIMARY KEY,
    "topic" TEXT NOT NULL,
    "qos" INTEGER NOT NULL,
    "payload" BLOB NOT NULL
  ) STRICT;

  CREATE TABLE "mqttQueue" (
    "message" INTEGER NOT NULL,
    "session" INTEGER NOT NULL,
    "packetId" INTEGER,
    "released" INTEGER NOT NULL,
    PRIMARY KEY ("message", "session")
  ) WITHOUT ROWID, STRICT;

  CREATE TABLE "mqttIncoming" (
    "session" INTEGER NOT NULL,
    "packetId" INTEGER NOT NULL,
    PRIMARY KEY ("session", "packetId")
  ) WITHOUT ROWID, STRICT;

  CREATE TABLE "mqttRetained" (
    "topic" TEXT NOT NULL PRIMARY KEY,
    "qos" INTEGER NOT NULL,
    "payload" BLOB NOT NULL
  ) WITHOUT ROWID, STRICT;

  CREATE TABLE "mqttWills" (
    "clientId" TEXT NOT NULL PRIMARY KEY,
    "topic" TEXT NOT NULL,
    "qos" INTEGER NOT NULL,
    "retain" INTEGER NOT NULL,
    "payload" BLOB NOT NULL,
    "generation" INTEGER,
    "sessionId" TEXT
  ) WITHOUT ROWID, STRICT;
`;

export const name = 'messages-0002';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
