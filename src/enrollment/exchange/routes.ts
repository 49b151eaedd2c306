/** Enrollment over HTTP: the exchange itself, and the permission of an admin for a device that has connected already. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import { DateText } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { canonicalId } from '../../core/ids.ts';
import { demandHas } from '../../entity/giving.ts';
import { idParams } from '../../entity/routes.ts';
import { demandLive, findReached, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { isInsideBatch } from '../../http/batch.ts';
import type { EnrollmentProof } from '../../ports/enrollment.ts';
import type { EnrollmentContext } from '../context.ts';
import { answerShape } from './answer.ts';
import { unproven } from './refused.ts';
import { requestProperties } from './request.ts';

const tags = ['Enrollment'];
const challenge = 'Basic realm="slipway", charset="UTF-8"';
/** Milliseconds for which a permission holds. */
const permissionHolds = 24 * 60 * 60 * 1000;

const body = Type.Object({
  groupId: Type.Optional(Type.String({ description: 'For the proof certificate; otherwise the username names it.' })),
  ...requestProperties,
});

/** POST /enroll, in a scope of its own: devices have the proof of their group, and no token. */
export function enrollRoutes(app: App, ctx: EnrollmentContext): void {
  app.post(
    '/enroll',
    {
      config: { errors: ['badCredentials', 'forbidden', 'tooMany', 'stopping', 'storeFull'] },
      schema: {
        tags,
        operationId: 'enroll',
        summary: 'Get the credential of a device with the proof of its enrollment group',
        description:
          'Basic: the id of the group and its claim secret, or `groupId/serialNumber` and the derived key (the username ends at the last colon); or the manufacturer’s certificate in the TLS handshake. The same request again gives the same device. 401 for a proof that is missing or wrong; every other refusal is 403 with its reason. docs/enrollment.md has the details.',
        security: [],
        body,
        response: { 200: answerShape },
      },
    },
    async (request, reply) => {
      if (isInsideBatch(request)) throw invalid('path', 'must not be an enrollment');
      const { groupId, ...asked } = request.body;
      const proof = readProof(ctx, request, groupId);
      reply.header('cache-control', 'no-store');
      if (!proof) throw unproven();
      const { answer, sent } = await ctx.enrollment.exchange(proof, asked);
      tellWhenSent(reply, sent);
      return answer;
    },
  );
  askForPassword(app);
}

/** Many clients send a password only when they are asked for it. */
export function askForPassword(app: App): void {
  app.addHook('onSend', async (_, reply) => {
    if (reply.statusCode === 401) reply.header('www-authenticate', challenge);
  });
}

/** Also when the asker is gone. */
export function tellWhenSent({ raw }: FastifyReply, sent: () => void): void {
  if (raw.destroyed || raw.closed) sent();
  else raw.once('close', sent);
}

/** The proof of a request; the certificate of its handshake is one, or the old one of the device beside Basic. */
export function readProof(
  { publisher }: EnrollmentContext,
  request: FastifyRequest,
  groupId: string | undefined,
): EnrollmentProof | undefined {
  const { address } = request;
  const presented = publisher.presentedBy(request.raw.socket);
  const basic = readBasic(request.headers.authorization);
  if (basic) return { ...basic, presented, address };
  return presented && groupId !== undefined ? { groupId, secret: '', presented, address } : undefined;
}

/** A username ends at the last colon, for keys have none and serial numbers may; the id of a group ends at the first slash. */
function readBasic(header = ''): Pick<EnrollmentProof, 'groupId' | 'serialNumber' | 'secret'> | undefined {
  const [scheme = '', encoded = ''] = header.split(' ', 2);
  if (scheme.toLowerCase() !== 'basic') return undefined;
  const decoded = Buffer.from(encoded, 'base64').toString();
  const colon = decoded.lastIndexOf(':');
  if (colon === -1) return undefined;
  return { ...readUsername(decoded.slice(0, colon)), secret: decoded.slice(colon + 1) };
}

/** The group and the serial number that a username names. */
export function readUsername(username: string): Pick<EnrollmentProof, 'groupId' | 'serialNumber'> {
  const slash = username.indexOf('/');
  if (slash === -1) return { groupId: canonicalId(username) };
  return { groupId: canonicalId(username.slice(0, slash)), serialNumber: username.slice(slash + 1) };
}

/** POST /devices/{id}/allow-enrollment. */
export function enrollmentPermissionRoutes(app: App, ctx: EnrollmentContext): void {
  app.post(
    '/devices/:id/allow-enrollment',
    {
      config: { right: ['update', 'enrollmentGroup'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags,
        operationId: 'allowEnrollment',
        summary: 'Allow a device that has connected already to enroll once more without its old credential',
        description:
          'You need to publish as devices, too. For 24 hours, until the credential that was made with it has connected. What becomes of the device is decided by `reprovision` of its group.',
        params: idParams,
        response: {
          200: Type.Object(
            { enrollment: Type.Object({ deviceId: Type.String(), groupId: Type.String(), allowedUntil: DateText }) },
            { description: 'Until when it is allowed.' },
          ),
        },
      },
    },
    async ({ caller, params }) => ({ enrollment: await allowEnrollment(ctx, caller, params.id) }),
  );
}

/** @throws PlatformError 403/21, 404/100, 410/107, 400/106 for a device that no group has made. */
async function allowEnrollment(ctx: EnrollmentContext, caller: Caller, id: string) {
  demandLive(findReached(ctx, caller, 'devices', id));
  const allowedUntil = new Date(ctx.clock.now() + permissionHolds).toISOString();
  return writeAs(ctx, caller, undefined, async (tx) => {
    const device = await findEntity(tx, 'devices', id);
    if (!device) throw new PlatformError('notFound');
    demandLive(device);
    // The device gets a credential with it.
    await demandHas(tx, caller, { device: ['publish'] });
    const allowed = await tx
      .updateTable('enrollments')
      .set({ allowedUntil, permitted: 0 })
      .where('deviceId', '=', id)
      .returning('groupId')
      .executeTakeFirst();
    if (!allowed) throw invalid('id', 'the device was not made by an enrollment group');
    const target = { kind: 'device', id } as const;
    const { accountId } = caller;
    await ctx.audit.record(tx, { event: 'enrollmentAllowed', outcome: 'success', accountId, actor: caller, target });
    return { deviceId: id, groupId: allowed.groupId, allowedUntil };
  });
}
