/** Who asks: callers of each kind, what makes them, and what each may do to a kind of thing. Where it may is in `access.ts`. */

import type { AccessTokenRow, ApplicationRow } from '../../db/registry/index.ts';
import { applicationKinds } from '../../db/registry/records/identity.ts';
import {
  type Action,
  type ApplicationKind,
  commonOf,
  type EntityKind,
  fixedRights,
  largestRights,
  ownRights,
  type Right,
  type Rights,
  type Role,
} from './rights.ts';

/**
 * What every caller has. `id` is what `createdById` records: the identity of a person, the id of an application or a
 * device. `sessionId` is the login session through which it acts, `address` where it speaks from.
 */
interface Known {
  id: string;
  accountId: string;
  sessionId?: string;
  address?: string;
  /** The token by which it acts; `sessionId` is the same. */
  tokenId?: string;
  /** The rights that it uses now (`Access.narrow`). A transaction checks them again (entity/verbs.ts). */
  uses?: readonly Right[];
}

/** An end-user of a person: the role that it has in an organization and below. */
export interface Membership {
  organizationId: string;
  role: Role;
}

/** Callers of the whole account. */
export type AccountWide = Known & { kind: 'admin' | 'backEnd'; role: Role };

/**
 * `organizationIds` are those below which it may do what it does now: none before `Access.narrow` has said what that is.
 */
export type EndUser = Known & {
  kind: 'endUser';
  memberships: readonly Membership[];
  organizationIds: readonly string[];
  /** Its rights count only in this organization and below: so a token says. */
  within?: string;
};

/** The caller of a request or the client of a connection. */
export type Caller =
  | AccountWide
  | EndUser
  | (Known & { kind: 'newcomer' | 'device' | 'endUserApp' | 'identityProvider' })
  | Station;

/** A station of a factory line: all its devices are of one template, in one organization or in none. */
export interface Station extends Known {
  kind: 'station';
  deviceTemplateId: string;
  organizationId: string | null;
}

/** Whether the caller is a program with an appToken. */
export function isApplication({ kind }: Pick<Caller, 'kind'>): boolean {
  return applicationKinds.some((one) => one === kind);
}

/** The caller that an application acts as, a back-end in this role. Returns undefined if the row is not an application. */
export function applicationCaller(application: ApplicationRow, role: Role): Caller | undefined {
  const { id, accountId, deviceTemplateId, organizationId } = application;
  const kind = applicationKinds.find((one: ApplicationKind) => one === application.kind);
  if (kind === 'backEnd') return { kind, id, accountId, role };
  if (kind !== 'station') return kind && { kind, id, accountId };
  return deviceTemplateId === null ? undefined : { kind, id, accountId, deviceTemplateId, organizationId };
}

/** The rights of a token: those of its owner, as far as it has them too. */
const tokenRights = (role: Role, rights: Rights | undefined): Role =>
  rights ? { ...role, rights: commonOf(role.rights, rights) } : role;

/**
 * The caller that a token is: its owner as it is now, with no more rights than the token has, and in its organization.
 * Undefined when nothing is left of its owner.
 */
export function tokenCaller(
  owner: Caller,
  token: Pick<AccessTokenRow, 'id' | 'rights' | 'organizationId'>,
): Caller | undefined {
  const { id: tokenId, organizationId } = token;
  const rights = token.rights === null ? undefined : (JSON.parse(token.rights) as Rights);
  const known = { tokenId, sessionId: tokenId };
  if (owner.kind === 'endUser') {
    const memberships = owner.memberships.map((one) => ({ ...one, role: tokenRights(one.role, rights) }));
    return { ...owner, ...known, memberships, ...(organizationId !== null && { within: organizationId }) };
  }
  if (!isAccountWide(owner)) return undefined;
  const role = tokenRights(owner.role, rights);
  if (organizationId === null) return { ...owner, ...known, role };
  const inPlace = { ...role, rights: commonOf(role.rights, largestRights.organization) };
  return { ...endUserCaller(owner.id, owner.accountId, [{ organizationId, role: inPlace }]), ...known };
}

/** Whether the caller is this person itself, and not a token of it. */
export function isSelf({ id, tokenId }: Caller, userId: string): boolean {
  return id === userId && tokenId === undefined;
}

/** The name of what the caller has here: connections, streams, stored sessions. A token has its own. */
export function principalOf({ id, tokenId }: Pick<Caller, 'id' | 'tokenId'>): string {
  return tokenId ?? id;
}

/** The caller that the end-users of a person are, or one without a person; it has to be narrowed. */
export function endUserCaller(id: string, accountId: string, memberships: readonly Membership[]): EndUser {
  return { kind: 'endUser', id, accountId, memberships, organizationIds: [] };
}

/** Whether everything of the account is in the caller's reach. */
export function isAccountWide(caller: Caller): caller is AccountWide {
  return caller.kind === 'admin' || caller.kind === 'backEnd';
}

/** Whether the caller may do this to that kind of thing at all: somewhere, or to itself. */
export function may(caller: Caller, action: Action, kind: EntityKind): boolean {
  return mayOthers(caller, action, kind) || (isPerson(caller) && has(ownRights, action, kind));
}

/** No program and no token removes a second factor, whatever its role. */
const ofPeople = 'mfaMethod';

/** As `may`, leaving out what a person may do with itself. */
function mayOthers(caller: Caller, action: Action, kind: EntityKind): boolean {
  if (caller.kind === 'endUser') return caller.memberships.some(({ role }) => has(role.rights, action, kind));
  if ((caller.kind === 'backEnd' || caller.tokenId !== undefined) && kind === ofPeople) return false;
  return has(isAccountWide(caller) ? caller.role.rights : fixedRights[caller.kind], action, kind);
}

/** Whether its role lets a narrowed caller do what it does to others too. */
export function usesForOthers(caller: Caller): boolean {
  return caller.uses?.every((right) => mayOthers(caller, ...right)) ?? false;
}

/** The organizations in which an end-user has a right. */
export function rootsOf({ memberships }: EndUser, action: Action, kind: EntityKind): string[] {
  return memberships.flatMap(({ organizationId, role }) => (has(role.rights, action, kind) ? [organizationId] : []));
}

/** Its rights, one record for each of its roles. */
export function rightsOf(caller: Caller): Rights[] {
  if (caller.kind === 'endUser') return caller.memberships.map(({ role }) => role.rights);
  if (!isAccountWide(caller)) return [fixedRights[caller.kind]];
  const { rights } = caller.role;
  return [caller.kind === 'backEnd' || caller.tokenId !== undefined ? { ...rights, [ofPeople]: [] } : rights];
}

/** Whether the caller may look after itself: a person that has logged in. */
export function isPerson({ kind, tokenId }: Caller): boolean {
  return tokenId === undefined && (kind === 'admin' || kind === 'endUser' || kind === 'newcomer');
}

export function has(rights: Rights, action: Action, kind: EntityKind): boolean {
  return rights[kind]?.includes(action) ?? false;
}
