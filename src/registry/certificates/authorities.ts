/**
 * CAs of an account: a certificate that one has signed lets in the device that its CN names; the CA may create it, too. A
 * CA is public, so it counts only when the account has shown that it holds the key; then several accounts may have it.
 */

import { type Static, Type } from 'typebox';
import type { Tx } from '../../../db/registry/index.js';
import { Nullable, oneOf, type Row } from '../../../db/registry/records.js';
import type { Caller } from '../../access.js';
import type { AuditEvent } from '../../audit/events.js';
import type { Context } from '../../context.js';
import { commonShape, showCommon } from '../../entity/columns.js';
import { entityRoutes } from '../../entity/kind.js';
import type { Listing } from '../../entity/listing.js';
import { etagOf, idParams, nameIgnored } from '../../entity/routes.js';
import {
  change,
  demandLive,
  demandReference,
  find,
  findReached,
  insert,
  stamp,
  trash,
  writeAs,
} from '../../entity/verbs.js';
import { invalid, PlatformError } from '../../errors.js';
import type { App } from '../../http/app.js';
import { makeSecret } from '../../identity/secrets/secrets.js';
import { certificateShape, pem, readValid, storedForm } from './certificates.js';
import { authorityFault, isSignedBy, readPem } from './x509.js';

const maxPerAccount = 20;

const name = Type.String({ minLength: 1, maxLength: 255 });
const reference = Type.Optional(Nullable(Type.String()));
const settable = {
  createDevices: Type.Optional(
    Type.Boolean({
      description: 'Whether a first connection makes the device that the CN names, a UUID; needs deviceTemplateId.',
    }),
  ),
  deviceTemplateId: reference,
  organizationId: reference,
};
const createBody = Type.Object({ accountId: Type.String(), name, certificate: pem, ...settable });
const updateBody = Type.Object({ name: Type.Optional(name), ...settable });
const proofBody = Type.Object({ certificate: pem });
const shape = Type.Object({
  ...commonShape,
  name: Type.String(),
  state: oneOf(['pending', 'active'], {
    description: 'A pending CA lets nobody in, until `POST …/{id}/proof` has made it active.',
  }),
  challenge: Nullable(
    Type.String({ description: 'The CN of the certificate that proves a pending CA; null when it is active.' }),
  ),
  ...certificateShape,
  createDevices: Type.Boolean(),
  deviceTemplateId: Nullable(Type.String()),
  organizationId: Nullable(Type.String()),
});

const listing: Listing<'certificateAuthorities'> = {
  table: 'certificateAuthorities',
  filters: { name: 'exact', fingerprint: 'exact', state: 'exact' },
  before: { expiresBefore: 'validTo' },
  sorts: ['created', 'lastModified', 'id', 'name', 'validTo'],
  defaultSort: 'created',
};

export function certificateAuthorityRoutes(app: App, ctx: Context): void {
  entityRoutes(app, ctx, {
    path: '/access/certificate-authorities',
    tag: 'Credentials',
    entity: 'certificateAuthority',
    wrapper: 'certificateAuthority',
    plural: 'certificateAuthorities',
    shape,
    listing,
    prepare: () => show,
    create: {
      summary: 'Register a CA of the account: its certificates let in the device of the account that their CN names',
      description: `The CA is \`pending\` and lets nobody in until it is proven: sign a certificate whose CN is the answer's \`challenge\` and send it to \`POST …/{id}/proof\`. Several accounts may have one CA. An account has ${maxPerAccount} at most.`,
      answer: 'What was registered, with its `challenge`.',
      errors: ['unknownReference', 'notUnique'],
      body: createBody,
      run: (caller, body) => registerAuthority(ctx, caller, body),
    },
    read: { summary: 'Read a CA', answer: 'The CA.' },
    list: { summary: 'List the CAs of the account' },
    update: {
      summary: 'Update the name of a CA and what it may make',
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

function proofRoute(app: App, ctx: Context): void {
  app.post(
    '/access/certificate-authorities/:id/proof',
    {
      config: {
        right: ['update', 'certificateAuthority'],
        errors: ['notFound', 'deleted', 'forbidden'],
        sends: ['etag', 'ignored'],
      },
      schema: {
        tags: ['Credentials'],
        summary: 'Prove that the account holds the key of a CA; from then on its certificates count',
        params: idParams,
        body: proofBody,
        response: { 200: Type.Object({ certificateAuthority: shape }, { description: 'The CA, active.' }) },
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const certificateAuthority = await proveAuthority(ctx, caller, params.id, body.certificate);
      nameIgnored(request, reply, proofBody);
      return reply.header('etag', etagOf(certificateAuthority)).send({ certificateAuthority });
    },
  );
}

/** @throws PlatformError 400/102 for a template or organization, 400/106 for a certificate that is no good CA's. */
async function registerAuthority(ctx: Context, caller: Caller, body: Static<typeof createBody>) {
  const certificate = readValid(body.certificate, ctx.clock);
  const fault = authorityFault(certificate, 0);
  if (fault !== undefined) throw invalid('certificate', fault);
  const may = mayMake(body);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandLiving(tx, caller, may);
    const ofAccount = tx.selectFrom('certificateAuthorities').select(['name', 'fingerprint']);
    const others = await ofAccount.where('accountId', '=', caller.accountId).where('deleted', 'is', null).execute();
    if (others.length >= maxPerAccount)
      throw invalid('accountId', `has ${maxPerAccount} certificate authorities, which is the most`);
    const path = others.some((other) => other.name === body.name) ? 'name' : 'certificate';
    const unproven = { state: 'pending', challenge: makeSecret() };
    const made = { ...stamp(ctx.clock, caller), name: body.name, ...storedForm(certificate), ...may, ...unproven };
    const row = await insert(tx, 'certificateAuthorities', made, path);
    await record(ctx, tx, caller, row, 'certificateAuthorityRegistered');
    return row;
  });
  return show(row);
}

/**
 * Makes a CA active whose key the caller has shown to hold; proving it again has no effect.
 * @throws PlatformError 404/100, 410/107, 400/106 for a certificate that proves nothing.
 */
async function proveAuthority(ctx: Context, caller: Caller, id: string, text: string) {
  const before = demandLive(findReached(ctx, caller, 'certificateAuthorities', id));
  if (before.state === 'active') return show(before);
  const certificate = readValid(text, ctx.clock);
  const ca = readPem(before.certificate);
  if (certificate.commonName !== before.challenge)
    throw invalid('certificate', `must have the challenge as CN: ${before.challenge}`);
  if (typeof ca === 'string' || !isSignedBy(certificate, ca))
    throw invalid('certificate', 'must be signed by the key of this CA, with its subject as issuer');
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const found = await find(tx, 'certificateAuthorities', id);
    if (!found) throw new PlatformError('notFound');
    const now = demandLive(found);
    if (now.state === 'active') return now;
    const by = { caller, clock: ctx.clock };
    const proven = { state: 'active', challenge: null };
    const changed = await change(tx, 'certificateAuthorities', id, now.version, by, proven);
    await record(ctx, tx, caller, changed, 'certificateAuthorityProven');
    return changed;
  });
  ctx.broker.authorityRegistered();
  return show(row);
}

/** @throws PlatformError as change, and 400/102, 400/106 as registerAuthority. */
async function updateAuthority(
  ctx: Context,
  caller: Caller,
  id: string,
  version: number,
  body: Static<typeof updateBody>,
) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const before = await find(tx, 'certificateAuthorities', id);
    if (!before) throw new PlatformError('notFound');
    const may = mayMake(body, before);
    await demandLiving(tx, caller, {
      deviceTemplateId: body.deviceTemplateId ? may.deviceTemplateId : null,
      organizationId: body.organizationId ? may.organizationId : null,
    });
    const changes = { ...may, ...(body.name !== undefined && { name: body.name }) };
    const changed = await change(tx, 'certificateAuthorities', id, version, { caller, clock: ctx.clock }, changes);
    await record(ctx, tx, caller, changed, 'certificateAuthorityChanged');
    return changed;
  });
  return show(row);
}

/** @throws PlatformError as trash. */
async function deleteAuthority(ctx: Context, caller: Caller, id: string, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'certificateAuthorities', id, version, ctx.clock);
    await record(ctx, tx, caller, trashed, 'certificateAuthorityDeleted');
    return trashed;
  });
  ctx.revocations.note(caller, ctx.broker.certificateEnded(id));
  return show(row);
}

type Making = Pick<Row<'certificateAuthorities'>, 'createDevices' | 'deviceTemplateId' | 'organizationId'>;
const nothing: Making = { createDevices: 0, deviceTemplateId: null, organizationId: null };

/** The creation rights of a CA, from a body and its former rights. @throws PlatformError 400/106 without a template. */
function mayMake(body: Omit<Static<typeof updateBody>, 'name'>, before = nothing): Making {
  const { createDevices, deviceTemplateId = before.deviceTemplateId, organizationId = before.organizationId } = body;
  const making = {
    createDevices: createDevices === undefined ? before.createDevices : Number(createDevices),
    deviceTemplateId,
    organizationId,
  };
  if (making.createDevices && deviceTemplateId === null)
    throw invalid('deviceTemplateId', 'is required where createDevices is true');
  return making;
}

async function demandLiving(
  tx: Tx,
  { accountId }: Caller,
  { deviceTemplateId, organizationId }: Pick<Making, 'deviceTemplateId' | 'organizationId'>,
): Promise<void> {
  if (deviceTemplateId !== null)
    await demandReference(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
  if (organizationId !== null) await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
}

function record(
  { audit }: Context,
  tx: Tx,
  actor: Caller,
  { id, accountId, fingerprint, createDevices }: Row<'certificateAuthorities'>,
  event: AuditEvent,
): Promise<void> {
  const target = { kind: 'certificateAuthority', id } as const;
  const details = { fingerprint, createDevices: createDevices === 1 };
  return audit.record(tx, { event, outcome: 'success', accountId, actor, target, details });
}

function show(row: Row<'certificateAuthorities'>) {
  const { fingerprint, subject, validFrom, validTo, certificate, deviceTemplateId, organizationId } = row;
  const said = { fingerprint, subject, validFrom, validTo, certificate };
  const createDevices = row.createDevices === 1;
  const state = row.state as 'pending' | 'active';
  const { challenge } = row;
  return {
    ...showCommon(row),
    name: row.name,
    state,
    challenge,
    ...said,
    createDevices,
    deviceTemplateId,
    organizationId,
  };
}
