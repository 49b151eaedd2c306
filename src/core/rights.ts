/** What callers may do to each kind of thing: the roles, and the rights of callers that have none. Reach is checked in `access.ts`. */
import type { EntityName } from '../../db/registry/records/by-table.ts';
import type { applicationKinds } from '../../db/registry/records/identity.ts';

/** Programs that have an appToken. */
export type ApplicationKind = (typeof applicationKinds)[number];

/** The kinds of entities, under the names that rights have. */
export type EntityWithRights = Exclude<EntityName, 'certificate'> | 'mqttCertificate';

/** Entities, and what is not one by itself. */
export type EntityKind =
  | EntityWithRights
  | 'account'
  | 'auditRecord'
  | 'identity'
  | 'session'
  | 'token'
  | 'mfaMethod'
  | 'permission'
  | 'profile'
  | 'logEntry'
  | 'mqttCredential'
  | 'issuedCertificate'
  | 'associationCode'
  | 'association'
  | 'replacement'
  | 'supportRequest'
  | 'verification'
  | 'job'
  | 'bulkChange'
  | 'firmwareState'
  | 'firmwareOffer'
  | 'renewal'
  | 'command';

export const actions = ['create', 'read', 'update', 'delete', 'publish', 'subscribe'] as const;
export type Action = (typeof actions)[number];

export type Right = readonly [Action, EntityKind];

export type Rights = Partial<Record<EntityKind, readonly Action[]>>;

const everything: readonly Action[] = ['create', 'read', 'update', 'delete'];

/** All that a role of the account can give. A kind that is not here is a type error. */
const administration = {
  account: ['read', 'update'],
  accountUser: everything,
  application: everything,
  auditRecord: ['read'],
  // Of other people; every person looks after itself (`ownRights`).
  identity: everything,
  session: ['delete'],
  token: ['read', 'delete'],
  profile: ['read', 'update'],
  mfaMethod: ['delete'],
  identityProvider: everything,
  role: everything,
  bridge: everything,
  permission: ['read'],
  device: [...everything, 'publish', 'subscribe'],
  fleet: everything,
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
  // The right to read a device is enough to ask; callers of the account read requests and close them.
  supportRequest: ['read', 'delete'],
  verification: ['create', 'read'],
  job: ['create', 'read', 'update'],
  bulkChange: ['create'],
  firmwarePackage: everything,
  firmwareRollout: ['create', 'read', 'update'],
  firmwareState: ['read', 'update'],
  command: ['create', 'read', 'delete'],
} as const satisfies Record<Exclude<EntityKind, 'firmwareOffer' | 'renewal'>, readonly Action[]>;

/** `read` of all kinds of `rights` but some, and messages. */
function reading(rights: Rights, ...without: EntityKind[]): Rights {
  const read = Object.entries(rights).filter(
    ([kind, may]) => may.includes('read') && !without.includes(kind as EntityKind),
  );
  return { ...Object.fromEntries(read.map(([kind]) => [kind, ['read']])), device: ['read', 'subscribe'] };
}

/** Roles are of the whole account, or of an organization and all below it. */
export const roleScopes = ['account', 'organization'] as const;
export type RoleScope = (typeof roleScopes)[number];

/** All that a role of an organization can give: everything else has no place in the tree. */
const inOrganization: Rights = {
  device: ['read', 'update', 'publish', 'subscribe'],
  fleet: everything,
  logEntry: ['create'],
  endUser: everything,
  organization: everything,
  role: ['read'],
  profile: ['read'],
  // Its own one only: registry/credentials/credentials.ts.
  mqttCredential: ['create'],
  association: ['create'],
  firmwareState: ['read', 'update'],
  command: ['create', 'read', 'delete'],
};

/** What a role of this scope can give at most. */
export const largestRights: Readonly<Record<RoleScope, Rights>> = {
  account: administration,
  organization: inOrganization,
};

const { logEntry: _, ...managing } = inOrganization;

/** Roles that every account has. The first of a scope is the default. */
const builtIn: Readonly<Record<RoleScope, Readonly<Record<string, { description: string; rights: Rights }>>>> = {
  account: {
    admin: { description: 'Everything in the account.', rights: administration },
    operator: {
      description: 'Devices, fleets, firmware, commands and jobs.',
      rights: {
        account: ['read'],
        permission: ['read'],
        device: administration.device,
        fleet: administration.fleet,
        logEntry: administration.logEntry,
        organization: ['read'],
        deviceTemplate: ['read'],
        organizationTemplate: ['read'],
        channelTemplate: ['read'],
        customField: ['read'],
        mqttCredential: administration.mqttCredential,
        mqttCertificate: administration.mqttCertificate,
        certificateAuthority: ['read'],
        enrollmentGroup: ['read'],
        issuedCertificate: administration.issuedCertificate,
        associationCode: administration.associationCode,
        association: administration.association,
        replacement: administration.replacement,
        supportRequest: administration.supportRequest,
        verification: administration.verification,
        job: administration.job,
        bulkChange: administration.bulkChange,
        firmwarePackage: administration.firmwarePackage,
        firmwareRollout: administration.firmwareRollout,
        firmwareState: administration.firmwareState,
        command: administration.command,
      },
    },
    support: {
      description: 'Reads everything but the audit record, ends sessions, makes secrets, sends commands.',
      rights: {
        ...reading(administration, 'auditRecord'),
        // A secret of a device publishes.
        device: ['read', 'publish', 'subscribe'],
        session: administration.session,
        supportRequest: administration.supportRequest,
        mqttCredential: administration.mqttCredential,
        command: ['create', 'read'],
      },
    },
    auditor: {
      description: 'Reads everything, the audit record too.',
      rights: reading(administration),
    },
  },
  organization: {
    manager: {
      description: 'Everything of an organization: devices, people, organizations below it.',
      rights: managing,
    },
    operator: {
      description: 'Changes devices, sends and hears messages and commands, installs firmware.',
      rights: {
        device: inOrganization.device ?? [],
        fleet: ['read'],
        organization: ['read'],
        firmwareState: ['read', 'update'],
        command: ['create', 'read', 'delete'],
      },
    },
    installer: {
      description: 'Claims devices, reads and changes them.',
      rights: { device: ['read', 'update'], fleet: ['read'], organization: ['read'], association: ['create'] },
    },
    viewer: { description: 'Reads, and hears messages.', rights: reading(managing, 'role') },
  },
};

/** A role as it is in force for somebody. */
export interface Role {
  id: string;
  name: string;
  scope: RoleScope;
  description: string | null;
  rights: Rights;
}

/** The built-in roles, by their ids: `<scope>:<name>`. */
export const builtInRoles: ReadonlyMap<string, Role> = new Map(
  roleScopes.flatMap((scope) =>
    Object.entries(builtIn[scope]).map(([name, role]) => {
      const id = `${scope}:${name}`;
      return [id, { id, name, scope, ...role }] as const;
    }),
  ),
);

function builtInRole(id: string): Role {
  const role = builtInRoles.get(id);
  if (!role) throw new Error(`there is no role ${id}`);
  return role;
}

/** A role of an account as it is stored; without it, or in the trash, it gives nothing. */
export function roleFrom(
  id: string,
  scope: RoleScope,
  stored: { name: string; description: string | null; rights: string } | undefined,
): Role {
  if (!stored) return { id, name: '', scope, description: null, rights: {} };
  const { name, description, rights } = stored;
  return { id, name, scope, description, rights: JSON.parse(rights) as Rights };
}

/** The role of whom nobody has given one. */
export const defaultRoles: Readonly<Record<RoleScope, Role>> = {
  account: builtInRole('account:admin'),
  organization: builtInRole('organization:manager'),
};

/** What a person may do with itself, whatever its role. */
export const ownRights: Rights = { profile: ['read', 'update'], mfaMethod: everything, session: ['delete'] };

/** The rights of callers that have no role. */
export const fixedRights: Record<'newcomer' | 'device' | 'station' | 'endUserApp' | 'identityProvider', Rights> = {
  // What its groups are mapped to happens by itself; it asks for nothing else.
  identityProvider: {},
  // By its appToken alone: it creates users, looks them up and resets passwords.
  endUserApp: { identity: ['create', 'read', 'update'] },
  // An identity without an end-user may make its first organization.
  newcomer: { organization: ['create'] },
  device: {
    device: ['update', 'publish', 'subscribe'],
    logEntry: ['create'],
    firmwareOffer: ['read', 'update'],
    renewal: ['create'],
  },
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

/** What both give. */
export function commonOf(one: Rights, other: Rights): Rights {
  const both = Object.entries(one).map(([kind, may]) => [
    kind,
    may.filter((action) => other[kind as EntityKind]?.includes(action)),
  ]);
  return Object.fromEntries(both);
}

/** What any of these gives. */
export function unionOf(all: Iterable<Rights>): Partial<Record<EntityKind, Action[]>> {
  const union: Partial<Record<EntityKind, Action[]>> = {};
  for (const rights of all)
    for (const [kind, may] of Object.entries(rights) as Array<[EntityKind, readonly Action[]]>)
      if (may.length > 0)
        union[kind] = actions.filter((action) => union[kind]?.includes(action) || may.includes(action));
  return union;
}
