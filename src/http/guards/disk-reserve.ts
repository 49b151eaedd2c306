/** Without room on the disk, or in the account's share of it, what grows is answered 507. What reads, shrinks, revokes or logs in still works. */
import type { FastifyRequest } from 'fastify';
import { PlatformError } from '../../core/errors.ts';
import type { App } from '../app.ts';

/** Whether there is room for what an account stores; otherwise why not. */
interface Keeping {
  refusal(accountId: string): string | undefined;
}

/** Refuses requests that make the registry grow where there is no room. Mount behind idempotentPosts: repeats are answered. */
export function keepReserve(app: App, { keeping }: { keeping: Keeping }): void {
  app.addHook('preHandler', (request, _, next) => {
    const message = grows(request) ? keeping.refusal(request.caller.accountId) : undefined;
    if (message === undefined) return next();
    next(new PlatformError('storeFull', { details: [{ message }] }));
  });
}

/** A PUT and a POST that makes something do, unless their route says otherwise. */
function grows({ method, routeOptions, body }: FastifyRequest): boolean {
  const { creates, whenFull = false } = routeOptions.config;
  if (method !== 'PUT' && !(method === 'POST' && creates)) return false;
  return !(typeof whenFull === 'function' ? whenFull(body) : whenFull);
}
