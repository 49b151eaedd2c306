/** Fleets: filters of devices under a name. Which devices match is never stored: it is what the filter says now. */
import { type SqlBool, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { Nullable } from '../../db/registry/records/columns.ts';
import { fleetColumns } from '../../db/registry/records/fleets.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readChanges,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { readNames } from '../entity/expand.ts';
import { entityRoutes } from '../entity/kind.ts';
import { list } from '../entity/list.ts';
import { filterText, type ListQuery } from '../entity/list-query.ts';
import { type RowSlices, showSlices } from '../entity/row-slices.ts';
import {
  change,
  demandInto,
  demandLive,
  demandReference,
  insert,
  recover,
  stamp,
  trash,
  writeAs,
} from '../entity/verbs.ts';
import { sendItems, streamed } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import type { RegistryContext } from './context.ts';
import { deviceListing, deviceShape, showDevice } from './devices/device.ts';
import { compileDeviceFilter } from './devices/filter.ts';
import { compileFleet, compileFleets, type Fleet } from './devices/fleet.ts';
import { searchDevices } from './devices/search.ts';

const maxPerAccount = 1000;
/** Fleets of a page whose devices are counted, and devices of a preview. */
const maxCounted = 100;
const previewed = 20;
const tag = 'Fleets';

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(fleetColumns) });
const updateBody = Type.Object(changeProperties(fleetColumns));
export const fleetShape = Type.Object({
  ...commonShape,
  ...shownProperties(fleetColumns),
  problem: Nullable(Type.String({ description: 'What of the filter is unknown now: it counts as without a value.' })),
  deviceCount: Type.Optional(Type.Integer()),
});
const countable = ['devices'] as const;
type Expand = { count?: string; pageSize?: number };

const fleetListing = listingOf('fleets', fleetColumns, { reach: 'organizationId' });
const showColumns = showing(fleetColumns);

/** Counts that are made before rows are shown. */
const counts = new WeakMap<Fleet, number>();

export function fleetRoutes(app: App, ctx: RegistryContext): void {
  entityRoutes(app, ctx, {
    path: '/fleets',
    tag,
    entity: 'fleet',
    wrapper: 'fleet',
    plural: 'fleets',
    shape: fleetShape,
    listing: fleetListing,
    expand: {
      query: { count: Type.Optional(Type.String({ description: `Comma-separated: ${countable.join(', ')}` })) },
      check: (_, query) => checkCount(query),
    },
    prepare: (caller, rows, query) => prepareFleets(ctx, caller, rows, query),
    create: {
      description: 'With organizationId it holds devices in that organization and below it, and is for people of it.',
      body: createBody,
      errors: ['unknownReference', 'notUnique'],
      run: (caller, body) => createFleet(ctx, caller, body),
    },
    list: { page: (caller, query) => page(ctx, caller, query) },
    update: {
      body: updateBody,
      errors: ['notUnique'],
      run: (caller, before, version, body) => updateFleet(ctx, caller, demandLive(before), version, body),
    },
    remove: { errors: ['constraint'], run: (caller, before, version) => deleteFleet(ctx, caller, before, version) },
    trash: {
      errors: ['unknownReference', 'notUnique'],
      recover: (caller, before, version) => recoverFleet(ctx, caller, before, version),
    },
  });
  previewRoute(app, ctx);
}

function previewRoute(app: App, ctx: RegistryContext): void {
  app.post(
    '/fleets/preview',
    {
      config: { right: ['read', 'device'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags: [tag],
        operationId: 'previewFleet',
        summary: 'See which devices a fleet would hold, without making it',
        description: `How many devices match, and the first ${previewed} of them.`,
        body: Type.Object({ accountId: Type.String(), filter: filterText }),
        response: {
          200: streamed(
            Type.Object(
              {
                preview: Type.Object(
                  { count: Type.Integer(), devices: Type.Array(deviceShape, { maxItems: previewed }) },
                  { title: 'FleetPreview' },
                ),
              },
              { title: 'FleetPreviewAnswer', description: 'Nothing was made.' },
            ),
          ),
        },
      },
    },
    async (request, reply) => {
      const { caller, body } = request;
      const { accountId } = body;
      ctx.access.demandAccount(caller, accountId);
      if (caller.kind === 'station') throw invalid('filter', 'is not for stations');
      const filter = await compileDeviceFilter(ctx, caller, body.filter);
      const { rows, meta } = await list(ctx, caller, deviceListing, { accountId, pageSize: previewed, filter });
      const devices = rows ? showSlices(rows, (current) => (row) => showDevice(ctx, current, row)) : noItems;
      return sendItems(reply, `{"preview":{"count":${meta?.count ?? 0},"devices":[`, devices, ']}}');
    },
  );
}

async function* noItems() {}

/** The caller as it reads devices. @throws PlatformError 403/21 where it reads none. */
function readerOf({ access }: RegistryContext, caller: Caller): Caller {
  access.demand(caller, 'read', 'device');
  return access.narrow(caller, 'read', 'device');
}

function isCounted({ count }: Expand): boolean {
  return readNames('count', count, countable).has('devices');
}

/** @throws PlatformError 400/106 for a page whose counts would take too long. */
function checkCount(query: Expand): void {
  if (isCounted(query) && (query.pageSize ?? 0) > maxCounted)
    throw invalid('pageSize', `is at most ${maxCounted} with count`);
}

async function page(ctx: RegistryContext, caller: Caller, query: ListQuery) {
  const { rows, meta } = await list(ctx, caller, fleetListing, query);
  return { rows: rows && isCounted(query) ? countedBefore(ctx, rows) : rows, meta };
}

/** Rows are shown in one turn for all accounts: their devices, which may take long, are counted before it. */
function countedBefore(ctx: RegistryContext, rows: RowSlices<Fleet>): RowSlices<Fleet> {
  return async function* (answer) {
    for await (const slice of rows(answer)) {
      for (const row of slice.rows) counts.set(row, await countDevices(ctx, slice.caller, row));
      yield slice;
    }
  };
}

/** How many of the devices that the caller reads are in a fleet now. @throws PlatformError as readerOf. */
async function countDevices(ctx: RegistryContext, caller: Caller, fleet: Fleet): Promise<number> {
  const reader = readerOf(ctx, caller);
  const { filter } = await compileFleet(ctx, reader, fleet);
  const query = { accountId: caller.accountId, filter };
  return (await searchDevices(ctx, { caller: reader, listing: deviceListing, query, state: 'live' })).count;
}

/** How rows are shown: what is wrong with the filters is found for all of them at once. */
export async function prepareFleets(ctx: RegistryContext, caller: Caller, rows: Fleet[], query: Expand) {
  const kept = await compileFleets(ctx, ctx.access.narrow(caller, 'read', 'device'), rows);
  const problems = new Map(rows.map(({ id }, at) => [id, kept[at]?.problem ?? null]));
  if (isCounted(query))
    for (const row of rows) if (!counts.has(row)) counts.set(row, await countDevices(ctx, caller, row));
  return (row: Fleet) => ({
    ...showCommon(row),
    ...showColumns(row),
    problem: problems.get(row.id) ?? null,
    ...(isCounted(query) && { deviceCount: counts.get(row) }),
  });
}

async function showFleet(ctx: RegistryContext, caller: Caller, row: Fleet) {
  return (await prepareFleets(ctx, caller, [row], {}))(row);
}

/** @throws PlatformError 400/106 for what is no filter of devices. */
async function checkFilter(ctx: RegistryContext, caller: Caller, filter: string): Promise<void> {
  await compileDeviceFilter(ctx, ctx.access.narrow(caller, 'read', 'device'), filter);
}

/** @throws PlatformError 403/21 for a fleet of the account by others, 400/102 for an organization, 400/106 for one too many. */
async function createFleet(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  const { organizationId = null } = body;
  if (organizationId === null && !isAccountWide(caller))
    throw new PlatformError('forbidden', { message: 'Your fleets are of an organization: give organizationId.' });
  if (organizationId !== null && !ctx.access.reaches(caller, caller.accountId, organizationId))
    throw unknownReference('organizationId');
  await checkFilter(ctx, caller, body.filter);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandInto(tx, caller, 'organizationId', organizationId);
    await demandPlace(tx, caller.accountId, organizationId);
    const made = await insert(tx, 'fleets', { ...stamp(ctx.clock, caller), ...readNew(fleetColumns, body) });
    await demandRoom(tx, caller.accountId);
    return made;
  });
  return showFleet(ctx, caller, row);
}

/** A filter that stays is not checked again: what it names may be gone. @throws PlatformError as change, 400/106. */
async function updateFleet(
  ctx: RegistryContext,
  caller: Caller,
  before: Fleet,
  version: number,
  body: Static<typeof updateBody>,
) {
  if (body.filter !== undefined && body.filter !== before.filter) await checkFilter(ctx, caller, body.filter);
  const changes = readChanges(fleetColumns, body);
  const row = await writeAs(ctx, caller, ['fleets', before.id], (tx) =>
    change(tx, 'fleets', before.id, version, { caller, clock: ctx.clock }, changes),
  );
  return showFleet(ctx, caller, row);
}

/** @throws PlatformError as trash, and 400/104 for a fleet that a rollout needs. */
async function deleteFleet(ctx: RegistryContext, caller: Caller, { id, accountId }: Fleet, version: number) {
  const row = await writeAs(ctx, caller, ['fleets', id], async (tx) => {
    const trashed = await trash(tx, 'fleets', id, version, ctx.clock);
    const rollouts = tx.selectFrom('firmwareRollouts').select('id').where('accountId', '=', accountId);
    const needs = sql<SqlBool>`"target" ->> 'fleetId' = ${id}`;
    if (await rollouts.where('finished', 'is', null).where(needs).limit(1).executeTakeFirst())
      throw new PlatformError('constraint', { message: 'A rollout that has not ended is to this fleet.' });
    return trashed;
  });
  return showFleet(ctx, caller, row);
}

/** @throws PlatformError as recover, 400/102 for an organization that is gone, 400/106 for one fleet too many. */
async function recoverFleet(ctx: RegistryContext, caller: Caller, { id, organizationId }: Fleet, version: number) {
  const row = await writeAs(ctx, caller, ['fleets', id], async (tx) => {
    await demandPlace(tx, caller.accountId, organizationId);
    const recovered = await recover(tx, 'fleets', id, version, { caller, clock: ctx.clock });
    await demandRoom(tx, caller.accountId);
    return recovered;
  });
  return showFleet(ctx, caller, row);
}

async function demandPlace(tx: Tx, accountId: string, organizationId: string | null): Promise<void> {
  if (organizationId !== null) await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
}

/** Inside the transaction that has added one. @throws PlatformError 400/106. */
async function demandRoom(tx: Tx, accountId: string): Promise<void> {
  const live = tx.selectFrom('fleets').where('accountId', '=', accountId).where('deleted', 'is', null);
  const { count } = await live.select(sql<number>`count(*)`.as('count')).executeTakeFirstOrThrow();
  if (count > maxPerAccount) throw invalid('accountId', `has ${maxPerAccount} fleets, which is the maximum`);
}
