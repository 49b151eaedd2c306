/**
 * CAs of an account: a certificate that one has signed lets in the device that its CN names; the CA may create it, too. A
 * CA is public, so it counts only when the account has shown that it holds the key; then several accounts may have it.
 */

import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import type { Tx } from '../../db/registry/index.ts';
import { certificateAuthorityColumns } from '../../db/registry/records/certificates.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
import { checkAccountUrl } from '../core/network/account-url.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readChanges,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { demandHas } from '../entity/giving.ts';
import { entityRoutes } from '../entity/kind.ts';
import { etagOf, idParams } from '../entity/routes.ts';
import { change, demandLive, demandReference, findReached, insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { makeSecret } from '../identity/secrets/secrets.ts';
import type { AuditEvent } from '../operations/audit/events.ts';
import type { RegistryContext } from '../registry/context.ts';
import { expiresShape, readValid } from './certificates.ts';
import { issuingProperties, newIssuer } from './new-issuer.ts';
import { refusesNow } from './revoked.ts';
import { authorityFault, isSignedBy, readPem, storedAuthority } from './x509.ts';

const maxPerAccount = 20;

const { certificate: givenCertificate, ...created } = createProperties(certificateAuthorityColumns);
const createBody = Type.Object({
  accountId: Type.String(),
  ...created,
  certificate: Type.Optional(givenCertificate),
  ...issuingProperties,
});
const updateBody = Type.Object(changeProperties(certificateAuthorityColumns));
const proofBody = Type.Object({ certificate: givenCertificate });
export const authorityShape = Type.Object({
  ...commonShape,
  ...shownProperties(certificateAuthorityColumns),
  expires: expiresShape,
});

const listing = listingOf('certificateAuthorities', certificateAuthorityColumns, {
  before: { expiresBefore: 'validTo' },
});

export function certificateAuthorityRoutes(app: App, ctx: RegistryContext): void {
  entityRoutes(app, ctx, {
    path: '/access/certificate-authorities',
    tag: 'Credentials',
    entity: 'certificateAuthority',
    wrapper: 'certificateAuthority',
    plural: 'certificateAuthorities',
    shape: authorityShape,
    listing,
    prepare: () => showAuthority,
    create: {
      summary:
        'Register a CA of the account, whose certificates let in the device that their CN names; or make one that issues',
      description: `The CA is \`pending\` and lets nobody in until it is proven: sign a certificate whose CN is the answer's \`challenge\` and send it to \`POST …/{id}/proof\`. Several accounts may have one CA. With \`issuing\` the service makes a CA itself, for ten years; with \`request\`, too, one that your company's CA signs (\`certificateRequest\`). An account has ${maxPerAccount} at most.`,
      answer: 'What was registered, with its `challenge`.',
      errors: ['unknownReference', 'notUnique'],
      body: createBody,
      run: (caller, body) => (body.issuing ? makeAuthority(ctx, caller, body) : registerAuthority(ctx, caller, body)),
    },
    read: { summary: 'Read a CA', answer: 'The CA.' },
    list: { summary: 'List the CAs of the account' },
    update: {
      summary: 'Update the name of a CA and how it creates devices',
      answer: 'With its new version.',
      errors: ['unknownReference', 'notUnique'],
      body: updateBody,
      run: (caller, before, version, body) => updateAuthority(ctx, caller, before.id, version, body),
    },
    remove: {
      summary: 'Delete a CA; the connections that it let in end',
      answer: 'A CA no longer.',
      revokes: true,
      run: (caller, { id }, version) => deleteAuthority(ctx, caller, id, version),
    },
  });
  proofRoute(app, ctx);
}

function proofRoute(app: App, ctx: RegistryContext): void {
  app.post(
    '/access/certificate-authorities/:id/proof',
    {
      config: {
        right: ['update', 'certificateAuthority'],
        errors: ['notFound', 'deleted', 'forbidden'],
        sends: ['etag'],
      },
      schema: {
        tags: ['Credentials'],
        operationId: 'proveCertificateAuthority',
        summary: 'Prove that the account holds the key of a CA; from then on its certificates count',
        description: 'Send a certificate that the authority has signed, whose CN is the challenge.',
        params: idParams,
        body: proofBody,
        response: { 200: Type.Object({ certificateAuthority: authorityShape }, { description: 'The CA, active.' }) },
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const certificateAuthority = await proveAuthority(ctx, caller, params.id, body.certificate);
      return reply.header('etag', etagOf(certificateAuthority)).send({ certificateAuthority });
    },
  );
}

/** A person who has the key of a CA makes devices that publish. */
const publishing = { device: ['publish'] } as const;

/** @throws PlatformError 400/102 for a template or organization, 400/106 for a certificate that is no good CA's. */
async function registerAuthority(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  if (body.certificate === undefined) throw invalid('certificate', 'is required unless issuing is true');
  if (body.request) throw invalid('request', 'is for a CA with issuing: true');
  const certificate = readValid(body.certificate, ctx.clock);
  const fault = authorityFault(certificate, 0);
  if (fault !== undefined) throw invalid('certificate', fault);
  const columns = { ...readNew(certificateAuthorityColumns, body), ...storedAuthority(certificate) };
  checkUrl(ctx, columns);
  demandFitting(columns);
  const unproven = { state: 'pending', challenge: makeSecret() };
  const none = { ...noList, issuing: 0, certificateRequest: null, chain: null, sealedKey: null };
  const shown = await addAuthority(ctx, caller, { ...stamp(ctx.clock, caller), ...columns, ...unproven, ...none });
  if (shown.crlUrl !== null) void ctx.listFetcher.fetchList(shown);
  return shown;
}

/** Makes the key and the certificate of a CA that issues. @throws PlatformError 400/106. */
async function makeAuthority(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  for (const path of ['certificate', 'deviceTemplateId', 'organizationId'] as const)
    if (body[path]) throw invalid(path, 'is not for a CA that issues');
  const columns = readNew(certificateAuthorityColumns, { ...body, certificate: '' });
  demandNone(columns, readNew(certificateAuthorityColumns, { name: '', certificate: '' }));
  const stamped = stamp(ctx.clock, caller);
  const made = await newIssuer(ctx, caller, stamped.id, body);
  return addAuthority(ctx, caller, { ...stamped, ...columns, ...noList, ...made });
}

async function addAuthority(ctx: RegistryContext, caller: Caller, made: Authority) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, publishing);
    await demandLiving(tx, caller, made);
    demandFields(ctx, made);
    const ofAccount = tx.selectFrom('certificateAuthorities').select(['name', 'fingerprint']);
    const others = await ofAccount.where('accountId', '=', caller.accountId).where('deleted', 'is', null).execute();
    if (others.length >= maxPerAccount)
      throw invalid('accountId', `has ${maxPerAccount} certificate authorities, which is the maximum`);
    const path = others.some((other) => other.name === made.name) ? 'name' : 'certificate';
    const row = await insert(tx, 'certificateAuthorities', made, path);
    await recordAuthority(ctx, tx, caller, row, 'certificateAuthorityRegistered');
    return row;
  });
  return showAuthority(row);
}

/**
 * Makes a CA active whose key the caller has shown to hold; proving it again has no effect.
 * @throws PlatformError 404/100, 410/107, 400/106 for a certificate that proves nothing.
 */
async function proveAuthority(ctx: RegistryContext, caller: Caller, id: string, text: string) {
  const before = demandLive(findReached(ctx, caller, 'certificateAuthorities', id));
  if (before.state === 'active') return showAuthority(before);
  if (before.issuing === 1) throw invalid('certificate', 'is not for a CA that issues: PUT …/{id}/certificate');
  const certificate = readValid(text, ctx.clock);
  const ca = readPem(before.certificate);
  if (certificate.commonName !== before.challenge)
    throw invalid('certificate', `must have the challenge as CN: ${before.challenge}`);
  if (typeof ca === 'string' || !isSignedBy(certificate, ca))
    throw invalid('certificate', 'must be signed by the key of this CA, with its subject as issuer');
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const found = await findEntity(tx, 'certificateAuthorities', id);
    if (!found) throw new PlatformError('notFound');
    await demandHas(tx, caller, publishing);
    const now = demandLive(found);
    if (now.state === 'active') return now;
    const by = { caller, clock: ctx.clock };
    const proven = { state: 'active', challenge: null };
    const changed = await change(tx, 'certificateAuthorities', id, now.version, by, proven);
    await recordAuthority(ctx, tx, caller, changed, 'certificateAuthorityProven');
    return changed;
  });
  ctx.certificates.authorityChanged(caller.accountId);
  ctx.broker.forgetTlsSessions();
  return showAuthority(row);
}

/** @throws PlatformError as change, and 400/102, 400/106 as registerAuthority. */
async function updateAuthority(
  ctx: RegistryContext,
  caller: Caller,
  id: string,
  version: number,
  body: Static<typeof updateBody>,
) {
  let [isFetched, isNamedOtherwise] = [false, false];
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, publishing);
    const before = await findEntity(tx, 'certificateAuthorities', id);
    if (!before) throw new PlatformError('notFound');
    const changes = readChanges(certificateAuthorityColumns, body);
    const named = { ...before, ...changes };
    if (before.issuing === 1) demandNone(named, before);
    checkUrl(ctx, changes);
    isNamedOtherwise = nameOf(named) !== nameOf(before);
    isFetched = 'crlUrl' in changes && changes.crlUrl !== before.crlUrl;
    demandFitting(named);
    await demandLiving(tx, caller, changes);
    if ('subjectFields' in changes || 'deviceTemplateId' in changes) demandFields(ctx, named);
    const all = { ...changes, ...(isFetched && { crlChecked: null, crlError: null }) };
    const changed = await change(tx, 'certificateAuthorities', id, version, { caller, clock: ctx.clock }, all);
    await recordAuthority(ctx, tx, caller, changed, 'certificateAuthorityChanged');
    return changed;
  });
  if (isNamedOtherwise) {
    ctx.certificates.authorityChanged(caller.accountId);
    ctx.revoked.noteRevoked(caller, ctx.revocations.certificateEnded(id));
  }
  if (isFetched && row.crlUrl !== null) void ctx.listFetcher.fetchList(row);
  if (refusesNow(row, ctx.clock.now())) ctx.revoked.noteRevoked(caller, await ctx.revocationLists.endExpired(id));
  return showAuthority(row);
}

/** @throws PlatformError as trash. */
async function deleteAuthority(ctx: RegistryContext, caller: Caller, id: string, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'certificateAuthorities', id, version, ctx.clock);
    await recordAuthority(ctx, tx, caller, trashed, 'certificateAuthorityDeleted');
    return trashed;
  });
  ctx.revoked.noteRevoked(caller, ctx.revocations.certificateEnded(id));
  return showAuthority(row);
}

type Authority = Row<'certificateAuthorities'>;

/** What only a registered CA has. */
const ofRegistered = ['createDevices', 'crlUrl', 'crlPolicy', 'identity', 'subjectFields'] as const;
const noList = {
  crlNumber: null,
  crlNextUpdate: null,
  crlCount: null,
  crlTaken: null,
  crlChecked: null,
  crlError: null,
};

/** @throws PlatformError 400/106 for what a CA that issues cannot have; what it has may be sent again. */
function demandNone(wanted: Partial<Authority>, has: Partial<Authority>): void {
  for (const path of ofRegistered) if (wanted[path] !== has[path]) throw invalid(path, 'is not for a CA that issues');
}

/** How certificates of a CA name their device. */
function nameOf({ identity, serialNumberAttribute }: Authority): string {
  return identity === 'id' ? identity : serialNumberAttribute;
}

/** @throws PlatformError 400/106 for a URL from which no list is fetched. */
function checkUrl({ config }: RegistryContext, { crlUrl }: Partial<Pick<Authority, 'crlUrl'>>): void {
  if (crlUrl) checkAccountUrl('crlUrl', crlUrl, { ...config.bridges, plain: true });
}

type Fitting = Pick<Authority, 'createDevices' | 'deviceTemplateId' | 'identity' | 'subjectFields'>;

/** @throws PlatformError 400/106 for properties that do not go together. */
function demandFitting({ createDevices, deviceTemplateId, identity, subjectFields }: Fitting): void {
  if (createDevices && deviceTemplateId === null)
    throw invalid('deviceTemplateId', 'is required where createDevices is true');
  if (createDevices && identity !== 'id')
    throw invalid('createDevices', 'is for a CA whose certificates name the id of a device');
  if (subjectFields !== '{}' && deviceTemplateId === null) throw invalid('subjectFields', 'needs deviceTemplateId');
}

/** @throws PlatformError 400/102 for a field that devices of the template do not have. */
function demandFields({ fields }: RegistryContext, { deviceTemplateId, subjectFields }: Fitting): void {
  if (deviceTemplateId === null) return;
  const known = new Set(fields.of('devices', deviceTemplateId).map(({ name }) => name));
  for (const [attribute, name] of Object.entries(JSON.parse(subjectFields) as Record<string, string>))
    if (!known.has(name)) throw unknownReference(`subjectFields.${attribute}`);
}

/** @throws PlatformError 400/102 for a template or an organization that is not there. */
async function demandLiving(
  tx: Tx,
  { accountId }: Caller,
  { deviceTemplateId, organizationId }: Partial<Pick<Authority, 'deviceTemplateId' | 'organizationId'>>,
): Promise<void> {
  if (isGiven(deviceTemplateId))
    await demandReference(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
  if (isGiven(organizationId)) await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
}

function isGiven(id: string | null | undefined): id is string {
  return id !== undefined && id !== null;
}

export function recordAuthority(
  { audit }: RegistryContext,
  tx: Tx,
  actor: Caller,
  { id, accountId, fingerprint, createDevices }: Authority,
  event: AuditEvent,
): Promise<void> {
  const target = { kind: 'certificateAuthority', id } as const;
  const details = { fingerprint, createDevices: createDevices === 1 };
  return audit.record(tx, { event, outcome: 'success', accountId, actor, target, details });
}

const showColumns = showing(certificateAuthorityColumns);

export function showAuthority(row: Authority) {
  return { ...showCommon(row), ...showColumns(row), expires: row.validTo };
}
