/**
 * Who reaches what. HTTP and MQTT ask the same functions; all of them answer at once, from memory. A role says what its
 * holder may do to a kind of thing; the tree of organizations says which of those things are in its reach.
 */

import type { EntityRole, OrganizationNode, Placement, Registry } from '../../db/registry/index.ts';
import type { Common } from '../../db/registry/records/columns.ts';
import type { EntityTable, Row } from '../../db/registry/records.ts';
import { boundedCache } from '../../db/sqlite/cache.ts';
import {
  applicationCaller,
  type Caller,
  type EndUser,
  endUserCaller,
  has,
  isAccountWide,
  type Membership,
  may,
  rightsOf,
  rootsOf,
  tokenCaller,
} from './caller.ts';
import { type Channel, mayHearChannel, unlistedChannels } from './channels.ts';
import { PlatformError, unknownAccount } from './errors.ts';
import { HistoryWindow, wholeHistory } from './history-window.ts';
import {
  type Action,
  builtInRoles,
  defaultRoles,
  type EntityKind,
  type Role,
  type RoleScope,
  roleFrom,
  unionOf,
} from './rights.ts';
import { serviceChannel } from './topics.ts';

/** Where a row is in the tree of organizations; null is outside of it, where only admins reach. */
export function placeOf(
  table: EntityTable,
  row: Common & { organizationId?: string | null; parentId?: string | null },
): string | null {
  if (table !== 'organizations') return row.organizationId ?? null;
  // In the trash it is no longer in the tree: anyone who reaches its parent may see and recover it.
  return row.deleted === null ? row.id : (row.parentId ?? null);
}

/** The fields of a device that decide who reaches it. */
type ReachedDevice = Pick<Row<'devices'>, 'accountId' | 'organizationId' | 'deviceTemplateId' | 'createdById'>;

/** The fields of a device that say from when on its people see it. */
type Owned = Pick<Row<'devices'>, 'possessionFirst' | 'possessionSince'>;

/** Organizations on a path. Depth is at most 5; the bound keeps a damaged file from looping. */
export const maxPath = 16;
/** How many device positions are kept in memory; more are read again when asked for. */
const placementsKept = 100_000;
const identitiesKept = 50_000;
const rolesKept = 10_000;

/** What a person is: somebody with a role in the account, or with memberships, or neither. */
interface IdentityInForce {
  accountId: string;
  admin: Role | undefined;
  memberships: readonly Membership[];
}

/** An end-user or account user, with the role that it has. */
type EntityInForce = Omit<EntityRole, 'roleId'> & { role: Role };

export class Access {
  readonly #registry: Registry;
  readonly #organizations = new Map<string, OrganizationNode>();
  readonly #placements = boundedCache<string, Placement>(placementsKept);
  readonly #identities = boundedCache<string, IdentityInForce>(identitiesKept);
  readonly #entities = boundedCache<string, EntityInForce>(identitiesKept);
  readonly #roles = boundedCache<string, Role>(rolesKept);
  readonly #channels = new Map<string, ReadonlyMap<string, Channel>>();

  constructor(registry: Registry) {
    this.#registry = registry;
    for (const node of registry.organizations()) this.#organizations.set(node.id, node);
  }

  // Rules

  /** Whether the caller may do this to that kind of thing at all: somewhere, or to itself. */
  may(caller: Caller, action: Action, kind: EntityKind): boolean {
    return may(caller, action, kind);
  }

  /** Whether the caller may do anything over MQTT. */
  mayConnect(caller: Caller): boolean {
    return this.may(caller, 'subscribe', 'device') || this.may(caller, 'publish', 'device');
  }

  /** All that the caller's roles permit, somewhere. What every person may do to itself is not among it. */
  rightsOf(caller: Caller): Partial<Record<EntityKind, Action[]>> {
    return unionOf(rightsOf(caller));
  }

  /** @throws PlatformError 403 with 21 when the caller may not do this at all. */
  demand(caller: Caller, action: Action, kind: EntityKind): void {
    if (!this.may(caller, action, kind)) throw new PlatformError('forbidden');
  }

  /** The caller as it uses this right: its reach is where it has that. */
  narrow(caller: Caller, action: Action, kind: EntityKind): Caller {
    const uses = [[action, kind]] as const;
    if (caller.kind !== 'endUser') return { ...caller, uses };
    return { ...caller, uses, organizationIds: this.#rootsWithin(caller, action, kind) };
  }

  /** The organizations in which an end-user has a right; of a token within one, those that lie there. */
  #rootsWithin(caller: EndUser, action: Action, kind: EntityKind): string[] {
    const roots = rootsOf(caller, action, kind);
    const { within } = caller;
    if (within === undefined) return roots;
    if (this.isWithin(within, roots)) return [within];
    return roots.filter((root) => this.isWithin(root, [within]));
  }

  /** @throws PlatformError 404 with 100 for an account that is not the caller's: it looks like none. */
  demandAccount(caller: Caller, accountId: string): void {
    if (caller.accountId !== accountId) throw unknownAccount();
  }

  /** Whether something that is in `organizationId` of `accountId` is in the reach of a narrowed caller. */
  reaches(caller: Caller, accountId: string, organizationId: string | null): boolean {
    if (caller.accountId !== accountId) return false;
    if (isAccountWide(caller)) return true;
    return caller.kind === 'endUser' && this.isWithin(organizationId, caller.organizationIds);
  }

  /** As `reaches` of the caller as it uses this right, at each message. */
  #reachesBy(caller: Caller, action: Action, kind: EntityKind, organizationId: string | null): boolean {
    if (caller.kind !== 'endUser') return isAccountWide(caller);
    const path = this.pathOf(organizationId);
    if (caller.within !== undefined && !path.includes(caller.within)) return false;
    for (const id of path)
      for (const { organizationId: root, role } of caller.memberships)
        if (root === id && has(role.rights, action, kind)) return true;
    return false;
  }

  /** Whether a device is in the caller's reach: a station's own only, and no longer when it stands elsewhere. */
  reachesDevice(caller: Caller, device: ReachedDevice): boolean {
    const { accountId, organizationId } = device;
    if (caller.kind !== 'station') return this.reaches(caller, accountId, organizationId);
    const isPlaced = organizationId === caller.organizationId && device.deviceTemplateId === caller.deviceTemplateId;
    return accountId === caller.accountId && device.createdById === caller.id && isPlaced;
  }

  /** Whether an entity is in the caller's reach. */
  reachesRow<T extends EntityTable>(caller: Caller, table: T, row: Row<T>): boolean {
    if (table === 'devices') return this.reachesDevice(caller, row as Row<'devices'>);
    return this.reaches(caller, row.accountId, placeOf(table, row));
  }

  /** Whether a caller that uses another right may read an entity: where it is, only that other right is missing. */
  readsRow<T extends EntityTable>(caller: Caller, table: T, row: Row<T>): boolean {
    return (caller.uses ?? []).some(
      ([, kind]) => this.may(caller, 'read', kind) && this.reachesRow(this.narrow(caller, 'read', kind), table, row),
    );
  }

  /** Whether `organizationId` is one of `roots` or below one of them. */
  isWithin(organizationId: string | null, roots: readonly string[]): boolean {
    for (const id of this.pathOf(organizationId)) if (roots.includes(id)) return true;
    return false;
  }

  /** What the caller may read of the past of a device in its reach: people, what it has done for them. */
  historyWindowOf(caller: Caller, { possessionFirst, possessionSince }: Owned): HistoryWindow {
    if (isAccountWide(caller) || caller.kind === 'device' || possessionSince === null) return wholeHistory;
    return new HistoryWindow(Date.parse(possessionSince), possessionFirst);
  }

  /** The way down to an organization from the nearest of `roots` above it, or itself; empty when it is within none. */
  pathWithin(organizationId: string | null, roots: readonly string[]): string[] {
    const upwards = this.pathOf(organizationId);
    const root = upwards.findIndex((id) => roots.includes(id));
    return upwards.slice(0, root + 1).reverse();
  }

  /** The organization and its parents, upwards. */
  pathOf(organizationId: string | null): string[] {
    const path: string[] = [];
    let id = organizationId;
    while (id !== null && path.length < maxPath) {
      const node = this.#organizations.get(id);
      if (!node || node.deleted !== null) break;
      path.push(id);
      id = node.parentId;
    }
    return path;
  }

  /** A live device to which the caller may do this, for messages; undefined looks like none. */
  reachableDevice(
    caller: Caller,
    deviceId: string,
    action: Action,
    kind: EntityKind = 'device',
  ): Placement | undefined {
    if (!this.may(caller, action, kind)) return undefined;
    const device = this.placement(deviceId);
    if (!device || device.deleted !== null || device.accountId !== caller.accountId) return undefined;
    if (caller.kind === 'device') return device.id === caller.id ? device : undefined;
    return this.#reachesBy(caller, action, kind, device.organizationId) ? device : undefined;
  }

  /** Whether a message of the caller on this channel of the device is accepted. */
  mayPublish(caller: Caller, deviceId: string, channelName: string): boolean {
    const channel = this.#channelFor(caller, 'publish', deviceId, channelName);
    if (!channel?.service) return channel !== undefined;
    const { handler, needs, isPrivate } = serviceChannel(channelName) ?? {};
    if (caller.kind === 'device') return handler !== undefined || isPrivate === true;
    return needs !== undefined && this.reachableDevice(caller, deviceId, ...needs) !== undefined;
  }

  /** Whether a message on this channel of the device may be delivered to the caller. */
  mayHear(caller: Caller, deviceId: string, channelName: string): boolean {
    if (!mayHearChannel(caller, channelName)) return false;
    return this.#channelFor(caller, 'subscribe', deviceId, channelName) !== undefined;
  }

  #channelFor(caller: Caller, action: Action, deviceId: string, channelName: string): Channel | undefined {
    const device = this.reachableDevice(caller, deviceId, action);
    return device && this.channelOf(device.deviceTemplateId, channelName);
  }

  // Data of the rules

  placement(deviceId: string): Placement | undefined {
    const known = this.#placements.get(deviceId);
    if (known) return known;
    const placement = this.#registry.placement(deviceId);
    // One in the trash is rarely asked for again, and would stay until a hundred thousand others have been.
    if (placement && placement.deleted === null) this.#placements.set(deviceId, placement);
    return placement;
  }

  /** A channel of a device of this template, also one that no list shows. */
  channelOf(deviceTemplateId: string, name: string): Channel | undefined {
    return unlistedChannels.get(name) ?? this.channelsOf(deviceTemplateId).get(name);
  }

  /** The names of all of them. */
  *channelNamesOf(deviceTemplateId: string): IterableIterator<string> {
    yield* this.channelsOf(deviceTemplateId).keys();
    yield* unlistedChannels.keys();
  }

  /** The channels of a device template by name, service channels included. */
  channelsOf(deviceTemplateId: string): ReadonlyMap<string, Channel> {
    let channels = this.#channels.get(deviceTemplateId);
    if (!channels) {
      const rows = this.#registry.channelsOf(deviceTemplateId);
      channels = new Map(rows.map((row) => [row.name, { ...row, service: serviceChannel(row.name)?.listed ?? false }]));
      this.#channels.set(deviceTemplateId, channels);
    }
    return channels;
  }

  /** The current caller of an identity; undefined if it does not exist. */
  callerOf(userId: string): Caller | undefined {
    let identity = this.#identities.get(userId);
    if (!identity) {
      identity = this.#readIdentity(userId);
      if (!identity) return undefined;
      this.#identities.set(userId, identity);
    }
    const { accountId, admin, memberships } = identity;
    if (admin) return { kind: 'admin', id: userId, accountId, role: admin };
    if (memberships.length > 0) return endUserCaller(userId, accountId, memberships);
    return { kind: 'newcomer', id: userId, accountId };
  }

  /**
   * What the holder of an end-user's or account user's own secret may act as now: that entity alone, whatever else its
   * identity is. Undefined when there is none, or it is in the trash.
   */
  callerOfEntity(entityId: string): Caller | undefined {
    let entity = this.#entities.get(entityId);
    if (!entity) {
      const found = this.#registry.roleOfEntity(entityId);
      if (!found) return undefined;
      const { roleId, ...rest } = found;
      entity = { ...rest, role: this.roleOf(roleId, rest.organizationId === null ? 'account' : 'organization') };
      this.#entities.set(entityId, entity);
    }
    const { accountId, organizationId } = entity;
    // An end-user without a person acts in its own name.
    const id = entity.userId ?? entityId;
    if (organizationId === null) return { kind: 'admin', id, accountId, role: entity.role };
    return endUserCaller(id, accountId, [{ organizationId, role: entity.role }]);
  }

  /** The current caller of an application; undefined if it does not exist or is deleted. */
  callerOfApplication(applicationId: string): Caller | undefined {
    const application = this.#registry.application(applicationId);
    return application && applicationCaller(application, this.roleOf(application.roleId, 'account'));
  }

  /** The current caller of a token; undefined when it, or all that its owner may do, has ended. */
  callerOfToken(tokenId: string): Caller | undefined {
    const token = this.#registry.accessToken(tokenId);
    const owner = token && (this.callerOf(token.ownerId) ?? this.callerOfApplication(token.ownerId));
    return owner && tokenCaller(owner, token);
  }

  /** The current caller behind a principal, whatever it is but a device. */
  callerOfPrincipal(principal: string): Caller | undefined {
    return (
      this.callerOf(principal) ??
      this.callerOfApplication(principal) ??
      this.callerOfEntity(principal) ??
      this.callerOfToken(principal)
    );
  }

  #readIdentity(userId: string): IdentityInForce | undefined {
    const found = this.#registry.rolesOf(userId);
    if (!found) return undefined;
    const { accountId, admin, memberships } = found;
    return {
      accountId,
      admin: admin && this.roleOf(admin.roleId, 'account'),
      memberships: memberships.map(({ organizationId, roleId }) => ({
        organizationId,
        role: this.roleOf(roleId, 'organization'),
      })),
    };
  }

  /** The role of this id, null for the default one. A role that is not there gives nothing. */
  roleOf(id: string | null, scope: RoleScope): Role {
    if (id === null) return defaultRoles[scope];
    let role = builtInRoles.get(id) ?? this.#roles.get(id);
    if (!role) {
      role = roleFrom(id, scope, this.#registry.role(id));
      this.#roles.set(id, role);
    }
    return role;
  }

  // Told after a commit, before the answer leaves

  organizationChanged(node: OrganizationNode): void {
    const { id, accountId, parentId, deleted } = node;
    this.#organizations.set(id, { id, accountId, parentId, deleted });
  }

  /** An id that is not an organization's has no effect. */
  organizationPurged(id: string): void {
    this.#organizations.delete(id);
  }

  deviceChanged(deviceId: string): void {
    this.#placements.delete(deviceId);
  }

  /** Any number of them. */
  devicesChanged(): void {
    this.#placements.clear();
  }

  channelsChanged(deviceTemplateId: string): void {
    this.#channels.delete(deviceTemplateId);
  }

  /** An identity, or with null an end-user that has none. */
  identityChanged(userId: string | null): void {
    if (userId !== null) this.#identities.delete(userId);
    this.#entities.clear();
  }

  /** A role gives other rights to all who have it. */
  rolesChanged(): void {
    this.#roles.clear();
    this.#identities.clear();
    this.#entities.clear();
  }

  /** Accounts have come or gone as a whole: everything is read again when it is asked for. */
  accountsChanged(): void {
    this.#placements.clear();
    this.#channels.clear();
    this.rolesChanged();
  }
}
