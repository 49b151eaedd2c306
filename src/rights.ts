/** What each kind of caller may do to each kind of thing. Whether the thing is in its reach is checked separately (`access.ts`). */
import type { EntityName } from '../db/registry/records/by-table.ts';
import type { applicationKinds } from '../db/registry/records/identity.ts';

/** Programs that have an appToken. */
export type ApplicationKind = (typeof applicationKinds)[number];

type CallerKind = ApplicationKind | 'admin' | 'endUser' | 'newcomer' | 'device';

/** The kinds of entities, under the names that rights have. */
export type EntityWithRights = Exclude<EntityName, 'certificate'> | 'mqttCertificate';

/** Entities, and what is not one by itself. */
export type EntityKind =
  | EntityWithRights
  | 'account'
  | 'auditRecord'
  | 'identity'
  | 'mfaMethod'
  | 'permission'
  | 'profile'
  | 'logEntry'
  | 'mqttCredential'
  | 'issuedCertificate'
  | 'associationCode'
  | 'association'
  | 'replacement'
  | 'verification'
  | 'job'
  | 'bulkChange'
  | 'firmwareState'
  | 'firmwareOffer'
  | 'command';

export type Action = 'create' | 'read' | 'update' | 'delete' | 'publish' | 'subscribe';

export type Rights = Partial<Record<EntityKind, readonly Action[]>>;

const everything: readonly Action[] = ['create', 'read', 'update', 'delete'];

/** An admin of the account, and a back-end, which acts as one. A kind that is not here is a type error. */
const administration = {
  account: ['read', 'update'],
  accountUser: everything,
  application: everything,
  auditRecord: ['read'],
  identity: ['delete'],
  identityProvider: everything,
  bridge: everything,
  permission: ['read'],
  profile: ['read', 'update'],
  device: [...everything, 'publish', 'subscribe'],
  logEntry: ['create'],
  endUser: everything,
  organization: everything,
  deviceTemplate: everything,
  endUserTemplate: everything,
  organizationTemplate: everything,
  channelTemplate: everything,
  customField: everything,
  mqttCredential: ['create'],
  mqttCertificate: ['create', 'read', 'delete'],
  certificateAuthority: everything,
  enrollmentGroup: everything,
  issuedCertificate: ['create'],
  associationCode: ['create'],
  association: ['create'],
  replacement: ['create'],
  verification: ['create', 'read'],
  job: ['create', 'read', 'update'],
  bulkChange: ['create'],
  firmwarePackage: everything,
  firmwareRollout: ['create', 'read', 'update'],
  firmwareState: ['read', 'update'],
  command: ['create', 'read', 'delete'],
} as const satisfies Record<Exclude<EntityKind, 'mfaMethod' | 'firmwareOffer'>, readonly Action[]>;

/** The rights of each kind of caller. Whether the entity is in its reach is checked separately. */
export const rights: Record<CallerKind, Rights> = {
  admin: { ...administration, mfaMethod: everything },
  backEnd: { ...administration, identity: everything },
  // By its appToken alone: it creates users, looks them up and resets passwords.
  endUserApp: { identity: ['create', 'read', 'update'] },
  endUser: {
    device: ['read', 'update', 'publish', 'subscribe'],
    endUser: everything,
    organization: everything,
    // Its own one only: registry/credentials.ts.
    mqttCredential: ['create'],
    association: ['create'],
    profile: ['read', 'update'],
    mfaMethod: everything,
    // Of devices in its reach.
    firmwareState: ['read', 'update'],
    command: ['create', 'read', 'delete'],
  },
  // An identity without an end-user may make its first organization, and look after itself.
  newcomer: { organization: ['create'], profile: ['read', 'update'], mfaMethod: everything },
  device: { device: ['update', 'publish', 'subscribe'], firmwareOffer: ['read', 'update'] },
  // All of it of the devices that it has made, while they stand where it puts them: `reachesDevice`.
  station: {
    device: ['create', 'read'],
    mqttCredential: ['create'],
    issuedCertificate: ['create'],
    associationCode: ['create'],
    verification: ['create'],
    job: ['create', 'read', 'update'],
  },
};
