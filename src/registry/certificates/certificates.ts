/** Client certificates of devices: registered by an admin, checked against at CONNECT. */

import { type Static, Type } from 'typebox';
import { certificateColumns } from '../../../db/registry/records/certificates.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../access.ts';
import type { Clock } from '../../clock.ts';
import {
  commonShape,
  createProperties,
  listingOf,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../../entity/columns.ts';
import { demandHas } from '../../entity/giving.ts';
import { noteAnswer } from '../../entity/kept-answers.ts';
import { entityRoutes } from '../../entity/kind.ts';
import { entityVersion, etagOf } from '../../entity/routes.ts';
import { demandReference, formatVersion, insert, stamp, trash, writeAs } from '../../entity/verbs.ts';
import { invalid } from '../../errors.ts';
import type { App } from '../../http/app.ts';
import type { RegistryContext } from '../context.ts';
import { activate } from '../credentials/credentials.ts';
import { type Certificate, readPem, weaknessOf } from './x509.ts';

/** One in use, the next one, and some more. */
const maxPerDevice = 10;

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(certificateColumns) });
const shape = Type.Object({
  ...commonShape,
  ...shownProperties(certificateColumns),
  entityVersion: Type.Optional(entityVersion),
});

const listing = listingOf('certificates', certificateColumns, { before: { expiresBefore: 'validTo' } });

export function certificateRoutes(app: App, ctx: RegistryContext): void {
  entityRoutes(app, ctx, {
    path: '/access/mqtt-certificates',
    tag: 'Credentials',
    entity: 'mqttCertificate',
    wrapper: 'mqttCertificate',
    plural: 'mqttCertificates',
    shape,
    listing,
    prepare: () => show,
    create: {
      summary: 'Register the certificate of a device, which may be self-signed',
      description: `A certificate belongs to one device of the account; a device has ${maxPerDevice} at most. Where several accounts have registered one certificate, the device has to connect with its id, or the account id, as username.`,
      answer: 'What was registered; the ETag header and `entityVersion` have the version of the device.',
      errors: ['unknownReference', 'notUnique'],
      body: createBody,
      run: (caller, body) => registerCertificate(ctx, caller, body),
    },
    read: { summary: 'Read the certificate of a device', answer: 'The certificate.' },
    list: { summary: 'List the certificates of devices' },
    remove: {
      summary: 'Delete the certificate of a device; the connections made with it end',
      answer: 'A certificate no longer.',
      revokes: true,
      run: (caller, { id }, version) => deleteCertificate(ctx, caller, id, version),
    },
  });
}

/** Registers a certificate, and moves a defined device to activated. @throws PlatformError 400/102, 400/106. */
async function registerCertificate(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  const { clock, audit, access, downlink } = ctx;
  const certificate = readValid(body.certificate, clock);
  const weakness = weaknessOf(certificate);
  if (weakness !== undefined) throw invalid('certificate', weakness);
  const stamped = stamp(clock, caller);
  const { row, activated, shown } = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, { device: ['publish'] });
    const device = await demandReference(tx, 'devices', caller.accountId, body.entityId, 'entityId');
    const others = tx.selectFrom('certificates').select('id').where('entityId', '=', device.id);
    if ((await others.where('deleted', 'is', null).limit(maxPerDevice).execute()).length === maxPerDevice)
      throw invalid('entityId', `has ${maxPerDevice} certificates, which is the maximum`);
    const made = {
      ...stamped,
      ...readNew(certificateColumns, body),
      entityId: device.id,
      ...storedForm(certificate),
      issuer: certificate.issuer,
    };
    const row = await insert(tx, 'certificates', made, 'certificate');
    // Earlier messages do not prove that it works with this one.
    await tx.deleteFrom('publications').where('deviceId', '=', device.id).execute();
    await audit.record(tx, {
      event: 'certificateRegistered',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id: device.id },
      details: { certificateId: row.id, fingerprint: row.fingerprint },
    });
    const activated = await activate(tx, caller, device.id, stamped.created);
    const shown = { ...show(row), entityVersion: formatVersion(device.version + (activated ? 1 : 0)) };
    await noteAnswer(tx, { mqttCertificate: shown }, { etag: etagOf(shown) });
    return { row, activated, shown };
  });
  const placement = activated ? access.placement(row.entityId) : undefined;
  if (placement) downlink.deviceUpdated(placement, { provisioningState: 'activated' });
  return shown;
}

/** @throws PlatformError as trash. */
async function deleteCertificate(ctx: RegistryContext, caller: Caller, id: string, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'certificates', id, version, ctx.clock);
    await ctx.audit.record(tx, {
      event: 'certificateDeleted',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id: trashed.entityId },
      details: { certificateId: id, fingerprint: trashed.fingerprint },
    });
    return trashed;
  });
  ctx.revoked.noteRevoked(caller, ctx.revocations.certificateEnded(id));
  return show(row);
}

/** The certificate in a body, valid now. @throws PlatformError 400/106. */
export function readValid(text: string, clock: Clock): Certificate {
  const certificate = readPem(text);
  if (typeof certificate === 'string') throw invalid('certificate', certificate);
  const now = clock.now();
  if (now < certificate.validFrom) throw invalid('certificate', 'is not valid yet');
  if (now >= certificate.validTo) throw invalid('certificate', 'has expired');
  return certificate;
}

/** The stored columns of every certificate. */
export function storedForm({ x509, fingerprint, subject, validFrom, validTo }: Certificate) {
  return {
    certificate: x509.toString(),
    fingerprint,
    subject,
    validFrom: new Date(validFrom).toISOString(),
    validTo: new Date(validTo).toISOString(),
  };
}

const showColumns = showing(certificateColumns);

function show(row: Row<'certificates'>) {
  return { ...showCommon(row), ...showColumns(row) };
}
