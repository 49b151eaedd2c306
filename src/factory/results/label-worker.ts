/** The thread that draws labels: the event loop of the service does not wait for it. */
import { answerQuestions } from '../../threads/answering.js';
import type { LabelAnswer, LabelQuestion } from './label-drawer.js';
import { drawLabel } from './labels.js';

answerQuestions<LabelQuestion, LabelAnswer>(({ drawing, label }) => drawLabel(drawing, label));
