import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const statements = `
  ALTER TABLE "bridges" ADD COLUMN "form" TEXT NOT NULL DEFAULT 'json';
  ALTER TABLE "bridges" ADD COLUMN "settings" TEXT NOT NULL DEFAULT '{}';
`;

/** Bridges to NATS, Kafka, Kinesis and MQTT: how messages are written, and what else the target needs, as JSON. */
export const name = '0020-bridge-kinds';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
