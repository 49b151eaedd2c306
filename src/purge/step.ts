import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.js';
import type { Registry } from '../../db/registry/index.js';
import type { Access } from '../access.js';
import type { Bridges } from '../bridges/index.js';
import type { Clock } from '../clock.js';
import type { Collector } from '../downlink/packages/contents.js';
import type { Fields } from '../entity/fields.js';
import type { Retention } from '../messages/retention.js';
import type { Moves } from '../moves.js';

/** Rows that one transaction looks at, so that other writers and the event loop get their turn in between. */
export const stepSize = 100;

/** The services of the purge. */
export type PurgeContext = {
  registry: Registry;
  messages: MessageStore;
  bridges: Bridges;
  retention: Retention;
  clock: Clock;
  log: Logger;
  access: Access;
  fields: Fields;
  collector: Collector;
  moves: Moves;
};

/** Does a little of the work; whether there may be more. */
export type Step = (ctx: PurgeContext) => Promise<boolean>;
