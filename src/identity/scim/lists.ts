/** Lists of people and groups. Filters are decided row by row; what a filter demands of an index is looked up in it. */
import { type SqlBool, sql } from 'kysely';
import type { Row } from '../../../db/registry/records.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { Filter } from '../../entity/filters/parser.ts';
import type { IdentityContext } from '../context.ts';
import { demandedValue, fits } from './filters.ts';
import { maxMembers } from './groups.ts';
import { type Json, type ListRequest, type Provisioner, refused } from './protocol.ts';
import { groupResource, userResource } from './resources.ts';

/** A page: the rows of it, and how many there are in all. */
export interface FoundPage<R> {
  rows: R[];
  total: number;
}

type Group = Row<'scimGroups'> & { members: number };

/** Rows that are looked at in one step. */
const stepSize = 500;
/** What is compared as it is written. */
const exact = new Set(['id', 'externalid', 'location', 'resourcetype']);
const attributes = {
  isExact: ({ names }: { names: readonly string[] }) => exact.has((names.at(-1) ?? '').toLowerCase()),
};

/** @throws PlatformError 429 when too many read. */
export async function findPeople(
  ctx: IdentityContext,
  asked: Provisioner,
  { filter, startIndex, count }: ListRequest,
): Promise<FoundPage<Row<'scimUsers'>>> {
  const own = ctx.registry.query.selectFrom('scimUsers').where('identityProviderId', '=', asked.provider.id);
  if (!filter) {
    const { total } = await own.select((eb) => eb.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
    const page = own
      .selectAll()
      .orderBy('id')
      .limit(count)
      .offset(startIndex - 1);
    return { rows: count === 0 ? [] : await page.execute(), total: Number(total) };
  }
  const conditions = [
    demanded(filter, 'id', (id) => sql<SqlBool>`"id" = ${id}`),
    demanded(filter, 'externalId', (id) => withExternalId('scimUsers', asked, id)),
    demanded(filter, 'userName', (name) => sql<SqlBool>`"userNameKey" = ${name.toLowerCase()}`),
  ].filter((one) => one !== undefined);
  const email = demandedValue(filter, 'emails', 'value') ?? demandedValue(filter, 'emails');
  // JSON has no other form of such an address; SQLite is a hundred times faster than a look into each.
  const isPlain = email !== undefined && /^[\w.@+-]+$/.test(email);
  const mayFit = isPlain ? sql<SqlBool>`instr(lower("resource"), ${email.toLowerCase()}) > 0` : sql<SqlBool>`true`;
  const next = (after: string) =>
    conditions
      .reduce((rows, condition) => rows.where(condition), own.where('id', '>', after))
      .selectAll()
      .select(mayFit.as('mayFit'))
      .orderBy('id')
      .limit(stepSize)
      .execute();
  return decide(ctx, asked, next, { startIndex, count }, (row) => {
    if (!row.mayFit) return false;
    return fits(filter, userResource(row, asked.address, undefined), attributes);
  });
}

/** @throws PlatformError 400/invalidFilter for members that are not named, 429. */
export async function findGroups(
  ctx: IdentityContext,
  asked: Provisioner,
  { filter, startIndex, count }: ListRequest,
): Promise<FoundPage<Group>> {
  const own = ctx.registry.query.selectFrom('scimGroups').where('identityProviderId', '=', asked.provider.id);
  const members = sql<number>`(select count(*) from "scimMembers" where "groupId" = "scimGroups"."id")`.as('members');
  if (!filter) {
    const { total } = await own.select((eb) => eb.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
    const page = own
      .selectAll()
      .select(members)
      .orderBy('id')
      .limit(count)
      .offset(startIndex - 1);
    return { rows: withinMembers(count === 0 ? [] : await page.execute()), total: Number(total) };
  }
  const member = demandedValue(filter, 'members', 'value') ?? demandedValue(filter, 'members');
  if (member === undefined && names(filter, 'members'))
    throw refused('invalidFilter', 'Groups can be filtered by members.value eq "<id>".');
  const isMember = (id: string) => sql<SqlBool>`"id" in (select "groupId" from "scimMembers" where "memberId" = ${id})`;
  const conditions = [
    demanded(filter, 'id', (id) => sql<SqlBool>`"id" = ${id}`),
    demanded(filter, 'externalId', (id) => withExternalId('scimGroups', asked, id)),
    demanded(filter, 'displayName', (name) => sql<SqlBool>`"displayNameKey" = ${name.toLowerCase()}`),
    ...(member === undefined ? [] : [isMember(member)]),
  ].filter((one) => one !== undefined);
  const next = (after: string) =>
    conditions
      .reduce((rows, condition) => rows.where(condition), own.where('id', '>', after))
      .selectAll()
      .select(members)
      .orderBy('id')
      .limit(stepSize)
      .execute();
  const found = await decide(ctx, asked, next, { startIndex, count }, (row) => {
    const resource = groupResource(row, asked.address);
    return fits(filter, member === undefined ? resource : { ...resource, members: [{ value: member }] }, attributes);
  });
  return { ...found, rows: withinMembers(found.rows) };
}

/** Looked up by itself: in the order of ids SQLite would rather read everything of the provider. */
function withExternalId(table: 'scimUsers' | 'scimGroups', { provider }: Provisioner, id: string) {
  return sql<SqlBool>`"id" in (select "id" from ${sql.table(table)}
    where "identityProviderId" = ${provider.id} and "externalId" = ${id})`;
}

function demanded<C>(filter: Filter, name: string, condition: (value: string) => C): C | undefined {
  const value = demandedValue(filter, name);
  return value === undefined ? undefined : condition(value);
}

/** Whether a filter has anything to do with an attribute. */
function names(filter: Filter, name: string): boolean {
  if (filter.is === 'and' || filter.is === 'or') return filter.of.some((one) => names(one, name));
  if (filter.is === 'not') return names(filter.of, name);
  return filter.path.names[0]?.toLowerCase() === name;
}

/** Looks at all rows, a few at a time, in turns with other accounts. */
async function decide<R extends { id: string }>(
  { reads }: IdentityContext,
  { by }: Provisioner,
  next: (after: string) => Promise<R[]>,
  { startIndex, count }: Pick<ListRequest, 'startIndex' | 'count'>,
  isWanted: (row: R) => boolean,
): Promise<FoundPage<R>> {
  const work = new LongWork();
  const found: FoundPage<R> = { rows: [], total: 0 };
  for (let after: string | undefined = ''; after !== undefined; ) {
    const from: string = after;
    const rows: R[] = await reads.run(laneOf(by), stepSize, () => next(from));
    for (const row of rows) {
      await work.giveWay();
      if (!isWanted(row)) continue;
      found.total += 1;
      if (found.total >= startIndex && found.rows.length < count) found.rows.push(row);
    }
    after = rows.length < stepSize ? undefined : rows.at(-1)?.id;
  }
  return found;
}

/** The groups of a page, as far as their members are no more than an answer has; at least one. */
function withinMembers(rows: readonly Group[]): Group[] {
  let sum = 0;
  return rows.filter(({ members }, at) => {
    sum += members;
    return at === 0 || sum <= maxMembers;
  });
}

/** The groups of some people: what their resources show of them. */
export async function groupsOfPeople(ctx: IdentityContext, ids: readonly string[]): Promise<Map<string, Json[]>> {
  const memberships = ctx.registry.query
    .selectFrom('scimMembers')
    .innerJoin('scimGroups', 'scimGroups.id', 'scimMembers.groupId')
    .select(['memberId', 'groupId', 'displayName'])
    .where('memberId', 'in', ids)
    .limit(maxMembers);
  const all = new Map<string, Json[]>();
  for (const { memberId, groupId, displayName } of ids.length === 0 ? [] : await memberships.execute()) {
    const groups = all.get(memberId) ?? [];
    groups.push({ value: groupId, display: displayName, type: 'direct' });
    all.set(memberId, groups);
  }
  return all;
}

/** The members of a group, in slices. */
export async function* membersOf(ctx: IdentityContext, groupId: string): AsyncGenerator<Json> {
  for (let after: string | undefined = ''; after !== undefined; ) {
    const from: string = after;
    const rows = await ctx.registry.query
      .selectFrom('scimMembers')
      .innerJoin('scimUsers', 'scimUsers.id', 'scimMembers.memberId')
      .select(['memberId', 'userNameKey'])
      .where('groupId', '=', groupId)
      .where('memberId', '>', from)
      .orderBy('memberId')
      .limit(stepSize)
      .execute();
    for (const { memberId, userNameKey } of rows) yield { value: memberId, display: userNameKey, type: 'User' };
    after = rows.length < stepSize ? undefined : rows.at(-1)?.memberId;
  }
}
