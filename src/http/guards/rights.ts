/** Enforces the right that a route states in `config.right`, which is also what OpenAPI prints, and narrows the caller to it. */
import type { preHandlerHookHandler } from 'fastify';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import type { App } from '../app.ts';

/** Someone who has just registered is told how to begin. */
function refusalOf({ kind }: Caller): PlatformError {
  if (kind !== 'newcomer') return new PlatformError('forbidden');
  const message =
    'This identity has no end-user. To begin, create your first organization: POST /api/v1/organizations with endUserTemplateId.';
  return new PlatformError('forbidden', { message });
}

/**
 * Answers 403/21 on every route whose right the caller does not have. The check comes after authentication and validation,
 * and before the handler, which looks at what exists. Call it before the routes are mounted.
 */
export function enforceRights(app: App, { access }: { access: Access }): void {
  app.addHook('onRoute', (route) => {
    const right = route.config?.right;
    if (!right) return;
    const demand: preHandlerHookHandler = (request, _, next) => {
      const { caller } = request;
      if (!access.may(caller, ...right)) return next(refusalOf(caller));
      request.caller = access.narrow(caller, ...right);
      next();
    };
    route.preHandler = [route.preHandler ?? [], demand].flat();
  });
}
