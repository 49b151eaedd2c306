/** The thread of certificates: the event loop does not wait for signatures, nor for a long list. */
import { answerQuestions } from '../../../db/threads/answering.ts';
import { tasks } from './tasks.ts';
import type { PkiQuestion } from './threads.ts';

answerQuestions<PkiQuestion, unknown>({
  answer: ({ task, given }) => (tasks[task] as (...of: unknown[]) => unknown)(...given),
});
