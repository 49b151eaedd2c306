/** CAs of an account (decisions 6): what they sign lets in the device that it names; they may make it, too. */

import { type Static, Type } from 'typebox';
import type { Tx } from '../../../db/registry/index.js';
import { Nullable, type Row } from '../../../db/registry/records.js';
import type { Caller } from '../../access.js';
import type { AuditEvent } from '../../audit/index.js';
import type { Context } from '../../context.js';
import { writeAs } from '../../entity/authorized-write.js';
import type { Listing } from '../../entity/listing.js';
import { plainRoutes } from '../../entity/plain-routes.js';
import { change, demandReference, find, insert, stamp, trash } from '../../entity/verbs.js';
import { invalid, PlatformError } from '../../errors.js';
import type { App } from '../../http/app.js';
import { commonShape, showCommon } from '../shapes.js';
import { certificateShape, pem, readValid, storedForm } from './certificates.js';
import { authorityFault } from './x509.js';

const mostOfAccount = 20;

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
const shape = Type.Object({
  ...commonShape,
  name: Type.String(),
  ...certificateShape,
  createDevices: Type.Boolean(),
  deviceTemplateId: Nullable(Type.String()),
  organizationId: Nullable(Type.String()),
});

const listing: Listing<'certificateAuthorities'> = {
  table: 'certificateAuthorities',
  filters: { name: 'exact', fingerprint: 'exact' },
  before: { expiresBefore: 'validTo' },
  sorts: ['created', 'lastModified', 'id', 'name', 'validTo'],
  defaultSort: 'created',
};

export function certificateAuthorityRoutes(app: App, ctx: Context): void {
  plainRoutes(app, ctx, {
    path: '/access/certificate-authorities',
    tag: 'Credentials',
    entity: 'certificateAuthority',
    wrapper: 'certificateAuthority',
    plural: 'certificateAuthorities',
    shape,
    listing,
    show,
    create: {
      summary: 'Register a CA of the account: its certificates let in the device of the account that their CN names',
      description: `A CA belongs to the account that registers it first; an account has ${mostOfAccount} at most.`,
      answer: 'What was registered.',
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
      run: (caller, id, version, body) => updateAuthority(ctx, caller, id, version, body),
    },
    remove: {
      summary: 'Delete a CA; the connections that it let in end',
      answer: 'A CA no longer.',
      revokes: true,
      run: (caller, id, version) => deleteAuthority(ctx, caller, id, version),
    },
  });
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
    if (others.length >= mostOfAccount)
      throw invalid('accountId', `has ${mostOfAccount} certificate authorities, which is the most`);
    const path = others.some((other) => other.name === body.name) ? 'name' : 'certificate';
    const made = { ...stamp(ctx.clock, caller), name: body.name, ...storedForm(certificate), ...may };
    const row = await insert(tx, 'certificateAuthorities', made, path);
    await record(ctx, tx, caller, row, 'certificateAuthorityRegistered');
    return row;
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

/** What a CA may make, by a body over what it might before. @throws PlatformError 400/106 without a template. */
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
  return { ...showCommon(row), name: row.name, ...said, createDevices, deviceTemplateId, organizationId };
}
