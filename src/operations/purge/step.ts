import type { Logger } from 'pino';
import type { MessageStore } from '../../../db/messages/store.ts';
import type { Registry } from '../../../db/registry/index.ts';
import type { Bridges } from '../../bridges/index.ts';
import type { Access } from '../../core/access.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Clock } from '../../core/clock.ts';
import type { Fields } from '../../entity/fields.ts';
import type { Collector } from '../../firmware/packages/contents.ts';
import type { Retention } from '../../messages/retention.ts';

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
  gate: AccountGate;
};

/** Does a little of the work; whether there may be more. */
export type Step = (ctx: PurgeContext) => Promise<boolean>;
