/**
 * What the groups of a provider give their members: an account user or end-users, and their roles. Only what mappings have
 * made is changed and removed. Somebody whom an admin has made stays as it is.
 */
import type { Tx } from '../../../db/registry/index.ts';
import type { Mapping } from '../../../db/registry/records/identity.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { unknownReference } from '../../core/errors.ts';
import { defaultRoles, type RoleScope } from '../../core/rights.ts';
import { defaultsOf, type Fields } from '../../entity/fields.ts';
import { giveRole, isMore, shownRoleId } from '../../entity/giving.ts';
import { change, findLive, insert, stamp, trash } from '../../entity/verbs.ts';
import type { AuditEvent } from '../../operations/audit/events.ts';
import type { Audit } from '../../operations/audit/index.ts';
import { checkPassword, type Ended, endVoided, type Grant } from '../grants.ts';
import { demandAdmin } from '../identities.ts';
import { demandMembershipRoom } from '../memberships.ts';
import type { Sessions } from '../sessions/sessions.ts';

type Provider = Row<'identityProviders'>;
type MappingServices = {
  clock: Clock;
  audit: Audit;
  fields: Fields;
  config: Pick<Config, 'limits'>;
  sessions: Sessions;
};

/** What somebody is to be: in the account, or in organizations, with the ids of the roles. */
export interface WantedRoles {
  accountRole: string | undefined;
  byOrganization: ReadonlyMap<string, string>;
}

/** What a change has made otherwise, to be told after the commit. */
export interface Mapped {
  accountId: string;
  userId: string;
  /** The account users and end-users that have come, gone or got another role. */
  entityIds: readonly string[];
  ended: Ended;
}

/** The provider as the one who makes and changes people. */
export function providerCaller({ id, accountId }: Provider, address?: string): Caller {
  return { kind: 'identityProvider', id, accountId, ...(address !== undefined && { address }) };
}

export function mappingsOf(provider: Pick<Provider, 'mappings'>): Mapping[] {
  return JSON.parse(provider.mappings) as Mapping[];
}

/** @throws PlatformError 400/102 for a role or an organization that is not there, 403/21 for a right that the caller lacks. */
export async function demandMappings(tx: Tx, caller: Caller, mappings: readonly Mapping[]): Promise<void> {
  for (const { roleId, organizationId } of mappings) {
    if (organizationId !== null && !(await findLive(tx, 'organizations', caller.accountId, organizationId)))
      throw unknownReference('organizationId');
    await giveRole(tx, caller, organizationId === null ? 'account' : 'organization', roleId, organizationId);
  }
}

/** What the mappings say of a member of these groups. */
export async function wantedOf(tx: Tx, provider: Provider, groups: readonly string[]): Promise<WantedRoles> {
  const all = new Set(groups);
  const fitting = mappingsOf(provider).filter(({ group }) => all.has(group));
  const byOrganization = new Map<string, string>();
  for (const { organizationId, roleId } of fitting)
    if (organizationId !== null && !byOrganization.has(organizationId)) byOrganization.set(organizationId, roleId);
  const named = [...byOrganization.keys()];
  const organizations = tx.selectFrom('organizations').select('id').where('id', 'in', named);
  const live = new Set((await organizations.where('deleted', 'is', null).execute()).map(({ id }) => id));
  for (const id of named) if (!live.has(id)) byOrganization.delete(id);
  return { accountRole: fitting.find(({ organizationId }) => organizationId === null)?.roleId, byOrganization };
}

export function isNothing({ accountRole, byOrganization }: WantedRoles): boolean {
  return accountRole === undefined && byOrganization.size === 0;
}

/**
 * Makes a person what the mappings of a provider say. @throws PlatformError 400/104 when the last admin would go, 400/106
 * for more end-users than a person may have.
 */
export async function applyMappings(
  ctx: MappingServices,
  tx: Tx,
  provider: Provider,
  identity: Row<'identities'>,
  wanted: WantedRoles,
): Promise<Mapped> {
  return new Change(ctx, tx, provider, identity).make(wanted);
}

/** After the commit: what was lost has ended when it resolves. */
export async function endMapped(
  ctx: Parameters<typeof endVoided>[0] & { access: Access },
  by: Caller,
  { accountId, userId, entityIds, ended }: Mapped,
): Promise<void> {
  const { access, revocations, revoked } = ctx;
  access.identityChanged(userId);
  endVoided(ctx, by, ended);
  if (entityIds.length === 0) return;
  revoked.noteRevoked(by, await revocations.identityChanged(accountId, userId));
  for (const id of entityIds) revoked.noteRevoked(by, await revocations.entityChanged(accountId, id));
}

/** The id of a role as it is stored: null is the default one. */
function storedRole(roleId: string, scope: RoleScope): string | null {
  return roleId === defaultRoles[scope].id ? null : roleId;
}

/** One change of one person, in its transaction. */
class Change {
  readonly #ctx: MappingServices;
  readonly #tx: Tx;
  readonly #provider: Provider;
  readonly #identity: Row<'identities'>;
  readonly #by: Caller;
  readonly #entityIds: string[] = [];
  readonly #grants = new Set<Exclude<Grant, 'provider'>>();

  constructor(ctx: MappingServices, tx: Tx, provider: Provider, identity: Row<'identities'>) {
    this.#ctx = ctx;
    this.#tx = tx;
    this.#provider = provider;
    this.#identity = identity;
    this.#by = providerCaller(provider);
  }

  async make({ accountRole, byOrganization }: WantedRoles): Promise<Mapped> {
    const { id: userId, accountId } = this.#identity;
    const admin = await this.#live('accountUsers').executeTakeFirst();
    const endUsers = await this.#live('endUsers').execute();
    const isOurs = (row: { identityProviderId: string | null }) => row.identityProviderId === this.#provider.id;
    // An identity is never both: somebody who is one by hand does not become the other.
    const asAdmin = accountRole !== undefined && endUsers.every(isOurs);
    const isElsewhere = admin !== undefined && !isOurs(admin);
    const places = new Map(asAdmin || isElsewhere ? [] : byOrganization);
    for (const row of endUsers.filter(isOurs)) {
      const roleId = places.get(row.organizationId);
      places.delete(row.organizationId);
      if (roleId === undefined) await this.#remove('endUsers', row);
      else await this.#giveRole('endUsers', row, storedRole(roleId, 'organization'));
    }
    if (admin && isOurs(admin) && !asAdmin) await this.#remove('accountUsers', admin);
    else if (asAdmin && !isElsewhere) await this.#giveAccountRole(admin, storedRole(accountRole, 'account'));
    for (const [organizationId, roleId] of places)
      await this.#addEndUser(organizationId, storedRole(roleId, 'organization'));
    return { accountId, userId, entityIds: this.#entityIds, ended: await this.#checkPassword() };
  }

  #live<T extends 'accountUsers' | 'endUsers'>(table: T) {
    const rows = this.#tx.selectFrom(table as 'accountUsers' | 'endUsers').selectAll();
    const live = rows.where('userId', '=', this.#identity.id).where('deleted', 'is', null).orderBy('id');
    return live as unknown as { execute(): Promise<Row<T>[]>; executeTakeFirst(): Promise<Row<T> | undefined> };
  }

  async #giveAccountRole(admin: Row<'accountUsers'> | undefined, roleId: string | null): Promise<void> {
    if (admin) return this.#giveRole('accountUsers', admin, roleId);
    const { id: userId } = this.#identity;
    const common = stamp(this.#ctx.clock, this.#by);
    const row = { ...common, userId, roleId, identityProviderId: this.#provider.id };
    await this.#added('accountUsers', 'accountUser', await insert(this.#tx, 'accountUsers', row));
    await this.#record('accountUserCreated', 'accountUsers', row);
  }

  async #addEndUser(organizationId: string, roleId: string | null): Promise<void> {
    const { accountId, id: userId } = this.#identity;
    const templates = this.#tx.selectFrom('endUserTemplates').select('id').where('accountId', '=', accountId);
    const template = await templates.where('default', '=', 1).where('deleted', 'is', null).executeTakeFirstOrThrow();
    const row = await insert(this.#tx, 'endUsers', {
      ...stamp(this.#ctx.clock, this.#by),
      ...{ endUserTemplateId: template.id, organizationId, userId, roleId, identityProviderId: this.#provider.id },
      fields: defaultsOf(this.#ctx.fields, 'endUsers', template.id),
    });
    await demandMembershipRoom(this.#tx, this.#ctx.config.limits, row);
    await this.#added('endUsers', 'endUser', row);
  }

  async #added(
    table: 'accountUsers' | 'endUsers',
    grant: Exclude<Grant, 'provider'>,
    row: Row<'accountUsers' | 'endUsers'>,
  ): Promise<void> {
    this.#entityIds.push(row.id);
    this.#grants.add(grant);
    await this.#record('roleAssigned', table, row);
  }

  async #giveRole(table: 'accountUsers' | 'endUsers', before: Row<'accountUsers' | 'endUsers'>, roleId: string | null) {
    if (before.roleId === roleId) return;
    const tx = this.#tx;
    const scope = table === 'accountUsers' ? 'account' : 'organization';
    const row = await change(tx, table, before.id, 'latest', { caller: this.#by, clock: this.#ctx.clock }, { roleId });
    if (await isMore(tx, row.accountId, scope, roleId, before.roleId)) this.#grants.add('role');
    this.#entityIds.push(row.id);
    if (scope === 'account') await demandAdmin(tx, row.accountId);
    await this.#record('roleAssigned', table, row);
  }

  async #remove(table: 'accountUsers' | 'endUsers', row: Row<'accountUsers' | 'endUsers'>): Promise<void> {
    await trash(this.#tx, table, row.id, row.version, this.#ctx.clock);
    if (table === 'accountUsers') await demandAdmin(this.#tx, row.accountId);
    this.#entityIds.push(row.id);
    await this.#record(table === 'accountUsers' ? 'accountUserDeleted' : 'roleAssigned', table, row, true);
  }

  #record(
    event: AuditEvent,
    table: 'accountUsers' | 'endUsers',
    row: Row<'accountUsers' | 'endUsers'>,
    isGone = false,
  ): Promise<void> {
    const kind = table === 'accountUsers' ? 'accountUser' : 'endUser';
    const roleId = isGone ? null : shownRoleId(row.roleId, kind === 'accountUser' ? 'account' : 'organization');
    const details = {
      userId: row.userId,
      roleId,
      ...('organizationId' in row && { organizationId: row.organizationId }),
    };
    const { accountId, id } = row;
    const target = { kind, id } as const;
    return this.#ctx.audit.record(this.#tx, { event, outcome: 'success', accountId, actor: this.#by, target, details });
  }

  /** A password that others have chosen must not open what the groups give. */
  async #checkPassword(): Promise<Ended> {
    const grant = (['accountUser', 'endUser', 'role'] as const).find((one) => this.#grants.has(one));
    if (!grant) return { sessionIds: [], entityIds: [] };
    const { id: userId } = this.#identity;
    // An application may hold one that it asked for while this was no admin.
    if (grant === 'accountUser') await this.#tx.deleteFrom('mailedTokens').where('userId', '=', userId).execute();
    return checkPassword(this.#tx, this.#ctx, this.#identity, grant);
  }
}
