/** Below the disk reserve what grows is answered 507. What reads, shrinks, revokes or logs in still works. */
import type { FastifyRequest } from 'fastify';
import { PlatformError } from '../../errors.js';
import type { Keeping } from '../../messages/keeping.js';
import type { App } from '../app.js';

/** Refuses requests that make the registry grow while the disk is full. Mount behind idempotentPosts: repeats are answered. */
export function keepReserve(app: App, { keeping }: { keeping: Pick<Keeping, 'diskFull'> }): void {
  app.addHook('preHandler', (request, _, next) => {
    const reason = keeping.diskFull;
    if (reason === undefined || !grows(request)) return next();
    next(new PlatformError('storeFull', { details: [{ message: reason }] }));
  });
}

/** A PUT and a POST that makes something do, unless their route says otherwise. */
function grows({ method, routeOptions, body }: FastifyRequest): boolean {
  const { creates, whenFull = false } = routeOptions.config;
  if (method !== 'PUT' && !(method === 'POST' && creates)) return false;
  return !(typeof whenFull === 'function' ? whenFull(body) : whenFull);
}
