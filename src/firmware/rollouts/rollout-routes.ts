/** Rollouts over HTTP. */

import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { oneOf, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import { currentCaller } from '../../entity/current-caller.ts';
import { entityRoutes } from '../../entity/kind.ts';
import { pageOfTable } from '../../entity/list.ts';
import { entityResponse, idParams, listResponse, sendEntity } from '../../entity/routes.ts';
import { showSlices } from '../../entity/row-slices.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import { eventsAnswer, sendEvents } from '../../http/answers/events.ts';
import { ProgressStreams } from '../../http/answers/progress-streams.ts';
import { sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { isInsideBatch } from '../../http/batch.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { DownlinkContext } from '../context.ts';
import { cockpitOf } from './cockpit.ts';
import { previewRollout, previewShape } from './preview.ts';
import { revertRollout } from './revert.ts';
import {
  type Counts,
  countsOf,
  deliveryShape,
  deliveryStates,
  hasEnded,
  newRolloutShape,
  noCounts,
  rolloutBody,
  rolloutListing,
  rolloutShape,
  showDelivery,
  showRollout,
} from './rollout.ts';
import {
  cancelRollout,
  createRollout,
  pauseRollout,
  resumeRollout,
  retryRollout,
  showOne,
  targetCounts,
} from './rollouts.ts';
import { matchedBy } from './targets.ts';

const path = '/firmware/rollouts';
const tags = ['Firmware'];

const devicesQuery = Type.Object({
  state: Type.Optional(oneOf(deliveryStates)),
  sort: Type.Optional(
    oneOf(['failedFirst'], {
      description: 'Those that have failed or timed out come first; by id when it is left out.',
    }),
  ),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});
const one = (description: string) => entityResponse('firmwareRollout', rolloutShape, description);

export function firmwareRolloutRoutes(app: App, ctx: DownlinkContext): void {
  async function create(caller: Caller, body: Static<typeof rolloutBody>) {
    const row = await createRollout(ctx, caller, body);
    const matched = await matchedBy(ctx, row, body.target);
    return { ...(await showOne(ctx, row)), ...(matched && { matched }) };
  }

  async function prepare(_: Caller, rows: Row<'firmwareRollouts'>[]) {
    return showCounted(ctx, rows);
  }

  entityRoutes(app, ctx, {
    path,
    tag: 'Firmware',
    entity: 'firmwareRollout',
    wrapper: 'firmwareRollout',
    plural: 'firmwareRollouts',
    shape: rolloutShape,
    listing: rolloutListing,
    prepare,
    create: {
      summary: 'Roll a published package out to devices, in stages',
      description:
        'Which devices belong to a stage is fixed when it begins, spread evenly by a hash of their ids. A newer rollout takes the place of an older one for the same device. POST /firmware/rollouts/preview says before what it would do.',
      answer: 'What was made; it begins at `startAt`.',
      shape: newRolloutShape,
      errors: ['unknownReference'],
      bodyLimit: 1_048_576,
      body: rolloutBody,
      run: create,
    },
    read: {
      summary: 'Read a rollout, with how many devices are in each state',
      description:
        'Its counts show how many devices are in each state. `failures` says why devices have failed, `perMinute` how fast it goes, `stageEndsAt` when the next stage begins.',
      show: async (caller, row) => ({
        ...(await showCounted(ctx, [row]))(row),
        ...(await cockpitOf(ctx, caller, row)),
      }),
    },
    list: {
      summary: 'List rollouts, newest first',
      description: 'Returns one page. Filters are combined: a rollout must match all of them.',
    },
  });
  app.get(
    `${path}/:id/devices`,
    {
      config: {
        right: ['read', 'firmwareRollout'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags,
        operationId: 'getFirmwareRolloutDevices',
        summary: 'List the devices of the stages that have begun, and how far each has come',
        description: 'Returns one page. Filter by state, or sort by `failedFirst`, to find the devices that failed.',
        params: idParams,
        querystring: devicesQuery,
        response: listResponse('devices', deliveryShape),
      },
    },
    async (request, reply) => {
      const row = demandLive(findReached(ctx, request.caller, 'firmwareRollouts', request.params.id));
      const ignored = nameIgnored(request, reply, devicesQuery);
      const { rows, meta } = await listDevices(ctx, request.caller, row.id, request.query);
      const results = showSlices(rows, () => showDelivery);
      return sendList(reply, 'devices', { results, meta: metaWith(meta, ignored) });
    },
  );
  previewRoute(app, ctx);
  changes(app, ctx);
  revertRoute(app, ctx);
  events(app, ctx);
}

/** As lists and events show rollouts: how many devices each names, of which there may be 10,000. */
async function showCounted({ registry }: DownlinkContext, rows: readonly Row<'firmwareRollouts'>[]) {
  const ids = rows.map(({ id }) => id);
  const [counts, targets] = [await countsOf(registry.query, ids), await targetCounts(registry.query, ids)];
  return (row: Row<'firmwareRollouts'>) => showRollout(row, counts.get(row.id), targets.get(row.id) ?? 0);
}

async function listDevices(
  ctx: DownlinkContext,
  caller: Caller,
  rolloutId: string,
  { state, sort, ...query }: Static<typeof devicesQuery>,
) {
  const { query: db } = ctx.registry;
  const counts = (await countsOf(db, [rolloutId])).get(rolloutId) ?? noCounts();
  const ofRollout = db.selectFrom('firmwareDeliveries').where('rolloutId', '=', rolloutId);
  return pageOfTable(
    ctx,
    caller,
    { ...query, sortOrder: 'asc' },
    {
      matching: db.selectFrom(
        (state ? ofRollout.where('state', '=', state) : ofRollout)
          .select(['deviceId', 'message', hasNotFailed.as('hasNotFailed')])
          .as('deliveries'),
      ),
      count: state ? counts[state] : sumOf(counts),
      key: 'deviceId',
      order: sort ? ['hasNotFailed', 'deviceId'] : ['deviceId'],
      long: ['message'],
      read: async (current, some: string[]) => {
        demandLive(findReached(ctx, current, 'firmwareRollouts', rolloutId));
        return ofRollout.selectAll().where('deviceId', 'in', some).execute();
      },
      idOf: ({ deviceId }) => deviceId,
    },
  );
}

/** 0 or 1; an index has this expression. */
const hasNotFailed = sql<number>`(not "state" in ('failed', 'timedOut'))`;

function sumOf(counts: Counts): number {
  return deliveryStates.reduce((sum, state) => sum + counts[state], 0);
}

function changes(app: App, ctx: DownlinkContext): void {
  for (const [verb, change, summary, description] of [
    [
      'pause',
      pauseRollout,
      'Pause a rollout: nothing new is offered, and what has begun goes on',
      'Continue it with resumeFirmwareRollout.',
    ],
    [
      'resume',
      resumeRollout,
      'Go on with a rollout; a further failure pauses it again while too many have failed',
      'Works for a rollout that was paused, or that paused itself after failures.',
    ],
    [
      'cancel',
      cancelRollout,
      'Cancel a rollout: devices that have not ended lose their offers',
      'Cannot be undone. Devices that already install the firmware may finish it.',
    ],
    [
      'retry',
      retryRollout,
      'Give the failed and timed-out devices of a rollout another try, with a new deadline',
      'Devices that succeeded are not affected.',
    ],
  ] as const)
    app.post(
      `${path}/:id/${verb}`,
      {
        config: { right: ['update', 'firmwareRollout'], errors: ['notFound', 'deleted', 'forbidden'], sends: ['etag'] },
        schema: {
          tags,
          operationId: `${verb}FirmwareRollout`,
          summary,
          description,
          params: idParams,
          response: one('As it is now.'),
        },
      },
      async ({ caller, params }, reply) => {
        demandLive(findReached(ctx, caller, 'firmwareRollouts', params.id));
        await change(ctx, caller, params.id);
        // As it is after everything that the change has ended.
        const row = findReached(ctx, caller, 'firmwareRollouts', params.id);
        return sendEntity(reply, 'firmwareRollout', await showOne(ctx, row));
      },
    );
}

function previewRoute(app: App, ctx: DownlinkContext): void {
  app.post(
    `${path}/preview`,
    {
      config: {
        right: ['create', 'firmwareRollout'],
        errors: ['notFound', 'unknownReference', 'forbidden', 'tooMany'],
      },
      bodyLimit: 1_048_576,
      schema: {
        tags,
        operationId: 'previewFirmwareRollout',
        summary: 'See what a rollout would do, without making it',
        description:
          'The body is that of a rollout, and what POST /firmware/rollouts refuses is refused here too. The devices are selected as the rollout would select them now.',
        body: rolloutBody,
        response: {
          200: Type.Object({ preview: previewShape }, { description: 'Nothing was made.' }),
        },
      },
    },
    async ({ caller, body }) => {
      ctx.access.demandAccount(caller, body.accountId);
      return { preview: await previewRollout(ctx, caller, body) };
    },
  );
}

function revertRoute(app: App, ctx: DownlinkContext): void {
  app.post(
    `${path}/:id/revert`,
    {
      config: {
        creates: true,
        made: { at: '/firmware/rollouts', status: 200 },
        right: ['create', 'firmwareRollout'],
        errors: ['notFound', 'deleted', 'forbidden', 'tooMany'],
        sends: ['etag'],
      },
      schema: {
        tags,
        operationId: 'revertFirmwareRollout',
        summary: 'Go back: roll out to each device of a rollout what it ran before',
        description:
          'Makes a rollout for the devices that run what this one has brought them. Each gets the published package of its template whose version it ran before; `refused` counts devices for which there is none. A rollout that has not ended is cancelled first.',
        params: idParams,
        response: one('The new rollout; `target.revertOf` names the one that it undoes.'),
      },
    },
    async ({ caller, params }, reply) => {
      const before = demandLive(findReached(ctx, caller, 'firmwareRollouts', params.id));
      const row = await revertRollout(ctx, caller, before);
      return sendEntity(reply, 'firmwareRollout', await showOne(ctx, row));
    },
  );
}

function events(app: App, ctx: DownlinkContext): void {
  const { access, firmwareEngine } = ctx;
  const streams = new ProgressStreams(ctx);
  app.addHook('preClose', async () => streams.endAll());
  app.get(
    `${path}/:id/events`,
    {
      exposeHeadRoute: false,
      config: { right: ['read', 'firmwareRollout'], errors: ['notFound', 'deleted', 'forbidden', 'tooMany'] },
      schema: {
        tags,
        operationId: 'getFirmwareRolloutEvents',
        summary: 'Follow a rollout as server-sent events',
        description:
          'Each event is `event: firmwareRollout` with the rollout as `data`: one at once, one whenever it has come further, four a second at most. The last one is that of its end. Not in a batch.',
        params: idParams,
        response: {
          200: eventsAnswer(
            'Events, and a comment every 15 seconds. It ends with the rollout, the session, or the right.',
          ),
        },
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      demandLive(findReached(ctx, caller, 'firmwareRollouts', params.id));
      if (isInsideBatch(request)) throw invalid('path', 'must not be a file or a stream');
      const isPermitted = () => {
        const current = currentCaller(ctx, caller);
        return current?.kind === caller.kind && access.may(current, 'read', 'firmwareRollout');
      };
      const read = async () => {
        const row = findReached(ctx, caller, 'firmwareRollouts', params.id);
        return { data: (await showCounted(ctx, [row]))(row), ended: hasEnded(row) };
      };
      const watch = (hear: () => void) => firmwareEngine.watchers.addWatcher(params.id, hear);
      return sendEvents(reply, streams.open(caller, { event: 'firmwareRollout', read, watch, isPermitted }));
    },
  );
}
