/** What the parts of an overview are made with. */
import type { Read } from '../../../db/registry/statement.ts';
import type { Caller } from '../../core/caller.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { Action, EntityKind } from '../../core/rights.ts';
import type { OverviewContext } from './context.ts';

/** `read` takes what is asked for in one go to a thread: the event loop reads nothing of an overview. */
export interface OverviewRequest extends OverviewContext {
  caller: Caller;
  read: Read;
}

/** The request with its caller as it uses this right; undefined for one that does not have it. */
export function withRight(request: OverviewRequest, action: Action, kind: EntityKind): OverviewRequest | undefined {
  const { access, caller } = request;
  return access.may(caller, action, kind) ? { ...request, caller: access.narrow(caller, action, kind) } : undefined;
}

export function requestOf(ctx: OverviewContext, caller: Caller): OverviewRequest {
  return { ...ctx, caller, read: ctx.readers.readTogether(laneOf(caller), ctx.registry.query) };
}
