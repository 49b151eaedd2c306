/** The thread that executes the statements of long transactions, one after the other. */
import { dirname } from 'node:path';
import { workerData } from 'node:worker_threads';
import type { QueryResult } from 'kysely';
import { commitAsHolder, Fence } from '../files/lock.ts';
import { answerQuestions } from '../threads/answering.ts';
import { NotedChanges } from './noted-changes.ts';
import { openWriter } from './open.ts';
import { StatementCache } from './statements.ts';
import type { Statement, WriterOptions } from './writer-thread.ts';

const { path, mark, triggers } = workerData as WriterOptions;
const file = openWriter(path);
const fence = mark === undefined ? undefined : Fence.open(dirname(path), mark);
const statements = new StatementCache(file);
const changes = new NotedChanges(file, triggers);

answerQuestions<Statement, QueryResult<unknown>>({
  answer: (statement) => {
    const run = () => statements.run(statement);
    if (statement.sql !== 'COMMIT') return run();
    // The answer to a commit is what it has changed.
    return { ...commitAsHolder(fence, run), rows: [...changes.take()] };
  },
  close: () => {
    file.close();
    fence?.close();
  },
});
