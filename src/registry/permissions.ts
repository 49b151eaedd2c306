/** May they, and why: asks the functions that decide, for a caller who is somebody else. */

import { type Static, Type } from 'typebox';
import { findEntity } from '../../db/registry/entities.ts';
import { type EntityTable, oneOf, type Row } from '../../db/registry/records.ts';
import { maxPath, placeOf } from '../core/access.ts';
import { applicationCaller, type Caller, endUserCaller, isAccountWide, type Station } from '../core/caller.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { type Action, type EntityWithRights, type Right, type Role, roleScopes } from '../core/rights.ts';
import { canonicalTopic, controlTopic, parseTopic } from '../core/topics.ts';
import type { App } from '../http/app.ts';
import { readIdentity } from '../identity/grants.ts';
import type { RegistryContext } from './context.ts';
import { hasFirstOrganizationsLeft, isAttached } from './organizations.ts';

/** The kinds that can be asked for, and where they stand. */
const tables = {
  device: 'devices',
  fleet: 'fleets',
  endUser: 'endUsers',
  organization: 'organizations',
  deviceTemplate: 'deviceTemplates',
  endUserTemplate: 'endUserTemplates',
  organizationTemplate: 'organizationTemplates',
  channelTemplate: 'channelTemplates',
  customField: 'customFields',
  accountUser: 'accountUsers',
  application: 'applications',
  identityProvider: 'identityProviders',
  role: 'roles',
  bridge: 'bridges',
  mqttCertificate: 'certificates',
  certificateAuthority: 'certificateAuthorities',
  enrollmentGroup: 'enrollmentGroups',
  firmwarePackage: 'firmwarePackages',
  firmwareRollout: 'firmwareRollouts',
} as const satisfies Record<EntityWithRights, EntityTable>;
type Kind = keyof typeof tables;
const kinds = Object.keys(tables) as Kind[];
const placed: readonly Kind[] = ['device', 'fleet', 'endUser', 'organization'];

/** Every rule that an answer names; docs/permissions.md says what each means, and they stay as they are. */
const rules = [
  'account-wide',
  'within an organization',
  'own channel',
  'control topic',
  'own device',
  'made by the station',
  'first organization',
  'wildcard',
  'principal in the trash',
  'principal disabled',
  'role may not do this',
  'outside the reach',
  'in the trash',
  'own organization',
  'first organizations used up',
  'other account',
  'no channel topic',
  'no such device',
  'no such channel',
  'service channel',
  'matches nothing in reach',
  'malformed topic',
] as const;
type Rule = (typeof rules)[number];

const body = Type.Object({
  principal: Type.Object({
    type: oneOf(['device', 'endUser', 'accountUser', 'user', 'application']),
    id: Type.String({ description: 'A user is an identity, with all its end-users; an endUser is that entity alone.' }),
  }),
  action: oneOf(['publish', 'subscribe', 'read', 'update', 'create', 'delete']),
  topic: Type.Optional(Type.String({ maxLength: 65_535, description: 'Of a publish; or the filter of a subscribe.' })),
  entity: Type.Optional(
    Type.Object({
      type: oneOf(kinds),
      id: Type.Optional(
        Type.Unsafe<string | null>({
          type: ['string', 'null'],
          description: 'Of a create: the organization in which it would stand, null for none.',
        }),
      ),
    }),
  ),
});
type Question = Static<typeof body>;

const answerShape = Type.Object(
  {
    allowed: Type.Boolean(),
    rule: oneOf(rules),
    path: Type.Array(Type.String(), {
      maxItems: maxPath,
      description: 'The organizations from the one of the principal down to the one in question.',
    }),
    role: Type.Optional(
      Type.Object(
        { id: Type.String(), name: Type.String(), scope: oneOf(roleScopes) },
        { description: 'The role that gives the right, or does not; of an end-user where it counts.' },
      ),
    ),
  },
  { description: 'Whether it is allowed, and the rule that decides.' },
);
type Answer = Static<typeof answerShape>;

/** POST /permissions/explain. */
export function permissionRoutes(app: App, ctx: RegistryContext): void {
  app.post(
    '/permissions/explain',
    {
      config: { right: ['read', 'permission'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags: ['Permissions'],
        operationId: 'explainPermission',
        summary: 'Explain whether a caller may do something',
        description: 'Publish and subscribe are asked of a topic, everything else of an entity.',
        body,
        response: { 200: answerShape },
      },
    },
    (request) => explain(ctx, request.caller, request.body),
  );
}

/**
 * Whether a principal of the caller's account may do something there now, connected or not.
 * @throws PlatformError 403/21; 404/100 for a principal or an entity that is not there; 400/106 for half a question.
 */
export async function explain(ctx: RegistryContext, caller: Caller, question: Question): Promise<Answer> {
  const { action, topic, entity } = question;
  const ofTopic = action === 'publish' || action === 'subscribe';
  if (ofTopic ? topic === undefined : topic !== undefined)
    throw invalid('topic', ofTopic ? 'is required for publish and subscribe' : 'is for publish and subscribe only');
  if (ofTopic ? entity !== undefined : entity === undefined)
    throw invalid('entity', ofTopic ? 'is for read, update, create and delete only' : 'is required for this action');
  const { access } = ctx;
  const { accountId } = caller;
  const { principal, blocked } = await findPrincipal(ctx, accountId, question.principal);
  const right: Right = [action, entity?.type ?? 'device'];
  const narrowed = access.narrow(principal, ...right);
  const answer =
    ofTopic || entity === undefined
      ? explainTopic(ctx, narrowed, action as 'publish' | 'subscribe', topic ?? '')
      : await explainEntity(ctx, narrowed, action, entity);
  if (blocked) return refused(blocked);
  const role = roleBehind(principal, right, answer.path);
  return { ...answer, ...(role && { role: { id: role.id, name: role.name, scope: role.scope } }) };
}

/** The role that decides: of an end-user the one where `path` begins, or else the first of its roles. */
function roleBehind(principal: Caller, [action, kind]: Right, [root]: readonly string[]): Role | undefined {
  if (isAccountWide(principal)) return principal.role;
  if (principal.kind !== 'endUser') return undefined;
  const { memberships } = principal;
  const giving = memberships.find(
    ({ organizationId, role }) => organizationId === root && role.rights[kind]?.includes(action),
  );
  return (giving ?? memberships[0])?.role;
}

/** The caller as it would be in a request; entities in the trash cannot call. @throws PlatformError 404/100. */
async function findPrincipal(
  { access, registry }: RegistryContext,
  accountId: string,
  { type, id }: Question['principal'],
): Promise<{ principal: Caller; blocked?: Rule | undefined }> {
  const ofAccount = <R extends { accountId: string }>(one: R | undefined): R => {
    if (one?.accountId !== accountId) throw new PlatformError('notFound');
    return one;
  };
  const db = registry.query;
  const blockOf = (deleted: string | null): Rule | undefined =>
    deleted === null ? undefined : 'principal in the trash';
  /** A person may be disabled, whatever it is. */
  const blockOfPerson = (deleted: string | null) =>
    blockOf(deleted) ?? (access.callerOfEntity(id) ? undefined : 'principal disabled');
  if (type === 'user') {
    const principal = access.callerOf(id);
    if (principal) return { principal: ofAccount(principal) };
    ofAccount(await readIdentity(db, id));
    return { principal: { kind: 'newcomer', id, accountId }, blocked: 'principal disabled' };
  }
  if (type === 'device') {
    const { deleted } = ofAccount(access.placement(id));
    return { principal: { kind: 'device', id, accountId }, blocked: blockOf(deleted) };
  }
  if (type === 'endUser') {
    const { userId, organizationId, roleId, deleted } = ofAccount(await findEntity(db, 'endUsers', id));
    const membership = { organizationId, role: access.roleOf(roleId, 'organization') };
    const principal = endUserCaller(userId ?? id, accountId, [membership]);
    return { principal, blocked: blockOfPerson(deleted) };
  }
  if (type === 'accountUser') {
    const { userId, roleId, deleted } = ofAccount(await findEntity(db, 'accountUsers', id));
    const role = access.roleOf(roleId, 'account');
    return { principal: { kind: 'admin', id: userId, accountId, role }, blocked: blockOfPerson(deleted) };
  }
  const application = ofAccount(await findEntity(db, 'applications', id));
  const principal = applicationCaller(application, access.roleOf(application.roleId, 'account'));
  if (!principal) throw new PlatformError('notFound');
  return { principal, blocked: blockOf(application.deleted) };
}

function explainTopic(ctx: RegistryContext, principal: Caller, action: 'publish' | 'subscribe', given: string): Answer {
  const topic = canonicalTopic(given);
  const decision = ctx.publisher.decide(principal, action, topic);
  if (decision === 'malformed') return refused('malformed topic');
  if (decision === 'refused') return refused(whyRefused(ctx, principal, action, topic));
  const named = parseTopic(ctx.config.topicRoot, topic);
  if (!named) {
    const direction = action === 'publish' ? 'svc' : 'cln';
    const isControl = topic === controlTopic(ctx.config.controlRoot, principal.id, direction);
    return { allowed: true, rule: isControl ? 'control topic' : 'wildcard', path: [] };
  }
  if (principal.kind === 'device') return { allowed: true, rule: 'own channel', path: [] };
  return allowedAt(ctx, principal, ctx.access.placement(named.deviceId)?.organizationId ?? null);
}

/** The first of the conditions of a topic that does not hold. */
function whyRefused(
  { access, config }: RegistryContext,
  principal: Caller,
  action: 'publish' | 'subscribe',
  topic: string,
): Rule {
  if (!access.may(principal, action, 'device')) return 'role may not do this';
  const named = parseTopic(config.topicRoot, topic);
  if (!named) return action === 'subscribe' && /[+#]/.test(topic) ? 'matches nothing in reach' : 'no channel topic';
  if (named.accountId !== principal.accountId) return 'other account';
  const device = access.placement(named.deviceId);
  if (device?.accountId !== principal.accountId) return 'no such device';
  const isReached =
    principal.kind === 'device'
      ? device.id === principal.id
      : access.reaches(principal, device.accountId, device.organizationId);
  if (!isReached) return 'outside the reach';
  if (device.deleted !== null) return 'in the trash';
  return access.channelOf(device.deviceTemplateId, named.channel) ? 'service channel' : 'no such channel';
}

async function explainEntity(
  ctx: RegistryContext,
  principal: Caller,
  action: Exclude<Action, 'publish' | 'subscribe'>,
  { type, id = null }: NonNullable<Question['entity']>,
): Promise<Answer> {
  const { access } = ctx;
  if (action === 'create') return explainCreate(ctx, principal, type, id);
  const table: EntityTable = tables[type];
  const row = id === null ? undefined : await findEntity(ctx.registry.query, table, id);
  if (!row || row.accountId !== principal.accountId) throw new PlatformError('notFound');
  if (!access.may(principal, action, type)) return refused('role may not do this');
  if (principal.kind === 'device') return explainOwn(ctx, principal, row);
  if (principal.kind === 'station') return explainMade(ctx, principal, row as Row<'devices'>);
  const place = placeOf(table, row);
  if (!access.reaches(principal, row.accountId, place)) return refused('outside the reach');
  if (row.deleted !== null) return refused('in the trash');
  if (type === 'organization' && action === 'delete' && isAttached(principal, row.id))
    return refused('own organization');
  return allowedAt(ctx, principal, place);
}

/** A device changes itself, on `_set/fields`. */
function explainOwn({ access }: RegistryContext, principal: Caller, { id, deleted }: Row<EntityTable>): Answer {
  if (access.reachableDevice(principal, id, 'update')) return { allowed: true, rule: 'own device', path: [] };
  return refused(deleted !== null && id === principal.id ? 'in the trash' : 'outside the reach');
}

/** A station reaches the devices that it has made, while they stand where it puts them. */
function explainMade({ access }: RegistryContext, principal: Station, device: Row<'devices'>): Answer {
  if (!access.reachesDevice(principal, device)) return refused('outside the reach');
  return device.deleted === null ? madeByStation : refused('in the trash');
}

async function explainCreate(ctx: RegistryContext, principal: Caller, type: Kind, id: string | null): Promise<Answer> {
  const { access, registry } = ctx;
  const { accountId } = principal;
  if (id !== null && !placed.includes(type)) throw invalid('entity.id', `a new ${type} cannot be in an organization`);
  if (id === null && type === 'endUser') throw invalid('entity.id', 'a new endUser must be in an organization');
  const organization = id === null ? undefined : await findEntity(registry.query, 'organizations', id);
  if (id !== null && organization?.accountId !== accountId) throw new PlatformError('notFound');
  if (!access.may(principal, 'create', type)) return refused('role may not do this');
  if (principal.kind === 'station')
    return id === principal.organizationId ? madeByStation : refused('outside the reach');
  if (principal.kind === 'newcomer' && id === null) {
    const isLeft = await hasFirstOrganizationsLeft(registry.query, principal);
    return isLeft ? { allowed: true, rule: 'first organization', path: [] } : refused('first organizations used up');
  }
  // One in the trash is out of the tree: nobody but an admin would be told so.
  const isDeleted = organization !== undefined && organization.deleted !== null;
  if (isDeleted && isAccountWide(principal)) return refused('in the trash');
  return access.reaches(principal, accountId, id) ? allowedAt(ctx, principal, id) : refused('outside the reach');
}

const madeByStation: Answer = { allowed: true, rule: 'made by the station', path: [] };

/** Allowed, of something that is in `organizationId`. */
function allowedAt({ access }: RegistryContext, principal: Caller, organizationId: string | null): Answer {
  if (principal.kind !== 'endUser') return { allowed: true, rule: 'account-wide', path: [] };
  const path = access.pathWithin(organizationId, principal.organizationIds);
  return { allowed: true, rule: 'within an organization', path };
}

function refused(rule: Rule): Answer {
  return { allowed: false, rule, path: [] };
}
