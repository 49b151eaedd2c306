/** Client certificates, and the authorities that issue them. */
import { Type } from 'typebox';
import { common, DateText, Id, OptionalId, OptionalText } from './columns.js';

/** A client certificate of a device. `fingerprint` is the SHA-256 of its DER, lower-case hex. */
export const CertificateRecord = Type.Object({
  ...common,
  entityId: Id,
  entityType: Type.String(),
  certificate: Type.String({ description: 'PEM' }),
  fingerprint: Type.String(),
  subject: Type.String(),
  issuer: Type.String(),
  validFrom: DateText,
  validTo: DateText,
});

/** A CA of an account, whose certificates let in the device that their CN names; it may make it. */
export const CertificateAuthorityRecord = Type.Object({
  ...common,
  name: Type.String(),
  certificate: Type.String({ description: 'PEM' }),
  fingerprint: Type.String(),
  subject: Type.String(),
  validFrom: DateText,
  validTo: DateText,
  createDevices: Type.Integer(),
  deviceTemplateId: OptionalId,
  organizationId: OptionalId,
  state: Type.String({ description: '`pending` until the account has shown that it holds the key, then `active`.' }),
  challenge: OptionalText,
});
