/** Issuing certificates for devices, and what the issuing CA needs for it: its certificate, and the list of what is revoked. */
import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Caller } from '../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
import { pemCertificates } from '../core/formats/pem.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { demandHas } from '../entity/giving.ts';
import { etagHeaders, etagOf, idParams, readEtag } from '../entity/routes.ts';
import { change, demandLive, findReached, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { RegistryContext } from '../registry/context.ts';
import { authorityShape, recordAuthority, showAuthority } from './authorities.ts';
import { addCertificate, certificateShape, readValid } from './certificates.ts';
import { issuerFault, maxCsrLength, storeLeaf } from './issuing.ts';
import { authorityFault, type Certificate, isSignedBy, storedAuthority } from './x509.ts';

const defaultDays = 365;
const maxDays = 3650;
/** Certificates of a chain: the CA, three in between, and the root. */
const maxChain = 5;
const path = '/access/certificate-authorities/:id';
const tags = ['Credentials'];

export const csrShape = Type.String({
  minLength: 1,
  maxLength: maxCsrLength,
  description:
    'PKCS#10, PEM or base64 of DER, with a key of RSA of 2,048 to 8,192 bits, of a named elliptic curve of at least 256 bits, or of EdDSA. Its extensions are ignored.',
});
const issueBody = Type.Object({
  deviceId: Type.String(),
  csr: csrShape,
  certificateDays: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: maxDays,
      default: defaultDays,
      description: 'It expires after so many days, and with its CA at the latest.',
    }),
  ),
});
const Pem = (description: string) => Type.String({ description });
const issued = Type.Object(
  {
    mqttCertificate: certificateShape,
    certificate: Pem('The certificate, PEM.'),
    chain: Pem('PEM, beginning with the issuing CA.'),
  },
  { description: 'The certificate.' },
);
const certificateBody = Type.Object({
  certificate: Type.String({
    minLength: 1,
    maxLength: 20_000,
    description:
      'PEM with the certificate of the CA; or with those above it, too, up to the root, in any order: EST `cacerts` answers with them.',
  }),
});

export function issuerRoutes(app: App, ctx: RegistryContext): void {
  app.post(
    `${path}/issue`,
    {
      config: {
        creates: true,
        right: ['create', 'issuedCertificate'],
        errors: ['notFound', 'deleted', 'unknownReference', 'notUnique', 'forbidden', 'tooMany'],
        sends: ['etag'],
      },
      schema: {
        tags,
        operationId: 'issueCertificate',
        summary: 'Issue a certificate to a device, with which it may connect at once',
        description:
          "Its CN is the device's id. Nothing else ends by it. A station issues for the devices that it may give secrets to.",
        params: idParams,
        body: issueBody,
        response: { 200: issued },
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const answer = await issue(ctx, caller, params.id, body);
      return reply.header('etag', etagOf(answer.mqttCertificate)).send(answer);
    },
  );
  app.put(
    `${path}/certificate`,
    {
      config: {
        right: ['update', 'certificateAuthority'],
        errors: ['notFound', 'etagMissing', 'etagInvalid', 'deleted', 'staleVersion', 'notUnique', 'forbidden'],
        sends: ['etag'],
      },
      schema: {
        tags,
        operationId: 'setCertificateOfAuthority',
        summary: "Give an issuing CA the certificate that your company's CA has signed for its request",
        description: 'From then on it issues. Later it takes a newer certificate of the same key.',
        params: idParams,
        headers: etagHeaders,
        body: certificateBody,
        response: { 200: Type.Object({ certificateAuthority: authorityShape }, { description: 'The CA, active.' }) },
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const certificateAuthority = await setCertificate(ctx, caller, params.id, readEtag(request), body.certificate);
      return reply.header('etag', etagOf(certificateAuthority)).send({ certificateAuthority });
    },
  );
}

/** @throws PlatformError 404/100, 410/107, 400/102 for a device out of reach, 400/106 for a CA or a request that is no good. */
async function issue(ctx: RegistryContext, caller: Caller, id: string, body: Static<typeof issueBody>) {
  const { access, clock, issuing, registry } = ctx;
  const authority = registry.entity('certificateAuthorities', id);
  if (authority?.accountId !== caller.accountId) throw new PlatformError('notFound');
  // A station reaches no CAs, but those that issue for it.
  if (caller.kind === 'station' && authority.issuing !== 1) throw new PlatformError('notFound');
  const fault = issuerFault(demandLive(authority), clock);
  if (fault !== undefined) throw invalid('id', fault);
  const { deviceId, certificateDays: days = defaultDays } = body;
  const device = registry.entity('devices', deviceId);
  if (device?.deleted !== null || !access.reachesDevice(caller, device)) throw unknownReference('deviceId');
  const lane = laneOf(caller);
  const leaf = await issuing.signLeaf(lane, authority, { deviceId, csr: await issuing.readCsr(lane, body.csr), days });
  const { certificate, chain } = leaf;
  const wanted = { deviceId, path: 'deviceId', event: 'certificateIssued' } as const;
  return addCertificate(ctx, caller, wanted, (tx) => storeLeaf(tx, caller, deviceId, leaf), { certificate, chain });
}

/** @throws PlatformError as change, and 400/106 for a certificate that is not of this CA's key, or no CA's. */
async function setCertificate(ctx: RegistryContext, caller: Caller, id: string, version: number, text: string) {
  const { clock, issuing, pki } = ctx;
  const before = demandLive(findReached(ctx, caller, 'certificateAuthorities', id));
  if (before.issuing !== 1) throw invalid('id', 'is not a CA that issues certificates');
  const { key } = issuing.signerOf(before);
  const isOwn = (one: Certificate) => pki.ask(laneOf(caller), 'hasKey', one.x509.toString(), key);
  const pems = pemCertificates(text);
  const given = pems.length > 1 ? pems : [text];
  if (given.length > maxChain) throw invalid('certificate', `has more than ${maxChain} certificates`);
  if (text.includes('PRIVATE KEY')) readValid(text, clock);
  const [certificate, ...above] = await chainOf(
    given.map((pem) => readValid(pem, clock)),
    isOwn,
  );
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, { device: ['publish'] });
    if (!(await findEntity(tx, 'certificateAuthorities', id))) throw new PlatformError('notFound');
    const chain = above.length > 0 ? above.map(({ x509 }) => x509.toString()).join('') : null;
    const changes = { ...storedAuthority(certificate), chain, state: 'active', certificateRequest: null };
    const changed = await change(tx, 'certificateAuthorities', id, version, { caller, clock }, changes);
    await recordAuthority(ctx, tx, caller, changed, 'certificateAuthorityChanged');
    return changed;
  });
  ctx.certificates.authorityChanged(caller.accountId);
  return showAuthority(row);
}

/**
 * The certificate of this CA, and those above it in their order, up to a root.
 * @throws PlatformError 400/106 for one that cannot be a CA's, or that belongs to no chain.
 */
async function chainOf(
  given: readonly Certificate[],
  isOwn: (one: Certificate) => Promise<boolean>,
): Promise<[Certificate, ...Certificate[]]> {
  let own: Certificate | undefined;
  for (const one of given) own ??= (await isOwn(one)) ? one : undefined;
  const [first] = given;
  const fault = (own ?? first) && authorityFault((own ?? first) as Certificate, 0);
  if (fault !== undefined) throw invalid('certificate', fault);
  if (!own) throw invalid('certificate', 'has another key than the request');
  const chain: [Certificate, ...Certificate[]] = [own];
  const rest = new Set(given.filter((one) => one !== own));
  for (let last: Certificate | undefined = own; last; ) {
    const signed: Certificate = last;
    last = [...rest].find((one) => isSignedBy(signed, one));
    if (!last) break;
    const weakness = authorityFault(last, chain.length);
    if (weakness !== undefined) throw invalid('certificate', `${last.subject} ${weakness}`);
    chain.push(last);
    rest.delete(last);
  }
  const [stray] = rest;
  if (stray) throw invalid('certificate', `${stray.subject} is not above this CA`);
  const end = chain.at(-1) ?? own;
  if (chain.length > 1 && !isSignedBy(end, end))
    throw invalid('certificate', 'must end with the root, which signs itself');
  return chain;
}
