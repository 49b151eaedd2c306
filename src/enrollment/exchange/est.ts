/** Enrollment over Secure Transport (RFC 7030): the exchange and the renewal in the forms of a standard, over TLS alone. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import { maxCsrLength } from '../../certificates/issuing.ts';
import { PlatformError } from '../../core/errors.ts';
import { laneOf, strangerLane } from '../../core/limits/lanes.ts';
import { isOverTls, trustOf } from '../../core/network/addresses.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import type { App } from '../../http/app.ts';
import { requireCaller } from '../../identity/sessions/authentication.ts';
import { provenCaller, takePasswords } from '../../messages/publish.ts';
import type { ProvenCaller } from '../../ports/publisher.ts';
import type { EnrollmentContext } from '../context.ts';
import type { GroupRow } from '../groups/group.ts';
import { refused, unproven } from './refused.ts';
import { askForPassword, readProof, tellWhenSent } from './routes.ts';

const base = '/.well-known/est/:groupId';
const params = Type.Object({ groupId: Type.String() });
const requestType = 'application/pkcs10';
const csr = Type.String({ minLength: 1, maxLength: maxCsrLength, description: 'PKCS#10, DER in base64.' });
/** The standard describes them; /openapi.json has the API alone. */
const schema = { hide: true, params };
const withRequest = { ...schema, body: { content: { [requestType]: { schema: csr } } } };
/** CAs whose answer is kept: anybody may ask. */
const answersKept = 1000;

/** In a scope of its own: devices have the proof of their group. */
export function estRoutes(app: App, ctx: EnrollmentContext): void {
  takeOnlyEst(app, ctx);
  askForPassword(app);
  const answers = boundedCache<string, string>(answersKept);
  app.get(`${base}/cacerts`, { schema }, async (request, reply) => {
    const { certificateAuthorityId } = demandGroup(ctx, request.params.groupId);
    const authority = ctx.registry.entity('certificateAuthorities', certificateAuthorityId ?? '');
    if (authority?.deleted !== null || authority.state !== 'active')
      throw gone('The certificate authority of this enrollment group is not active.');
    // RFC 7030, 4.1.3: the root belongs to it.
    const all = authority.certificate + (authority.chain ?? '');
    const text = answers.get(all) ?? (await pkcs7Of(ctx, strangerLane(request.address), all));
    answers.set(all, text);
    return sendCertificates(reply, text);
  });
  app.get(`${base}/csrattrs`, { schema }, async (request, reply) => {
    demandGroup(ctx, request.params.groupId);
    return reply.status(204).send();
  });
  app.post(`${base}/simpleenroll`, { schema: withRequest }, async (request, reply) => {
    const { groupId } = request.params;
    const proof = readProof(ctx, request, groupId);
    if (proof?.groupId !== groupId) throw unproven();
    const { answer, sent } = await ctx.enrollment.exchange(proof, { csr: requestIn(request) }, 'csr');
    tellWhenSent(reply, sent);
    const lane = { accountId: answer.device.accountId, callerId: groupId };
    return sendCertificates(reply, await pkcs7Of(ctx, lane, answer.credential.certificate ?? ''));
  });
}

/** In a scope of its own: devices have their present credential. */
export function estRenewalRoutes(app: App, ctx: EnrollmentContext): void {
  const proven = new WeakMap<FastifyRequest, ProvenCaller>();
  takeOnlyEst(app, ctx);
  takePasswords(app, ctx, proven);
  requireCaller(app, ctx);
  app.post(
    `${base}/simplereenroll`,
    { config: { right: ['create', 'renewal'] }, schema: withRequest },
    async (request, reply) => {
      const proof = proven.get(request);
      const device = provenCaller(request.caller, proof);
      if (!proof?.credential) throw new PlatformError('badCredentials');
      await demandMember(ctx, request.params.groupId, device.id);
      const { credential } = await ctx.renewals.renew(device.id, proof.credential, requestIn(request));
      return sendCertificates(reply, await pkcs7Of(ctx, laneOf(device), credential.certificate ?? ''));
    },
  );
}

/** Requests over TLS, of groups that issue certificates, with a body of PKCS#10. @throws PlatformError 403/21, 404/100. */
function takeOnlyEst(app: App, { config, registry }: EnrollmentContext): void {
  const trusts = trustOf(config.trustedProxies);
  app.addHook('onRequest', async ({ raw, headers, params }) => {
    if (!isOverTls(raw.socket, headers['x-forwarded-proto'], trusts)) throw refused('EST is served over TLS only.');
    const { groupId } = params as { groupId: string };
    if (registry.entity('enrollmentGroups', groupId)?.issues === 'secret')
      throw gone('This enrollment group issues secrets, and EST is for certificates. Its `issues` says so.');
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(requestType, { parseAs: 'string' }, (_, body, done) => done(null, body));
}

/** 404/100 that says what is not there. */
function gone(message: string): PlatformError {
  return new PlatformError('notFound', { message });
}

/** A request with no body has no media type, and so no schema. */
function requestIn({ body }: FastifyRequest): string {
  return typeof body === 'string' ? body : '';
}

/** @throws PlatformError 404/100; a group in the trash still renews, so it has its CA, too. */
function demandGroup({ registry }: EnrollmentContext, id: string): GroupRow {
  const group = registry.entity('enrollmentGroups', id);
  if (!group) throw new PlatformError('notFound');
  return group;
}

/** @throws PlatformError 403/21 for a device that another group has made, or none. */
async function demandMember({ registry }: EnrollmentContext, groupId: string, deviceId: string): Promise<void> {
  const made = registry.query.selectFrom('enrollments').select('groupId').where('deviceId', '=', deviceId);
  if ((await made.executeTakeFirst())?.groupId !== groupId)
    throw refused('The device was not made by this enrollment group.');
}

/** Certificates (PEM) as PKCS#7, in base64 without lines, which RFC 8951 demands and some clients do, too. */
async function pkcs7Of({ pki }: EnrollmentContext, lane: Lane, certificates: string): Promise<string> {
  return Buffer.from(await pki.ask(lane, 'makePkcs7', certificates)).toString('base64');
}

function sendCertificates(reply: FastifyReply, text: string): FastifyReply {
  return reply
    .type('application/pkcs7-mime; smime-type=certs-only')
    .headers({ 'content-transfer-encoding': 'base64', 'cache-control': 'no-store' })
    .send(text);
}
