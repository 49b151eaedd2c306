/** The HTTP server with every route. */
import type { App } from '../http/app.ts';
import { buildHttp } from '../http/server.ts';
import type { Context } from './context.ts';
import { mountRoutes } from './routes.ts';

/** The caller listens and closes. */
export function openHttp(ctx: Context): Promise<App> {
  return buildHttp(ctx, (app, traffic) => mountRoutes(app, ctx, traffic));
}
