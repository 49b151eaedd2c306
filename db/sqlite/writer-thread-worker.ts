/** The thread that executes the statements of long transactions, one after the other. */
import { dirname } from 'node:path';
import { workerData } from 'node:worker_threads';
import type { QueryResult } from 'kysely';
import { commitAsHolder, Fence } from '../files/lock.ts';
import { answerQuestions } from '../threads/answering.ts';
import { openWriter } from './open.ts';
import { StatementCache } from './statements.ts';
import type { Statement } from './writer-thread.ts';

const { path, mark } = workerData as { path: string; mark: string | undefined };
const file = openWriter(path);
const fence = mark === undefined ? undefined : Fence.open(dirname(path), mark);
const statements = new StatementCache(file);

answerQuestions<Statement, QueryResult<unknown>>({
  answer: (statement) => {
    const run = () => statements.run(statement);
    return statement.sql === 'COMMIT' ? commitAsHolder(fence, run) : run();
  },
  close: () => {
    file.close();
    fence?.close();
  },
});
