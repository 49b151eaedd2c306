/** Groups of a provider and their members. What a group is mapped to, its members have before the answer. */
import type { Db, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { canonicalId, newId } from '../../core/ids.ts';
import type { AttributePath, Filter } from '../../entity/filters/parser.ts';
import type { IdentityContext } from '../context.ts';
import { propertyOf } from './filters.ts';
import {
  applyGroupRoles,
  demandLiveProvider,
  endFollowed,
  followFew,
  isMapped,
  noteRolesPending,
} from './following.ts';
import { type Operation, readKey, readPath } from './patch.ts';
import { badValue, type Ignored, isObject, type Json, type Provisioner, refused, taken } from './protocol.ts';
import { demandSchema, groupSchema, readOnly } from './schemas.ts';

type ScimGroup = Row<'scimGroups'>;
type Provider = Row<'identityProviders'>;

/** An answer has so many at most. */
export const maxMembers = 20_000;
const maxNameLength = 255;
/** Rows of one statement. */
const atOnce = 500;

/** What becomes of a group. Members are their ids: those that come, those that go, or all that it then has. */
interface Change {
  displayName?: string;
  externalId?: string | null;
  added: Set<string>;
  removed: Set<string>;
  /** Whether all go who are not in `added`. */
  clears: boolean;
}

const noChange = (): Change => ({ added: new Set(), removed: new Set(), clears: false });

/** What POST and PUT say of a group; `ignored` gets what no schema knows. @throws PlatformError 400/invalidValue */
export function readGroup(body: Json, ignored: Ignored): Change {
  demandSchema(body, groupSchema);
  const change = { ...noChange(), clears: true, externalId: null };
  for (const [key, value] of Object.entries(body)) if (!setAttribute(change, 'replace', key, value)) ignored.add(key);
  if (change.displayName === undefined) throw badValue('displayName is required.');
  return change;
}

/** @throws PlatformError 400 */
export function readGroupPatch(operations: readonly Operation[], ignored: Ignored): Change {
  const change = noChange();
  for (const { op, path, value } of operations) {
    if (path === undefined) {
      if (!isObject(value)) throw badValue('value must be an object where there is no path.');
      for (const [key, one] of Object.entries(value))
        if (!setAttribute(change, op, nameOf(readKey(key)?.path), one)) ignored.add(key);
      continue;
    }
    const { path: at, where } = readPath(path);
    const name = nameOf(at);
    if (where === undefined || name !== 'members') {
      if (!setAttribute(change, op, name, value)) ignored.add(path);
    } else if (op === 'remove') for (const id of membersIn(where)) remove(change, id);
    else throw refused('invalidPath', `${path} cannot be changed.`);
  }
  return change;
}

/** An attribute of groups; empty for one of another schema. */
function nameOf(at: AttributePath | undefined): string {
  const isOurs = at?.schema === undefined || at.schema.toLowerCase() === groupSchema.toLowerCase();
  return isOurs ? (at?.names.join('.').toLowerCase() ?? '') : '';
}

/** False for what no schema knows, which has no effect. */
function setAttribute(change: Change, op: Operation['op'], anyCase: string, value: unknown): boolean {
  const name = anyCase.toLowerCase();
  if (name === 'members') setMembers(change, op, value);
  else if (name === 'displayname') {
    if (op === 'remove') throw refused('mutability', 'displayName is required.');
    change.displayName = textOf('displayName', value);
  } else if (name === 'externalid') change.externalId = op === 'remove' || value === null ? null : textOf(name, value);
  else return readOnly.includes(name);
  return true;
}

function setMembers(change: Change, op: Operation['op'], value: unknown): void {
  const ids = [value ?? []].flat().map(memberId);
  if (ids.length > maxMembers) throw refused('tooMany', `A group has at most ${maxMembers} members.`);
  const isWhole = op === 'replace' || (op === 'remove' && (value === undefined || value === null));
  if (isWhole) Object.assign(change, { clears: true, added: new Set(), removed: new Set() });
  for (const id of ids)
    if (op === 'remove') remove(change, id);
    else {
      change.added.add(id);
      change.removed.delete(id);
    }
}

function remove({ added, removed }: Change, id: string): void {
  added.delete(id);
  removed.add(id);
}

function memberId(one: unknown): string {
  const id = isObject(one) ? propertyOf(one, 'value') : one;
  const type = isObject(one) ? propertyOf(one, 'type') : undefined;
  if (typeof type === 'string' && type.toLowerCase() === 'group')
    throw badValue('Groups within groups are not supported.');
  if (typeof id !== 'string' || id === '') throw badValue('A member needs a value, the id of a user.');
  return canonicalId(id);
}

function textOf(name: string, value: unknown): string {
  if (typeof value !== 'string' || value.trim() === '' || value.length > maxNameLength)
    throw badValue(`${name} must be a text of 1 to ${maxNameLength} characters.`);
  return value;
}

/** `members[value eq "…"]`. @throws PlatformError 400/invalidFilter for another filter. */
function membersIn(where: Filter): string[] {
  if (where.is === 'or') return where.of.flatMap(membersIn);
  const isId = where.is === 'eq' && where.path.names.join('.').toLowerCase() === 'value';
  if (!isId || typeof where.value !== 'string')
    throw refused('invalidFilter', 'Members are named as members[value eq "<id>"].');
  return [canonicalId(where.value)];
}

/** @throws PlatformError 404 for one of another provider. */
export async function findGroup(db: Db, providerId: string, id: string): Promise<ScimGroup> {
  const rows = db.selectFrom('scimGroups').selectAll().where('id', '=', id);
  const row = await rows.where('identityProviderId', '=', providerId).executeTakeFirst();
  if (!row) throw new PlatformError('notFound', { message: `There is no group ${id}.` });
  return row;
}

/** @throws PlatformError 400/invalidValue, 409/uniqueness, 400/104. */
export function createGroup(ctx: IdentityContext, asked: Provisioner, change: Change): Promise<ScimGroup> {
  return write(ctx, asked, 'created', async (tx, provider) => {
    const { id: identityProviderId, accountId } = provider;
    const { displayName = '', externalId = null } = change;
    const now = timestamp(ctx.clock);
    const row: ScimGroup = {
      ...{ id: newId(accountId), accountId, identityProviderId, displayName, externalId },
      ...{ displayNameKey: displayName.toLowerCase(), created: now, lastModified: now },
    };
    await demandFreeName(tx, row);
    await tx.insertInto('scimGroups').values(row).execute();
    await changeMembers(tx, row, change, isMapped(provider, row));
    return row;
  });
}

/** @throws PlatformError as createGroup, 404. */
export function changeGroup(ctx: IdentityContext, asked: Provisioner, id: string, change: Change): Promise<ScimGroup> {
  return write(ctx, asked, 'updated', async (tx, provider) => {
    const before = await findGroup(tx, provider.id, id);
    const { displayName = before.displayName, externalId = before.externalId } = change;
    const displayNameKey = displayName.toLowerCase();
    const row = { ...before, displayName, displayNameKey, externalId, lastModified: timestamp(ctx.clock) };
    await demandFreeName(tx, row);
    await tx.updateTable('scimGroups').set(row).where('id', '=', id).execute();
    const isRenamed = displayName !== before.displayName || externalId !== before.externalId;
    if (isRenamed && (isMapped(provider, before) || isMapped(provider, row))) await noteRolesPending(tx, provider, id);
    await changeMembers(tx, row, change, isMapped(provider, row));
    return row;
  });
}

/** @throws PlatformError 404, 400/104. */
export async function deleteGroup(ctx: IdentityContext, asked: Provisioner, id: string): Promise<void> {
  await write(ctx, asked, 'deleted', async (tx, provider) => {
    const row = await findGroup(tx, provider.id, id);
    if (isMapped(provider, row)) await noteRolesPending(tx, provider, id);
    await tx.deleteFrom('scimGroups').where('id', '=', id).execute();
    return row;
  });
}

/** One change of a group, and what follows for its members. */
async function write(
  ctx: IdentityContext,
  asked: Provisioner,
  what: string,
  work: (tx: Tx, provider: Provider) => Promise<ScimGroup>,
): Promise<ScimGroup> {
  const { by } = asked;
  // A group may have 20,000 members.
  const { row, followed } = await ctx.registry.longTransaction(async (tx) => {
    const provider = await demandLiveProvider(tx, asked.provider.id);
    const row = await work(tx, provider);
    const { accountId, id, displayName } = row;
    const target = { kind: 'identityProvider', id: provider.id } as const;
    const details = { change: what, group: displayName, groupId: id };
    await ctx.audit.record(tx, { event: 'scimChanged', outcome: 'success', accountId, actor: by, target, details });
    return { row, followed: await followFew(ctx, tx, provider) };
  });
  await endFollowed(ctx, by, followed);
  await applyGroupRoles(ctx, asked.provider.id, by);
  return row;
}

async function demandFreeName(tx: Tx, { id, identityProviderId, displayNameKey }: ScimGroup): Promise<void> {
  const named = tx.selectFrom('scimGroups').select('id').where('identityProviderId', '=', identityProviderId);
  const other = named.where('displayNameKey', '=', displayNameKey).where('id', '<>', id);
  if (await other.executeTakeFirst()) throw taken('There is a group with this displayName.');
}

/** Writes who comes and goes; `marks` says that their roles follow. @throws PlatformError 400/invalidValue for somebody whom nobody knows. */
async function changeMembers(tx: Tx, group: ScimGroup, change: Change, marks: boolean): Promise<void> {
  const { id: groupId, accountId, identityProviderId } = group;
  const { added, clears } = change;
  const members = () => tx.selectFrom('scimMembers').select('memberId').where('groupId', '=', groupId);
  const removed = clears
    ? (await members().execute()).map(({ memberId }) => memberId).filter((one) => !added.has(one))
    : [...change.removed];
  for (const some of partsOf(removed)) {
    const gone = tx.deleteFrom('scimMembers').where('groupId', '=', groupId).where('memberId', 'in', some);
    const left = await gone.returning('memberId').execute();
    if (marks)
      await markPeople(
        tx,
        left.map(({ memberId }) => memberId),
      );
  }
  for (const some of partsOf([...added])) {
    const people = tx.selectFrom('scimUsers').select('id').where('identityProviderId', '=', identityProviderId);
    const known = new Set((await people.where('id', 'in', some).execute()).map(({ id }) => id));
    const unknown = some.find((one) => !known.has(one));
    if (unknown !== undefined) throw badValue(`members: there is no user ${unknown}.`);
    const rows = some.map((memberId) => ({ groupId, memberId, accountId }));
    const inserted = tx
      .insertInto('scimMembers')
      .values(rows)
      .onConflict((conflict) => conflict.doNothing());
    const came = await inserted.returning('memberId').execute();
    if (marks)
      await markPeople(
        tx,
        came.map(({ memberId }) => memberId),
      );
  }
  const all = tx.selectFrom('scimMembers').select((eb) => eb.fn.countAll<number>().as('count'));
  const { count } = await all.where('groupId', '=', groupId).executeTakeFirstOrThrow();
  if (Number(count) > maxMembers) throw badValue(`A group has at most ${maxMembers} members.`);
}

async function markPeople(tx: Tx, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await tx.updateTable('scimUsers').set({ stale: 1 }).where('id', 'in', ids).execute();
}

function* partsOf(ids: readonly string[]): Generator<string[]> {
  for (let from = 0; from < ids.length; from += atOnce) yield ids.slice(from, from + atOnce);
}
