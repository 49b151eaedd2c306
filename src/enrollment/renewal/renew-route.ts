/** POST /enroll/renew: a device gets its next credential by the one that it has. */
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { csrShape } from '../../certificates/issuer-routes.ts';
import { PlatformError } from '../../core/errors.ts';
import type { App } from '../../http/app.ts';
import { requireCaller } from '../../identity/sessions/authentication.ts';
import { provenCaller, takePasswords } from '../../messages/publish.ts';
import type { ProvenCaller } from '../../ports/publisher.ts';
import type { EnrollmentContext } from '../context.ts';
import { answerFor, answerShape } from '../exchange/answer.ts';

const body = Type.Object({ csr: Type.Optional(csrShape) });

/** In a scope of its own: devices prove themselves with their secret or certificate. */
export function renewRoutes(app: App, ctx: EnrollmentContext): void {
  const proven = new WeakMap<FastifyRequest, ProvenCaller>();
  takePasswords(app, ctx, proven);
  requireCaller(app, ctx);
  app.post(
    '/enroll/renew',
    {
      config: {
        right: ['create', 'renewal'],
        errors: ['unknownReference', 'forbidden', 'badCredentials', 'tooMany'],
      },
      schema: {
        tags: ['Enrollment'],
        operationId: 'renewCredential',
        summary:
          'Get the next credential of a device, as the device (Basic: its id and secret, or its client certificate)',
        description:
          'A certificate for a `csr`, otherwise a secret. The present credential works until a connection with the new one has its CONNACK, at most `overlapDays` of the group (7). Asked again, the first new one ends.',
        security: [{ basic: [] }],
        body,
        response: { 200: answerShape },
      },
    },
    async (request, reply) => {
      const proof = proven.get(request);
      const device = provenCaller(request.caller, proof);
      if (!proof?.credential) throw new PlatformError('badCredentials');
      const renewed = await ctx.renewals.renew(device.id, proof.credential, request.body.csr);
      reply.header('cache-control', 'no-store');
      return answerFor(ctx, renewed);
    },
  );
}
