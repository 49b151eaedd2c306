import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';
import { type Counted, counting } from './messages-0015.ts';
import { numbered, outboxSize, propertiesSize, retainedSize, sorted, texts } from './row-sizes.ts';

const tables: Record<string, Counted> = {
  mqttMessages: {
    account: (row) => `${row}"accountId"`,
    size: (row) =>
      `25 * ${row}"places" + ${numbered(`(60 + ${texts(row, 'topic', 'payload')} + ${propertiesSize(row)})`)}`,
  },
  mqttRetained: {
    account: (row) => `${row}"accountId"`,
    size: (row) => sorted(`(45 + ${texts(row, 'topic', 'payload')} + ${propertiesSize(row)})`),
    changed: 'payload',
  },
  mqttWills: {
    account: (row) => `substr(${row}"clientId", 1, 36)`,
    size: (row) => sorted(`(60 + ${texts(row, 'clientId', 'topic', 'payload')} + ${propertiesSize(row)})`),
    changed: 'payload',
  },
  outbox: {
    account: (row) => `${row}"accountId"`,
    size: outboxSize,
  },
};

const retainedUse = (row: 'NEW' | 'OLD', count: string, bytes: string) =>
  `INSERT INTO "mqttRetainedUse" VALUES (${row}."accountId", ${count}, ${bytes})
   ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count", "bytes" = "bytes" + excluded."bytes";`;

const statements = [
  'ALTER TABLE "mqttMessages" ADD COLUMN "properties" BLOB',
  'ALTER TABLE "mqttMessages" ADD COLUMN "expires" INTEGER',
  'ALTER TABLE "mqttMessages" ADD COLUMN "retain" INTEGER NOT NULL DEFAULT 0',
  'ALTER TABLE "mqttRetained" ADD COLUMN "properties" BLOB',
  'ALTER TABLE "mqttRetained" ADD COLUMN "expires" INTEGER',
  'CREATE INDEX "mqttRetained_expires" ON "mqttRetained" ("expires") WHERE "expires" IS NOT NULL',
  'ALTER TABLE "mqttWills" ADD COLUMN "properties" BLOB',
  'ALTER TABLE "mqttWills" ADD COLUMN "messageExpiry" INTEGER',
  'ALTER TABLE "mqttWills" ADD COLUMN "delay" INTEGER NOT NULL DEFAULT 0',
  'ALTER TABLE "mqttWills" ADD COLUMN "due" INTEGER',
  'ALTER TABLE "mqttSessions" ADD COLUMN "expiry" INTEGER',
  'ALTER TABLE "mqttSubscriptions" ADD COLUMN "identifier" INTEGER',
  'ALTER TABLE "outbox" ADD COLUMN "properties" BLOB',
  'ALTER TABLE "outbox" ADD COLUMN "expires" INTEGER',
  ...Object.entries(tables).flatMap(([table, rule]) => [
    `DROP TRIGGER "${table}_held"`,
    `DROP TRIGGER "${table}_dropped"`,
    ...(rule.changed === undefined ? [] : [`DROP TRIGGER "${table}_resized"`]),
    ...counting([table, rule]),
  ]),
  'DROP TRIGGER "mqttRetained_added"',
  'DROP TRIGGER "mqttRetained_removed"',
  'DROP TRIGGER "mqttRetained_changed"',
  `CREATE TRIGGER "mqttRetained_added" AFTER INSERT ON "mqttRetained"
   BEGIN ${retainedUse('NEW', '1', retainedSize('NEW.'))} END`,
  `CREATE TRIGGER "mqttRetained_removed" AFTER DELETE ON "mqttRetained"
   BEGIN ${retainedUse('OLD', '-1', `-${retainedSize('OLD.')}`)} END`,
  `CREATE TRIGGER "mqttRetained_changed" AFTER UPDATE OF "payload" ON "mqttRetained"
   BEGIN ${retainedUse('NEW', '0', `${retainedSize('NEW.')} - ${retainedSize('OLD.')}`)} END`,
];

/**
 * What MQTT 5 keeps: `properties` are those that travel with a message, as bytes of the protocol; `expires` and `due` are in
 * milliseconds since 1970, the others in seconds. Null where the client said nothing.
 */
export const name = 'messages-0016';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
