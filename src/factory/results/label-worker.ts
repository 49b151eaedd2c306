/** The thread that draws labels: the event loop of the service does not wait for it. */
import { answerQuestions } from '../../../db/threads/answering.ts';
import type { LabelAnswer, LabelQuestion } from './label-drawer.ts';
import { drawLabel } from './labels.ts';

answerQuestions<LabelQuestion, LabelAnswer>({ answer: ({ drawing, label }) => drawLabel(drawing, label) });
