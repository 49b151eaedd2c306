import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const isFailure = `NEW."state" IN ('failed', 'timedOut', 'expired')`;
const ofRow = `"jobId" = NEW."jobId" AND "row" = NEW."jobRow" AND "state" = 'open' AND "commandId" = NEW."id"`;

const statements: readonly string[] = [
  'ALTER TABLE "commands" ADD COLUMN "jobId" TEXT',
  'ALTER TABLE "commands" ADD COLUMN "jobRow" INTEGER',
  'ALTER TABLE "jobRows" ADD COLUMN "commandId" TEXT',
  'ALTER TABLE "jobs" ADD COLUMN "failures" INTEGER NOT NULL DEFAULT 0',
  // Whatever ends a command ends its row in the same transaction.
  `CREATE TRIGGER "commands_of_jobs" AFTER UPDATE OF "state" ON "commands"
   WHEN NEW."jobId" IS NOT NULL AND OLD."finished" IS NULL AND NEW."finished" IS NOT NULL BEGIN
     UPDATE "jobs" SET
       "done" = "done" + (NEW."state" = 'succeeded'),
       "failed" = "failed" + (${isFailure}),
       "failures" = "failures" + (${isFailure}),
       "skipped" = "skipped" + (NEW."state" = 'cancelled')
     WHERE "id" = NEW."jobId" AND EXISTS (SELECT 1 FROM "jobRows" WHERE ${ofRow});
     UPDATE "jobRows" SET
       "state" = CASE NEW."state" WHEN 'succeeded' THEN 'done' WHEN 'cancelled' THEN 'skipped' ELSE 'failed' END,
       "errors" = CASE NEW."state"
         WHEN 'failed' THEN json_array(json_object('message',
           'The device has answered that it failed' || coalesce(': ' || substr(NEW."result", 1, 300), '') || '.'))
         WHEN 'timedOut' THEN json_array(json_object('message', 'The device has not answered in time.'))
         WHEN 'expired' THEN json_array(json_object('message', 'The device was not there in time.'))
         WHEN 'cancelled' THEN json_array(json_object('message', 'The command was cancelled.'))
       END
     WHERE ${ofRow};
   END`,
];

/** Commands that a job has sent: each end of one is told to its row. */
export const name = '0063-commands-of-jobs';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
