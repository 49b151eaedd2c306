/** Identities, their logins and their second factors. */
import { type Static, Type } from 'typebox';
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

/** A person who can log in. `email` is as given, `emailKey` is compared. */
export const IdentityRecord = Type.Object({
  id: Id,
  accountId: Id,
  email: Type.String(),
  emailKey: Type.String(),
  passwordHash: OptionalText,
  organizationsMade: Type.Integer(),
  created: DateText,
  emailConfirmed: Type.Integer({
    description: '1 when somebody has shown that the address is theirs: by a mailed token, or by a provider.',
  }),
  passwordChosenBy: OptionalText,
  signedUp: Type.Integer({
    description: '1 for a person who has signed up with a code: a second claim needs a confirmed address.',
  }),
  name: OptionalText,
  firstName: OptionalText,
  lastName: OptionalText,
  company: OptionalText,
  department: OptionalText,
  phoneNumber: OptionalText,
  address: OptionalText,
  addressObject: Nullable(Type.String({ description: 'JSON, for an address that was given as an object.' })),
  identityProviderId: Nullable(
    Type.String({ ...Id, description: 'The provider that has made it, by a group or SCIM.' }),
  ),
  disabledById: Nullable(Type.String({ ...Id, description: 'The provider that says by SCIM that it may do nothing.' })),
});

/**
 * A login session of a person (`userId`) or of an application; `address` is the network it was opened from. `lastUsed` may
 * be up to half a minute too early.
 */
export const SessionRecord = Type.Object({
  id: Id,
  accountId: Id,
  userId: OptionalId,
  applicationId: OptionalId,
  created: DateText,
  expires: DateText,
  ended: OptionalDate,
  csrfHash: Type.String(),
  address: OptionalText,
  lastUsed: OptionalDate,
  browser: Nullable(Type.String({ description: 'What it was opened with, such as `Firefox on Windows`.' })),
});

/**
 * A token that a person or an application has made for itself. `rights` is JSON; null is all that its owner has.
 * `organizationId` is where it counts; null is wherever its owner's rights do.
 */
export const AccessTokenRecord = Type.Object({
  id: Id,
  accountId: Id,
  ownerId: Id,
  name: Type.String(),
  tokenHash: Type.String(),
  created: DateText,
  expires: DateText,
  rights: OptionalText,
  organizationId: OptionalId,
  lastUsed: OptionalDate,
  lastAddress: OptionalText,
});

export const applicationKinds = ['endUserApp', 'backEnd', 'station'] as const;

/** What only stations have: each makes devices of one template in one organization, until it `expiresAt` or has made `maxDevices`. */
export const stationColumns = {
  deviceTemplateId: column(OptionalId, {
    create: 'optional',
    body: Type.String({ description: 'Of a station: the template of all its devices.' }),
    shown: Type.Optional(Id),
  }),
  organizationId: column(OptionalId, {
    create: 'optional',
    body: Nullable(
      Type.String({
        description: 'Of a station: where its devices are made; outside of every organization when absent.',
      }),
    ),
    shown: Type.Optional(OptionalId),
  }),
  maxDevices: column(Nullable(Type.Integer()), {
    create: 'optional',
    change: true,
    body: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      description: 'Of a station: how many devices it may make.',
    }),
    shown: Type.Optional(Type.Integer()),
  }),
  madeDevices: column(Type.Integer(), {
    shown: Type.Optional(Type.Integer({ description: 'How many a station has made; each counts for good.' })),
  }),
  expiresAt: column(OptionalDate, {
    create: 'optional',
    change: true,
    body: Type.String({ description: 'Of a station: until when it works, ISO 8601.' }),
    shown: Type.Optional(DateText),
  }),
};

/** The role of somebody; null in the row is the default one. */
export const roleIdColumn = column(OptionalText, {
  create: 'optional',
  change: true,
  body: Type.String({ maxLength: 100 }),
  shown: Type.String({ description: 'The id of its role.' }),
  keeps: 'roles',
});

/** Who has made somebody: only what mappings made is changed and removed by them. */
export const mappedByColumn = column(OptionalId, {
  shown: Nullable(Type.String({ ...Id, description: 'The identity provider whose mappings have made it.' })),
});

/** A program that calls. `accessTokenLifetime` in seconds; null is the default. */
export const applicationColumns = {
  name: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: { minLength: 1, maxLength: 255 },
    filter: 'exact',
    sort: true,
  }),
  kind: column(Type.String(), {
    create: 'required',
    shown: oneOf(applicationKinds),
    body: oneOf(applicationKinds, {
      description:
        'endUserApp creates users, looks them up and resets passwords; backEnd acts as an admin; station makes devices on a factory line.',
    }),
    filter: 'exact',
  }),
  tokenHash: hidden(Type.String()),
  accessTokenLifetime: column(Nullable(Type.Integer()), {
    create: 'optional',
    shown: Nullable(Type.Integer({ description: 'Seconds.' })),
    bounds: {
      minimum: 60,
      maximum: 30 * 24 * 60 * 60,
      description: 'Seconds that its tokens last without a renewal; 1200 when absent.',
    },
  }),
  revealResetToken: flag({
    create: 'optional',
    bounds: { description: 'It mails reset tokens itself: they are in the answer instead of in a mail.' },
    initial: 0,
  }),
  ...stationColumns,
  roleId: column(OptionalText, {
    ...roleIdColumn.marks,
    body: Type.String({ maxLength: 100, description: 'Of a backEnd: its role; `account:admin` when absent.' }),
    shown: Type.Optional(Type.String({ description: 'Of a backEnd: its role.' })),
  }),
};

/** A token that was sent by mail, for one purpose: `password`, or `email` with the new address. */
export const MailedTokenRecord = Type.Object({
  tokenHash: Type.String(),
  userId: Id,
  purpose: Type.String(),
  email: OptionalText,
  created: DateText,
  expires: DateText,
});

/**
 * A second factor of a person: `totp` with a sealed secret and the last time step used, `sms` with a phone number. It
 * counts once `confirmed`. `tries` are of the code that confirms it, or, texted (`codeHash`), removes it.
 */
export const MfaMethodRecord = Type.Object({
  userId: Id,
  method: Type.String(),
  created: DateText,
  confirmed: OptionalDate,
  sealedSecret: OptionalText,
  phoneNumber: OptionalText,
  lastStep: Nullable(Type.Integer()),
  codeHash: OptionalText,
  codeExpires: OptionalDate,
  tries: Type.Integer(),
});

export const RecoveryCodeRecord = Type.Object({ userId: Id, codeHash: Type.String() });

/** A login that waits for its second factor; a new password ends it. `codeHash` is of the code that was texted last. */
export const MfaLoginRecord = Type.Object({
  tokenHash: Type.String(),
  userId: Id,
  renewalType: OptionalText,
  expires: DateText,
  tries: Type.Integer(),
  codesSent: Type.Integer(),
  codeHash: OptionalText,
  codeExpires: OptionalDate,
});

/** What a group of a provider gives its members. */
const Mapping = Type.Object({
  group: Type.String({ minLength: 1, maxLength: 255 }),
  roleId: Type.String({ minLength: 1, maxLength: 100 }),
  organizationId: Nullable(Type.String({ maxLength: 100 })),
});
export type Mapping = Static<typeof Mapping>;

/** An OpenID provider of an account. */
const maxRedirectUris = 50;
const maxMappings = 500;

export const identityProviderColumns = {
  name: nameColumn,
  issuer: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: {
      maxLength: 1000,
      description: 'https. With SLIPWAY_ALLOW_PRIVATE_TARGETS=true also http on this machine.',
    },
    filter: 'exact',
  }),
  clientId: column(Type.String(), { create: 'required', change: true, bounds: { minLength: 1, maxLength: 255 } }),
  sealedClientSecret: hidden(OptionalText),
  scope: column(Type.String(), {
    create: 'optional',
    change: true,
    bounds: {
      maxLength: 1000,
      pattern: '^[!#-\\[\\]-~]+( [!#-\\[\\]-~]+)*$',
      description: 'Has `openid` in it; `openid email profile` when absent.',
    },
    initial: 'openid email profile',
  }),
  redirectUris: json(
    Type.Array(Type.String(), { maxItems: maxRedirectUris }),
    Type.Array(Type.String({ maxLength: 2000 }), {
      maxItems: maxRedirectUris,
      description:
        'Where browsers may be sent after a login: exact addresses, https, http on this machine, or of an app, such as com.example.app:/in.',
    }),
    { create: 'optional', change: true, initial: '[]' },
  ),
  groupsClaim: column(OptionalText, {
    create: 'optional',
    change: true,
    bounds: {
      minLength: 1,
      maxLength: 255,
      description: 'The claim with the groups of a person, such as `groups`: a list of texts. Null: none are read.',
    },
  }),
  mappings: json(
    Type.Array(Mapping, { maxItems: maxMappings }),
    Type.Array(Mapping, {
      maxItems: maxMappings,
      description:
        'The role that members of a group have: in an organization, or with null as `organizationId` in the account. Roles of the account win; in an organization the first does.',
    }),
    { create: 'optional', change: true, initial: '[]' },
  ),
};

/**
 * A person of a provider that speaks SCIM. `resource` is JSON, as the provider sees it; `stale` is 1 while its roles are pending:
 * its groups, or what they are mapped to, have changed. The code says `rolesPending`; the column keeps the name it was made with.
 */
export const ScimUserRecord = Type.Object({
  id: Id,
  accountId: Id,
  identityProviderId: Id,
  userId: Id,
  userNameKey: Type.String(),
  externalId: OptionalText,
  active: Type.Integer(),
  resource: Type.String(),
  stale: Type.Integer(),
  created: DateText,
  lastModified: DateText,
});

export const ScimGroupRecord = Type.Object({
  id: Id,
  accountId: Id,
  identityProviderId: Id,
  displayName: Type.String(),
  displayNameKey: Type.String(),
  externalId: OptionalText,
  created: DateText,
  lastModified: DateText,
});

export const ScimMemberRecord = Type.Object({ groupId: Id, memberId: Id, accountId: Id });

/** The identity of a subject of an issuer. */
export const FederatedIdentityRecord = Type.Object({
  accountId: Id,
  issuer: Type.String(),
  subject: Type.String(),
  userId: Id,
  created: DateText,
});

/** A federated login under way, bound to one browser; `sealed` holds its nonce, its PKCE verifier and where it leads. */
export const FederatedLoginRecord = Type.Object({
  stateHash: Type.String(),
  providerId: Id,
  browserHash: Type.String(),
  sealed: Type.String(),
  expires: DateText,
});

/** A role that an account has made; `rights` has the actions by kind of entity. */
export const roleColumns = {
  name: nameColumn,
  description: column(OptionalText, { create: 'optional', change: true, bounds: { maxLength: 255 } }),
  scope: column(Type.String(), {
    create: 'required',
    shown: oneOf(['account', 'organization'] as const),
    body: oneOf(['account', 'organization'] as const, {
      description: 'Whom it is for: account users and back-ends, or end-users in their organizations.',
    }),
    filter: 'exact',
  }),
  rights: json(
    Type.Record(Type.String(), Type.Array(Type.String(), { maxItems: 6 }), {
      description: 'The actions by kind of entity, as GET /profile/me writes them.',
    }),
    Type.Record(Type.String({ maxLength: 50 }), Type.Array(Type.String({ maxLength: 20 }), { maxItems: 6 }), {
      maxProperties: 100,
      description: 'The actions by kind of entity. You can give only rights that you have.',
    }),
    { create: 'required', change: true },
  ),
};

/** An admin, or another user of the account, as its role says. */
export const accountUserColumns = {
  userId: column(Id, {
    create: 'optional',
    body: Type.String({ description: 'An identity of the account that is no end-user.' }),
    filter: 'exact',
  }),
  roleId: roleIdColumn,
  identityProviderId: mappedByColumn,
};
