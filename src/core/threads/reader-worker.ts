/** A thread of Readers: it has a connection of its own, which only reads. */
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../../../db/sqlite/open.ts';
import { answerQuestions } from '../../../db/threads/answering.ts';
import type { ReadQuestion } from './readers.ts';

let file: Sqlite.Database | undefined;

answerQuestions<ReadQuestion, unknown[]>({
  answer: ({ path, sql, parameters }) => {
    file ??= openSqlite(path, { readonly: true, cache: 'busy' });
    return file.prepare(sql).all(...parameters);
  },
});
