/** PUT /access/certificate-authorities/{id}/crl: the revocation list of a registered CA. */
import { Type } from 'typebox';
import type { Caller } from '../core/caller.ts';
import { invalid } from '../core/errors.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { etagOf, idParams } from '../entity/routes.ts';
import { demandLive, findReached } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { Intake } from '../http/intake.ts';
import type { RegistryContext } from '../registry/context.ts';
import { authorityShape, showAuthority } from './authorities.ts';
import { maxListBytes } from './revocation-lists.ts';

/** Base64 takes four bytes for three, and a line ends after 64. */
const maxBody = Math.ceil(maxListBytes * 1.4);
const limits = { maxBytes: maxBody, minBytes: 64 * 1024, perCaller: 1, perAccount: 2, total: 8 };

const binary = Type.Unsafe<Buffer>({ type: 'string', format: 'binary' });
const text = Type.String({ maxLength: maxBody, description: 'PEM.' });
const jsonBody = Type.Object({ crl: Type.String({ maxLength: maxBody, description: 'PEM, or base64 of DER.' }) });

/** In a scope of its own: elsewhere bodies are JSON. */
export function crlUploadRoutes(app: App, ctx: RegistryContext): void {
  const intake = new Intake({ ...limits, message: 'Too many uploads of revocation lists at once.' });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.put(
    '/access/certificate-authorities/:id/crl',
    {
      bodyLimit: maxBody,
      config: {
        right: ['update', 'certificateAuthority'],
        errors: ['notFound', 'deleted', 'forbidden', 'tooLarge', 'tooMany'],
        sends: ['etag', 'revocation'],
        // It ends what must not go on, also where there is no room for anything else.
        whenFull: true,
        bodyLimit: `A list has ${maxListBytes} bytes at most`,
        bodies: { 'application/pkix-crl': binary, 'application/x-pem-file': text, 'application/json': jsonBody },
      },
      schema: {
        tags: ['Credentials'],
        operationId: 'setRevocationList',
        summary: 'Give a registered CA its revocation list; connections of what it names end',
        description:
          'DER or PEM, of 10 MiB at most. It must be signed by the CA, be valid now, and have a higher number (CRL Number) than the present one. What it names is refused from then on. No etag. Delta, indirect and partial lists are not supported.',
        params: idParams,
        response: {
          200: Type.Object({ certificateAuthority: authorityShape }, { description: 'The CA with its new list.' }),
        },
      },
      // Refused before the body is read.
      preParsing: async (request, reply) => intake.takeRequest(request, reply),
    },
    async (request, reply) => {
      const { caller, params, headers } = request;
      const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      const isJson = headers['content-type']?.startsWith('application/json') ?? false;
      const certificateAuthority = await intake.use(request, () => setList(ctx, caller, params.id, { body, isJson }));
      return reply.header('etag', etagOf(certificateAuthority)).send({ certificateAuthority });
    },
  );
}

/** @throws PlatformError 404/100, 410/107, 400/106 for a list that is no good, or older than the present one. */
async function setList(ctx: RegistryContext, caller: Caller, id: string, given: { body: Buffer; isJson: boolean }) {
  const authority = demandLive(findReached(ctx, caller, 'certificateAuthorities', id));
  if (authority.issuing === 1) throw invalid('id', 'is a CA that issues: its list is made here, at GET /crl/{id}');
  const list = await ctx.revocationLists.read(laneOf(caller), authority, given);
  const { row, revoked } = await ctx.revocationLists.take(id, list, { caller });
  ctx.revoked.noteRevoked(caller, revoked);
  return showAuthority(row);
}
