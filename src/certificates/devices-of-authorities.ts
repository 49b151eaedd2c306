/** Devices that a CA makes: at the first connection with one of its certificates. */
import type { X509Certificate } from 'node:crypto';
import type { Logger } from 'pino';
import { findEntity } from '../../db/registry/entities.ts';
import type { AuthorityRow, Registry } from '../../db/registry/index.ts';
import type { Access } from '../core/access.ts';
import type { Clock } from '../core/clock.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { normalizeSerialNumber } from '../core/formats/serial-numbers.ts';
import { findUnstorable, unstorable } from '../core/formats/unstorable.ts';
import type { Fields } from '../entity/fields.ts';
import { findLive, insert } from '../entity/verbs.ts';
import type { Audit } from '../operations/audit/index.ts';
import { newDevice } from '../registry/devices/changes.ts';
import { attributeOf, type Certificate } from './x509.ts';

const maxSerialNumberLength = 255;

export type MakingContext = {
  registry: Registry;
  access: Access;
  clock: Clock;
  audit: Audit;
  fields: Fields;
  log: Logger;
  /** Throws 507 when the account, or the disk, has no room for another device. */
  keeping: { demandRoom(accountId: string): void };
};

/** The values of fields that a subject has. @throws PlatformError 400/106 for one that cannot be stored. */
function valuesFrom(x509: X509Certificate, subjectFields: string): Record<string, string> {
  const fields = Object.entries(JSON.parse(subjectFields) as Record<string, string>);
  const values = fields.flatMap(([attribute, name]) => {
    const value = attributeOf(x509, attribute);
    if (value !== undefined && findUnstorable(value) !== undefined) throw invalid(name, unstorable);
    return value === undefined ? [] : [[name, value]];
  });
  return Object.fromEntries(values);
}

/** Makes the device of a first connection, once however many come at once; false when the CA may not. */
export async function makeDevice(
  ctx: MakingContext,
  { id, accountId }: AuthorityRow,
  { x509, commonName, serialNumber, fingerprint }: Certificate,
  deviceId: string,
  address: string | undefined,
): Promise<boolean> {
  const { registry, access, clock, audit, fields, log, keeping } = ctx;
  try {
    await registry.transaction(async (tx) => {
      if (await findEntity(tx, 'devices', deviceId)) return;
      keeping.demandRoom(accountId);
      const authority = await findLive(tx, 'certificateAuthorities', accountId, id);
      if (authority?.createDevices !== 1) throw new PlatformError('notFound');
      const { deviceTemplateId, organizationId } = authority;
      const template = deviceTemplateId && (await findLive(tx, 'deviceTemplates', accountId, deviceTemplateId));
      if (!template)
        throw new PlatformError('unknownReference', { message: 'The template of the CA no longer exists.' });
      if (organizationId !== null && !(await findLive(tx, 'organizations', accountId, organizationId)))
        throw new PlatformError('unknownReference', { message: 'The organization of the CA no longer exists.' });
      // Anyone who names a principal of another kind would speak in its name, here or in another account.
      for (const table of ['endUsers', 'accountUsers', 'applications', 'identities', 'accounts'] as const) {
        const taken = tx.selectFrom(table).select('id').where('id', '=', deviceId);
        if (await taken.executeTakeFirst()) throw new PlatformError('notUnique');
      }
      // It has proven that it is there.
      const place = { deviceTemplateId: template.id, organizationId, provisioningState: 'activated' };
      const body = {
        ...valuesFrom(x509, authority.subjectFields),
        serialNumber: [serialNumber, commonName, deviceId]
          .map((one = '') => normalizeSerialNumber(one).slice(0, maxSerialNumberLength))
          .find((one) => one !== '') as string,
      };
      await insert(tx, 'devices', { ...newDevice({ clock, fields }, { id, accountId }, place, body), id: deviceId });
      await audit.record(tx, {
        event: 'deviceCreatedByCertificate',
        outcome: 'success',
        accountId,
        target: { kind: 'device', id: deviceId },
        address,
        details: { certificateAuthorityId: id, fingerprint },
      });
    });
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
    const { message, details } = error;
    log.warn({ certificateAuthorityId: id, deviceId, message, details }, 'a CA could not make a device');
    return false;
  }
  access.deviceChanged(deviceId);
  return true;
}
