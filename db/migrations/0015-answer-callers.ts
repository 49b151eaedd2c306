import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** Whose an answer for an Idempotency-Key is, so that those of one caller can be counted. */
export const name = '0015-answer-callers';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    'ALTER TABLE "idempotentAnswers" ADD COLUMN "callerId" TEXT',
    'CREATE INDEX "idempotentAnswers_caller" ON "idempotentAnswers" ("callerId", "created") WHERE "callerId" IS NOT NULL',
  ]);
}
