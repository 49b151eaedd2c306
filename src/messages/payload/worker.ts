/** The thread that reads large payloads: the event loop of the service does not wait for it. */
import { answerQuestions } from '../../threads/answering.ts';
import { type PayloadAnswer, type PayloadQuestion, readPayload, toColumns } from './reader.ts';

answerQuestions<PayloadQuestion, PayloadAnswer>(
  (question) => {
    const reading = readPayload(question);
    return 'reason' in reading ? reading : toColumns(reading.points);
  },
  (answer) =>
    'reason' in answer
      ? []
      : [answer.times, answer.numbers, answer.categoryOf].map(({ buffer }) => buffer as ArrayBuffer),
);
