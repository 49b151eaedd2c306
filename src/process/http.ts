/** The HTTP server with every route. */
import type { FastifyRequest } from 'fastify';
import type { App } from '../http/app.ts';
import { buildHttp } from '../http/server.ts';
import { knownAccount } from '../identity/sessions/authentication.ts';
import type { Context } from './context.ts';
import { mountRoutes } from './routes.ts';

/** The caller listens and closes. */
export function openHttp(ctx: Context): Promise<App> {
  const services = {
    ...ctx,
    knownAccount: knownAccount(ctx),
    // Sampled: a program may ask over and over.
    noteForbidden: ({ caller, method, routeOptions }: FastifyRequest) => {
      const endpoint = `${method} ${routeOptions.url}`;
      const { accountId } = caller;
      const about = { accountId, actor: caller, details: { endpoint } };
      ctx.audit.sample({ event: 'permissionRefused', outcome: 'failure', ...about }, endpoint);
    },
  };
  return buildHttp(services, (app, traffic) => mountRoutes(app, ctx, traffic));
}
