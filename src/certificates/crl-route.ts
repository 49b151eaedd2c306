/** Where those who check a certificate download the revocation list of its CA. */
import { Type } from 'typebox';
import { PlatformError } from '../core/errors.ts';
import type { App } from '../http/app.ts';
import type { RegistryContext } from '../registry/context.ts';

/** In a scope without a caller. */
export function crlRoutes(app: App, ctx: RegistryContext): void {
  app.get(
    '/crl/:authorityId',
    {
      config: { errors: ['notFound', 'tooMany'] },
      schema: {
        tags: ['Credentials'],
        operationId: 'getRevocationList',
        summary: 'Download the revocation list of an issuing CA (DER)',
        description:
          'Anyone may. A certificate is on it as soon as it was deleted or replaced, until it would have expired. There is no OCSP.',
        security: [],
        params: Type.Object({ authorityId: Type.String() }),
        response: {
          200: {
            description: 'The list.',
            content: {
              'application/pkix-crl': { schema: Type.Unsafe<Buffer>({ type: 'string', format: 'binary' }) },
            },
          },
        },
      },
    },
    async (request, reply) => {
      const authority = ctx.registry.entity('certificateAuthorities', request.params.authorityId);
      if (authority?.issuing !== 1 || authority.state !== 'active') throw new PlatformError('notFound');
      const list = await ctx.issuedLists.listOf(authority);
      return reply.headers({ 'content-type': 'application/pkix-crl', 'cache-control': 'no-cache' }).send(list);
    },
  );
}
