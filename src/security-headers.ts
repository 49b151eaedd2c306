/** The security headers of every answer. */
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import helmet from 'helmet';
import type { App } from './http.js';

/** They are the same for all: helmet would make them anew for each, which took a twelfth of the time of a short request. */
export function securityHeaders(app: App, { hsts }: { hsts: boolean }): void {
  const sample = new ServerResponse(new IncomingMessage(new Socket()));
  const set = helmet({ contentSecurityPolicy: { directives: { upgradeInsecureRequests: null } }, hsts });
  set(sample.req, sample, () => {});
  const headers = Object.entries(sample.getHeaders()).map(([name, value]) => [name, String(value)] as const);
  app.addHook('onRequest', (_, reply, done) => {
    // On the response itself: what is sent past Fastify, as streams are, has them too.
    for (const [name, value] of headers) reply.raw.setHeader(name, value);
    done();
  });
}
