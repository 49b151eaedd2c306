/** The thread in which schemas that callers declare are compiled, and values are checked with them. */
import { answerQuestions } from '../../../db/threads/answering.ts';
import { checkSchema } from './compiled.ts';

answerQuestions({ answer: checkSchema });
