/** Below the disk reserve what grows is answered 507. What reads, shrinks, revokes or logs in still works. */
import { PlatformError } from '../../errors.js';
import type { Keeping } from '../../messages/keeping.js';
import type { App } from '../app.js';
import { creatingPosts } from '../idempotency.js';

/**
 * Of the POSTs that make something these are served all the same: a new secret ends the old one, and deleting many devices
 * makes room. What devices send is refused by the message store, which explains it to them.
 */
const servedPosts: ReadonlySet<string> = new Set([
  '/api/v1/access/mqtt-credentials',
  '/api/v1/devices/:id/replace',
  '/api/v1/devices/jobs',
  '/api/v1/devices/:id/logs',
  '/api/v4/data/*',
  '/api/v1/messaging/publish/*',
  '/messaging/publish/*',
]);
/** A shorter retention makes room. */
const servedPuts = /\/retention$/;

/** Refuses requests that make the registry grow while the disk is full. Mount behind idempotentPosts: repeats are answered. */
export function keepReserve(app: App, { keeping }: { keeping: Pick<Keeping, 'diskFull'> }): void {
  app.addHook('preHandler', (request, _, next) => {
    const reason = keeping.diskFull;
    if (reason === undefined || !grows(request)) return next();
    next(new PlatformError('storeFull', { details: [{ message: reason }] }));
  });
}

function grows({
  method,
  routeOptions,
  body,
}: {
  method: string;
  routeOptions: { url?: string | undefined };
  body: unknown;
}): boolean {
  const { url = '' } = routeOptions;
  if (method === 'PUT') return !servedPuts.test(url);
  if (method !== 'POST') return false;
  // A job that changes nothing leaves only its rows.
  const isDryRun = typeof body === 'object' && body !== null && 'dryRun' in body && body.dryRun === true;
  if (url === '/api/v1/devices/jobs' && isDryRun) return true;
  return creatingPosts.has(url) && !servedPosts.has(url);
}
