/** The thread of LongReads: it has a connection of its own, which only reads. */
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../../db/sqlite/open.ts';
import { answerQuestions } from './answering.ts';
import type { LongReadQuestion } from './long-reads.ts';

let file: Sqlite.Database | undefined;

answerQuestions<LongReadQuestion, unknown[]>(({ path, sql, parameters }) => {
  file ??= openSqlite(path, { readonly: true });
  return file.prepare(sql).all(...parameters);
});
