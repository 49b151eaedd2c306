/** The reads of one overview are made together: a dozen turns on a thread would take longer than what is read. */
import type { Compilable, CompiledQuery, RawBuilder } from 'kysely';
import type { Caller } from '../caller.ts';
import { laneOf } from '../limits/lanes.ts';
import type { Action, EntityKind } from '../rights.ts';
import type { OverviewContext } from './context.ts';

/** What the parts of an overview are made with: `read` takes what is asked for in one go. */
export interface OverviewRequest extends OverviewContext {
  caller: Caller;
  read<R>(query: RawBuilder<unknown> | Compilable<R>): Promise<R[]>;
}

/** The request with its caller as it uses this right; undefined for one that does not have it. */
export function withRight(request: OverviewRequest, action: Action, kind: EntityKind): OverviewRequest | undefined {
  const { access, caller } = request;
  return access.may(caller, action, kind) ? { ...request, caller: access.narrow(caller, action, kind) } : undefined;
}

interface Waiting {
  query: CompiledQuery<unknown>;
  resolve(rows: unknown[]): void;
  reject(error: unknown): void;
}

export function requestOf(ctx: OverviewContext, caller: Caller): OverviewRequest {
  let waiting: Waiting[] = [];
  const readWaiting = async () => {
    const reads = waiting;
    waiting = [];
    try {
      const queries = reads.map(({ query }) => query);
      const found = await ctx.readers.readAll(laneOf(caller), queries);
      for (const [at, { resolve }] of reads.entries()) resolve(found[at] ?? []);
    } catch (error) {
      for (const { reject } of reads) reject(error);
    }
  };
  function read<R>(query: RawBuilder<unknown> | Compilable<R>): Promise<R[]> {
    return new Promise((resolve, reject) => {
      if (waiting.length === 0) queueMicrotask(() => void readWaiting());
      const compiled = 'isRawBuilder' in query ? query.compile(ctx.registry.query) : query.compile();
      waiting.push({ query: compiled, resolve: resolve as Waiting['resolve'], reject });
    });
  }
  return { ...ctx, caller, read };
}
