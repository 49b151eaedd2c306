import type { MessagesContext } from '../messages/context.ts';
import type { Serving } from './exchange/answer.ts';
import type { Enrollment } from './exchange/exchange.ts';
import type { Renewals } from './renewal/renewals.ts';

/** The services that route modules of enrollment get: those below them, and their own. */
export interface EnrollmentContext extends MessagesContext {
  enrollment: Enrollment;
  renewals: Renewals;
  serving: Serving;
}
