/** Which fleets hold a device, and why one does or does not. */
import { type SqlBool, sql } from 'kysely';
import { Type } from 'typebox';
import { longColumns } from '../../db/registry/records/by-table.ts';
import { Id } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { canonicalId } from '../core/ids.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { LongWork } from '../core/scheduler/long-work.ts';
import { pageOfTable } from '../entity/list.ts';
import { idParams, pageShape } from '../entity/routes.ts';
import { showSlices } from '../entity/row-slices.ts';
import { demandLive, findReached } from '../entity/verbs.ts';
import { sendItems, sendList, streamed } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import { metaWith, nameIgnored } from '../http/ignored-names.ts';
import type { RegistryContext } from './context.ts';
import { compileFleet, compileFleets, demandFleet, type Fleet, readableFleets } from './devices/fleet.ts';
import { fleetShape, prepareFleets } from './fleets.ts';

/** Fleets that are decided in one statement. */
const atOnce = 5;

const query = Type.Object({
  explain: Type.Optional(Type.String({ maxLength: 64, description: 'A fleet: why is the device in it, or why not?' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});
const term = Type.Object({
  term: Type.String({ description: 'A comparison, as it stands in the filter.' }),
  holds: Type.Boolean(),
  value: Type.Unknown({ description: 'What the device has.' }),
});
const explanation = Type.Object({
  fleetId: Id,
  matches: Type.Boolean(),
  terms: Type.Array(term, { maxItems: 51 }),
});
const forms = [pageShape('fleets', fleetShape, {}), Type.Object({ explanation }, { title: 'FleetExplanation' })];

/** GET /devices/{id}/fleets. */
export function fleetsOfDeviceRoutes(app: App, ctx: RegistryContext): void {
  app.get(
    '/devices/:id/fleets',
    {
      config: {
        right: ['read', 'device'],
        errors: ['notFound', 'deleted', 'unknownReference', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Fleets'],
        operationId: 'listFleetsOfDevice',
        summary: 'List the fleets that hold a device now, by name, or explain one',
        description: 'Of the fleets that the caller may read. With `explain` it answers with an `explanation` alone.',
        params: idParams,
        querystring: query,
        response: { 200: streamed(Type.Union(forms, { description: 'One page, or the explanation.' })) },
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const { explain, ...asked } = request.query;
      const ignored = nameIgnored(request, reply, query);
      const { id } = demandLive(findReached(ctx, caller, 'devices', params.id));
      if (explain !== undefined) {
        const { fleetId, matches, terms } = await explainFleet(ctx, caller, id, canonicalId(explain));
        const before = `{"explanation":{"fleetId":"${fleetId}","matches":${matches},"terms":[`;
        return sendItems(reply, before, () => itemsOf(terms), ']}}');
      }
      // In one text: a statement with a thousand ids takes long to make.
      const found = JSON.stringify(await fleetsWith(ctx, caller, id));
      const fleets = ctx.registry.query.selectFrom('fleets').where('deleted', 'is', null);
      const { rows, meta } = await pageOfTable(
        ctx,
        caller,
        { ...asked, sortOrder: 'asc' },
        {
          matching: fleets.where(sql<SqlBool>`"id" in (select value from json_each(${found}))`),
          key: 'id',
          order: ['name', 'id'],
          long: longColumns('fleets'),
          read: async (current, some: string[]) =>
            readableFleets(ctx, current, await fleets.selectAll().where('id', 'in', some).execute()),
          idOf: (fleet) => fleet.id,
        },
      );
      const results = showSlices(rows, (current, some) => prepareFleets(ctx, current, some, {}));
      return sendList(reply, 'fleets', { results, meta: metaWith(meta, ignored) });
    },
  );
}

async function* itemsOf<W>(all: readonly W[]): AsyncGenerator<W> {
  yield* all;
}

/** The ids of the fleets that hold a device, of those that the caller may read: some are decided at a time. */
async function fleetsWith(ctx: RegistryContext, caller: Caller, deviceId: string): Promise<string[]> {
  const { readers, registry } = ctx;
  const db = registry.query;
  const live = db.selectFrom('fleets').selectAll().where('accountId', '=', caller.accountId);
  const next = (after: string) => live.where('deleted', 'is', null).where('id', '>', after).orderBy('id').limit(atOnce);
  const found: string[] = [];
  const longWork = new LongWork();
  for (let rows: Fleet[] = await next('').execute(); rows.length > 0; ) {
    const readable = readableFleets(ctx, caller, rows);
    const conditions = (await compileFleets(ctx, caller, readable)).map(({ filter }) => filter.condition);
    const holding = sql<{ holds: string }>`select json_array(${sql.join(conditions)}) as "holds"
      from "devices" where "id" = ${deviceId} and "deleted" is null`;
    const [decided] = conditions.length > 0 ? await readers.read(laneOf(caller), holding.compile(db)) : [];
    const holds = JSON.parse(decided?.holds ?? '[]') as number[];
    found.push(...readable.flatMap(({ id }, at) => (holds[at] === 1 ? [id] : [])));
    await longWork.giveWay();
    rows = rows.length < atOnce ? [] : await next(rows.at(-1)?.id ?? '').execute();
  }
  return found;
}

/** @throws PlatformError 400/102 for a fleet that the caller may not read, 404/100 for a device that has gone. */
async function explainFleet(ctx: RegistryContext, caller: Caller, deviceId: string, id: string) {
  const { readers, registry } = ctx;
  const fleet = await demandFleet(ctx, caller, id, 'explain');
  const kept = await compileFleet(ctx, caller, fleet);
  const terms = kept.explain();
  const decision = sql<{ matches: number; holds: string; values: string }>`
    select ${kept.filter.condition} as "matches", json_array(${sql.join(terms.map(({ holds }) => holds))}) as "holds",
      json_array(${sql.join(terms.map(({ value }) => value))}) as "values"
    from "devices" where "id" = ${deviceId} and "deleted" is null`;
  const [decided] = await readers.read(laneOf(caller), decision.compile(registry.query));
  if (!decided) throw new PlatformError('notFound');
  const holds = JSON.parse(decided.holds) as number[];
  const values = JSON.parse(decided.values) as Array<string | null>;
  return {
    fleetId: fleet.id,
    matches: decided.matches === 1,
    terms: terms.map(({ term }, at) => ({
      term,
      holds: holds[at] === 1,
      value: JSON.parse(values[at] ?? 'null') as unknown,
    })),
  };
}
