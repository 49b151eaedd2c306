/** Client certificates, and the authorities that issue them. */
import { Type } from 'typebox';
import {
  column,
  DateText,
  flag,
  hidden,
  Id,
  json,
  Nullable,
  nameColumn,
  OptionalDate,
  OptionalId,
  OptionalText,
  oneOf,
} from './columns.ts';

const Pem = Type.String({ description: 'PEM.' });
const pemBody = Type.String({
  minLength: 1,
  maxLength: 20_000,
  description:
    'PEM with exactly one certificate, valid now: RSA of 2048 bits, a curve of 256 bits or EdDSA at least, signed with SHA-256 or better.',
});

/** What every certificate says. `fingerprint` is the SHA-256 of its DER, lower-case hex. */
const contentColumns = {
  fingerprint: column(Type.String({ description: 'SHA-256 of the DER, lower-case hex.' }), { filter: 'exact' }),
  subject: column(Type.String(), {}),
  validFrom: column(DateText, {}),
  validTo: column(DateText, { sort: true }),
  certificate: column(Pem, { create: 'required', body: pemBody }),
};

/** A client certificate of a device. */
export const certificateColumns = {
  entityId: column(Id, {
    create: 'required',
    body: Type.String({ description: 'The device.' }),
    filter: 'exact',
    sort: true,
    goesWith: true,
  }),
  entityType: column(Type.String(), {
    create: 'required',
    shown: oneOf<string>(['device']),
    body: oneOf(['device']),
  }),
  ...contentColumns,
  issuer: column(Type.String(), {}),
  certificateAuthorityId: column(OptionalId, {
    shown: Nullable(Type.String({ description: 'The issuing CA that has made it; null when it was registered.' })),
    filter: 'reference',
  }),
  serialNumber: column(OptionalText, {
    shown: Nullable(Type.String({ description: 'Lower-case hex; null when it was registered before this was noted.' })),
    filter: 'exact',
  }),
  /** SHA-256 of the SubjectPublicKeyInfo, lower-case hex; of issued ones. */
  publicKeyHash: hidden(OptionalText),
};

/** Attributes of a subject, and the fields that they become. */
const SubjectFields = Type.Record(
  Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9.-]{0,63}$' }),
  Type.String({ minLength: 1, maxLength: 255 }),
  {
    maxProperties: 20,
    additionalProperties: false,
    description:
      'Attributes of the subject, such as `O`, and the fields of the template that a device which this CA makes has from them.',
  },
);

/** Attributes of a subject that may have the serial number of a device. */
const serialNumberAttributes = ['CN', 'serialNumber', 'OU', 'UID'] as const;

/** What a CA of an account has, as PUT .../crl and crlUrl have left it. */
const listColumns = {
  crlUrl: column(OptionalText, {
    create: 'optional',
    change: true,
    bounds: { maxLength: 2000 },
    shown: Nullable(
      Type.String({ description: 'Where the revocation list of this CA is fetched: when it is set, and then hourly.' }),
    ),
  }),
  crlPolicy: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf<string>(['warn', 'refuse']),
    body: oneOf(['warn', 'refuse'], {
      description:
        'When the revocation list has expired: `warn` goes on with it, `refuse` lets nobody in and ends connections. Without a list it does nothing.',
    }),
    initial: 'warn',
  }),
  crlNumber: column(OptionalText, {
    shown: Nullable(Type.String({ description: 'CRL Number of the present list, decimal; null without a list.' })),
  }),
  crlNextUpdate: column(OptionalDate, {
    shown: Nullable({ ...DateText, description: 'When the present list expires.' }),
  }),
  crlCount: column(Nullable(Type.Integer()), {
    shown: Nullable(Type.Integer({ description: 'Certificates on the present list.' })),
  }),
  crlTaken: column(OptionalDate, {
    shown: Nullable({ ...DateText, description: 'When the present list was sent or fetched.' }),
  }),
  crlChecked: column(OptionalDate, {
    shown: Nullable({ ...DateText, description: 'When crlUrl was asked last.' }),
  }),
  crlError: column(OptionalText, {
    shown: Nullable(
      Type.String({
        description: 'Why the last fetch from crlUrl brought no list; the former one stays. Null when it did.',
      }),
    ),
  }),
};

/** A CA of an account, whose certificates let in the device that their CN names; it may make it. */
export const certificateAuthorityColumns = {
  name: nameColumn,
  state: column(Type.String(), {
    shown: oneOf<string>(['pending', 'active'], {
      description:
        'A pending CA lets nobody in, until `POST …/{id}/proof` has made it active; one that issues signs nothing until `PUT …/{id}/certificate` has.',
    }),
    filter: 'exact',
  }),
  challenge: column(OptionalText, {
    shown: Nullable(
      Type.String({ description: 'The CN of the certificate that proves a pending CA; null when it is active.' }),
    ),
  }),
  ...contentColumns,
  createDevices: flag({
    create: 'optional',
    change: true,
    bounds: {
      description: 'Whether a first connection makes the device that the CN names, a UUID; needs deviceTemplateId.',
    },
    initial: 0,
  }),
  deviceTemplateId: column(OptionalId, { create: 'optional', change: true, body: OptionalText, shown: OptionalText }),
  organizationId: column(OptionalId, { create: 'optional', change: true, body: OptionalText, shown: OptionalText }),
  serialNumberAttribute: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf<string>(serialNumberAttributes),
    body: oneOf(serialNumberAttributes, {
      description:
        'Where certificates of this CA have the serial number of a device that enrolls, or connects by it (`identity`); CN when left out.',
    }),
    initial: 'CN',
  }),
  identity: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf<string>(['id', 'serialNumber']),
    body: oneOf(['id', 'serialNumber'], {
      description:
        'What names the device in a certificate of this CA: `id` is its id as CN; `serialNumber` is its serial number, which exactly one device of the account must have.',
    }),
    initial: 'id',
  }),
  subjectFields: json(SubjectFields, SubjectFields, { create: 'optional', change: true, initial: '{}' }),
  ...listColumns,
  issuing: flag({ filter: 'flag' }),
  certificateRequest: column(OptionalText, {
    shown: Nullable(
      Type.String({
        description: 'PKCS#10, PEM: what the CA of your company signs. Null for any other CA, and when it is active.',
      }),
    ),
  }),
  chain: column(OptionalText, {
    shown: Nullable(
      Type.String({
        description:
          'The CAs above one that issues, PEM, ending with the root; null where `PUT …/{id}/certificate` has had none.',
      }),
    ),
  }),
  /** Of an issuing CA: its key, PKCS#8, sealed with its id. */
  sealedKey: hidden(OptionalText),
  /** Of its subject as names are compared. */
  subjectHash: hidden(Type.String()),
};

/**
 * A device that has renewed its credential and has not connected with the new one, which is a certificate or the secret of
 * a generation; so is the former one. Of two secrets the credential itself knows the former one.
 */
export const RenewalRecord = Type.Object({
  deviceId: Id,
  accountId: Id,
  certificateId: OptionalId,
  generation: Nullable(Type.Integer()),
  formerCertificateId: OptionalId,
  formerGeneration: Nullable(Type.Integer()),
  until: DateText,
});

/** A certificate that an issuing CA has made, and that counts no more: on the CA's list until it expires. */
export const RevokedCertificateRecord = Type.Object({
  accountId: Id,
  certificateAuthorityId: Id,
  serialNumber: Type.String(),
  revoked: DateText,
  validTo: DateText,
});

/** A part of the revocation list of a registered CA: digests of serial numbers, sorted; `first` is the first of them, hex. */
export const RevocationListPartRecord = Type.Object({
  certificateAuthorityId: Id,
  first: Type.String(),
  accountId: Id,
  digests: Type.Unsafe<Buffer>({ type: 'string' }),
});
