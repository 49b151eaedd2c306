/** The log entries of a page, read a part at a time while they are sent. */

import type { FoundEntry, LogsPart, MessageStore } from '../../../db/messages/store.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { Scheduler } from '../../core/scheduler/scheduler.ts';
import { currentCaller } from '../../entity/current-caller.ts';
import type { Items } from '../../http/answers/streamed-list.ts';
import type { Sessions } from '../../identity/sessions/sessions.ts';

type Services = { access: Access; messages: Pick<MessageStore, 'logs'>; sessions: Sessions };

/**
 * The entries of a page, a part at a time; `show` gets the caller as it is by then, and leaves an entry out by undefined.
 * @throws PlatformError 401/31 when the caller has lost its session or its role since it began.
 */
export function eachEntry<W>(
  ctx: Services,
  caller: Caller,
  begin: LogsPart,
  turns: Scheduler,
  show: (current: Caller, entry: FoundEntry) => W | undefined,
): Items<W> {
  const { logs } = ctx.messages;
  return async function* (answer) {
    const longWork = new LongWork();
    let part = begin;
    if (part.rest.length > 0) await answer.takePlace();
    for (let current: Caller = caller; ; ) {
      for (const entry of part.entries) {
        const shown = show(current, entry);
        if (shown !== undefined) yield shown;
        await longWork.giveWay();
      }
      const { rest } = part;
      if (rest.length === 0) return;
      part = await turns.run(laneOf(caller), 1, () => logs.more(rest));
      const still = currentCaller(ctx, caller);
      if (still?.kind !== caller.kind) throw new PlatformError('tokenInvalid');
      current = still;
    }
  };
}
