/** The thread that reads large payloads: the event loop of the service does not wait for it. */
import { answerQuestions } from '../../../db/threads/answering.ts';
import { type PayloadAnswer, type PayloadQuestion, readPayload, toColumns } from './reader.ts';

answerQuestions<PayloadQuestion, PayloadAnswer>({
  answer: (question) => {
    const reading = readPayload(question);
    return 'reason' in reading ? reading : toColumns(reading.points);
  },
  transferred: (answer) =>
    'reason' in answer
      ? []
      : [answer.times, answer.numbers, answer.categoryOf].map(({ buffer }) => buffer as ArrayBuffer),
});
