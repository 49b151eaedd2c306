/** The reading thread. What can be asked is in reads.ts. */
import { workerData } from 'node:worker_threads';
import { answerQuestions } from '../../threads/answering.ts';
import type { ReadAnswer, ReadQuestion } from './reader.ts';
import { openReads } from './reads.ts';

const reads = openReads((workerData as { directory: string }).directory);

answerQuestions<ReadQuestion, ReadAnswer>({
  answer: ({ name, question }) => (reads[name] as (question: ReadQuestion['question']) => ReadAnswer)(question),
  close: reads.close,
});
