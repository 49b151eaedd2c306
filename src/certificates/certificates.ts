/** Client certificates of devices: registered by an admin, checked against at CONNECT. */

import { type Static, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { certificateColumns } from '../../db/registry/records/certificates.ts';
import { DateText, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import { invalid, unknownReference } from '../core/errors.ts';
import {
  commonShape,
  createProperties,
  listingOf,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { demandHas } from '../entity/giving.ts';
import { noteAnswer } from '../entity/kept-answers.ts';
import { entityRoutes } from '../entity/kind.ts';
import { entityVersion, etagOf } from '../entity/routes.ts';
import { demandReference, formatVersion, insert, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { RegistryContext } from '../registry/context.ts';
import { activate } from '../registry/credentials/credentials.ts';
import { type Certificate, readPem, storedForm, weaknessOf } from './x509.ts';

/** One in use, the next one, and some more. */
const maxPerDevice = 10;

/** The name of `validTo` in whatever expires. */
export const expiresShape = Type.Unsafe<string>({ ...DateText, description: 'As validTo.' });

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(certificateColumns) });
export const certificateShape = Type.Object({
  ...commonShape,
  ...shownProperties(certificateColumns),
  expires: expiresShape,
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
    shape: certificateShape,
    listing,
    prepare: () => showCertificate,
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
  const certificate = readValid(body.certificate, ctx.clock);
  const weakness = weaknessOf(certificate);
  if (weakness !== undefined) throw invalid('certificate', weakness);
  const wanted = { deviceId: body.entityId, path: 'entityId', event: 'certificateRegistered' } as const;
  const made = {
    ...stamp(ctx.clock, caller),
    ...readNew(certificateColumns, body),
    ...storedForm(certificate),
    issuer: certificate.issuer,
    ...{ certificateAuthorityId: null, publicKeyHash: null },
    serialNumber: certificate.serial,
  };
  const store = (tx: Tx) => insert(tx, 'certificates', made, 'certificate');
  return (await addCertificate(ctx, caller, wanted, store, {})).mqttCertificate;
}

/** Of which device a certificate is, in which property a body says so, and what the audit record calls it. */
interface Added {
  deviceId: string;
  path: string;
  event: 'certificateRegistered' | 'certificateIssued';
}

/**
 * Gives a device the certificate that `store` writes, and moves it to activated where it is defined; `more` joins the answer.
 * @throws PlatformError 400/102 for a device that the caller does not reach, 400/106 when it has too many.
 */
export async function addCertificate<M extends object>(
  ctx: RegistryContext,
  caller: Caller,
  { deviceId, path, event }: Added,
  store: (tx: Tx) => Promise<Row<'certificates'>>,
  more: M,
) {
  const { audit, access, downlink } = ctx;
  const { answer, activated } = await writeAs(ctx, caller, undefined, async (tx) => {
    // A station gives certificates to its own devices only.
    if (caller.kind !== 'station') await demandHas(tx, caller, { device: ['publish'] });
    const device = await demandReference(tx, 'devices', caller.accountId, deviceId, path);
    if (!access.reachesDevice(caller, device)) throw unknownReference(path);
    const others = tx.selectFrom('certificates').select('id').where('entityId', '=', device.id);
    if ((await others.where('deleted', 'is', null).limit(maxPerDevice).execute()).length === maxPerDevice)
      throw invalid(path, `has ${maxPerDevice} certificates, which is the maximum`);
    const row = await store(tx);
    // Earlier messages do not prove that it works with this one.
    await tx.deleteFrom('publications').where('deviceId', '=', device.id).execute();
    await audit.record(tx, {
      event,
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id: device.id },
      details: { certificateId: row.id, fingerprint: row.fingerprint },
    });
    const activated = await activate(tx, caller, device.id, row.created);
    const entity = formatVersion(device.version + (activated ? 1 : 0));
    const mqttCertificate = { ...showCertificate(row), entityVersion: entity };
    const answer = { mqttCertificate, ...more };
    await noteAnswer(tx, answer, { etag: etagOf(mqttCertificate) });
    return { answer, activated };
  });
  const placement = activated ? access.placement(deviceId) : undefined;
  if (placement) downlink.deviceUpdated(placement, { provisioningState: 'activated' });
  return answer;
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
  return showCertificate(row);
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

const showColumns = showing(certificateColumns);

export function showCertificate(row: Row<'certificates'>) {
  return { ...showCommon(row), ...showColumns(row), expires: row.validTo };
}
