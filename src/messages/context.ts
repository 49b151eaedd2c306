import type { RegistryContext } from '../registry/context.ts';
import type { Keeping } from './keeping.ts';
import type { PayloadReader } from './payload/reader.ts';
import type { Retention } from './retention.ts';

/** The services that route modules of messages get: those below them, and their own. */
export interface MessagesContext extends RegistryContext {
  keeping: Keeping;
  payloads: PayloadReader;
  retention: Retention;
}
