import type { MessagesContext } from '../messages/context.ts';
import type { Bridges } from './index.ts';

/** The services that route modules of bridges get: those below them, and their own. */
export interface BridgesContext extends MessagesContext {
  bridges: Bridges;
}
