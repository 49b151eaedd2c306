/** Jobs: what they are, how far they have come, what they have made, and what can be done to them. */

import type { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { Nullable, oneOf } from '../../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { pageOfTable } from '../../entity/list.ts';
import { idParams, listResponse } from '../../entity/routes.ts';
import { showSlices } from '../../entity/row-slices.ts';
import { eventsAnswer, sendEvents } from '../../http/answers/events.ts';
import { sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { isInsideBatch } from '../../http/batch.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { FactoryContext } from '../context.ts';
import type { StoredRow } from '../provisioning/rows.ts';
import type { Unit } from '../provisioning/unit.ts';
import { demandResults, openResults, unitsOf } from '../provisioning/units.ts';
import { endKey } from '../results/expiry.ts';
import { type Download, fileTypes, labelFile, labelFormats, resultFile, resultFormats } from '../results/files.ts';
import { JobStreams } from './events.ts';
import {
  findJob,
  type Job,
  type JobRow,
  jobActions,
  jobShape,
  jobStates,
  receiving,
  rowStates,
  showJob,
} from './job.ts';
import { cancelJob, confirmJob, retryJob } from './store.ts';
import type { RowError } from './work.ts';

export const jobsPath = '/provisioning/jobs';
const tags = ['Jobs'];

const paging = {
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
};
const listQuery = Type.Object({
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  state: Type.Optional(oneOf(jobStates)),
  action: Type.Optional(oneOf(jobActions)),
  ...paging,
  sortOrder: Type.Optional(oneOf(['asc', 'desc'], { default: 'desc' })),
});
const rowsQuery = Type.Object({ state: Type.Optional(oneOf(rowStates)), ...paging });
const resultsQuery = Type.Object({ format: Type.Optional(oneOf(resultFormats, { default: 'ndjson' })) });
const labelsQuery = Type.Object({ format: Type.Optional(oneOf(labelFormats, { default: 'svg' })) });

const rowShape = Type.Object({
  row: Type.Integer({ description: 'Number of the row in the input, from 1. A header does not count.' }),
  serialNumber: Nullable(Type.String()),
  state: oneOf(rowStates),
  deviceId: Nullable(Type.String()),
  commandId: Nullable(Type.String({ description: 'The command that the device has got, in a job that sends one.' })),
  errors: Type.Array(
    Type.Object({
      code: Type.Optional(Type.Integer({ description: 'As in the body of an error.' })),
      column: Type.Optional(Type.String()),
      message: Type.String(),
    }),
  ),
});
export const jobResponse = (description: string) => Type.Object({ job: jobShape }, { description });

/** Mounts everything that can be asked of a job that is there. */
export function jobRoutes(app: App, ctx: FactoryContext): void {
  const { access } = ctx;
  const streams = new JobStreams(ctx);
  app.addHook('preClose', async () => streams.endAll());

  app.get(
    jobsPath,
    {
      config: { right: ['read', 'job'], errors: ['notFound', 'pageOutside', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags,
        operationId: 'listProvisioningJobs',
        summary: 'List jobs, newest first; a station sees its own',
        description: 'Returns one page. Bulk jobs of devices are listed too.',
        querystring: listQuery,
        response: listResponse('jobs', jobShape),
      },
    },
    async (request, reply) => {
      access.demandAccount(request.caller, request.query.accountId);
      const ignored = nameIgnored(request, reply, listQuery);
      const { rows, meta } = await listJobs(ctx, request.caller, request.query);
      const results = showSlices(rows, () => showJob);
      return sendList(reply, 'jobs', { results, meta: metaWith(meta, ignored) });
    },
  );
  const readJob = {
    config: { right: ['read', 'job'], errors: ['notFound', 'forbidden'] },
    schema: {
      tags,
      operationId: 'getProvisioningJob',
      summary: 'Read a job',
      description: 'Shows how many rows are done, failed and skipped. Bulk jobs of devices are read here too.',
      params: idParams,
      response: { 200: jobResponse('As it is now.') },
    },
  } as const;
  app.get(`${jobsPath}/:id`, readJob, async ({ caller, params }) => ({
    job: await shown(ctx, caller, params.id),
  }));
  progressRoutes(app, ctx, streams);
  changingRoutes(app, ctx);
  fetchingRoutes(app, ctx);
}

function progressRoutes(app: App, ctx: FactoryContext, streams: JobStreams): void {
  app.get(
    `${jobsPath}/:id/rows`,
    {
      config: { right: ['read', 'job'], errors: ['notFound', 'pageOutside', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags,
        operationId: 'getProvisioningJobRows',
        summary: 'List the rows of a job with their states',
        description: 'Rows are kept for 30 days after the end of the job.',
        params: idParams,
        querystring: rowsQuery,
        response: listResponse('rows', rowShape),
      },
    },
    async (request, reply) => {
      const job = await currentJob(ctx, request.caller, request.params.id);
      const ignored = nameIgnored(request, reply, rowsQuery);
      const { rows, meta } = await listRows(ctx, request.caller, job, request.query);
      const results = showSlices(rows, () => (row) => showRow(row, job.state === 'cancelled'));
      return sendList(reply, 'rows', { results, meta: metaWith(meta, ignored) });
    },
  );
  app.get(
    `${jobsPath}/:id/events`,
    {
      exposeHeadRoute: false,
      config: { right: ['read', 'job'], errors: ['notFound', 'forbidden', 'tooMany'] },
      schema: {
        tags,
        operationId: 'getProvisioningJobEvents',
        summary: 'Follow a job as server-sent events',
        description:
          'Each event is `event: job` with the job as `data`: one at once, one whenever it has come further, four a second at most. The last one is that of its end. Not in a batch.',
        params: idParams,
        response: {
          200: eventsAnswer('Events, and a comment every 15 seconds. It ends with the job, the session, or the right.'),
        },
      },
    },
    async (request, reply) => {
      await currentJob(ctx, request.caller, request.params.id);
      demandOutsideBatch(request);
      return sendEvents(reply, await streams.open(request.caller, request.params.id));
    },
  );
}

async function shown(ctx: FactoryContext, caller: Caller, id: string) {
  return showJob(await currentJob(ctx, caller, id));
}

/** Cancel and retry. */
function changingRoutes(app: App, ctx: FactoryContext): void {
  for (const [verb, errors, summary, description, change] of [
    [
      'cancel',
      ['notFound', 'forbidden'],
      'Cancel a job',
      'What the job has created stays, with its results. The other rows are skipped, and commands that have not gone to their devices are cancelled.',
      cancelJob,
    ],
    [
      'retry',
      ['notFound', 'forbidden', 'tooMany'],
      'Retry the failed and unprocessed rows of a job',
      'Only who made the job; one that was cancelled is over, unless it is an undo, and so is one that was undone. A job that runs, or has no such rows, stays as it is.',
      retryJob,
    ],
  ] as const)
    app.post(
      `${jobsPath}/:id/${verb}`,
      {
        config: { right: ['update', 'job'], errors },
        schema: {
          tags,
          operationId: `${verb}ProvisioningJob`,
          summary,
          description,
          params: idParams,
          response: { 200: jobResponse('As it is now.') },
        },
      },
      async ({ caller, params }) => {
        return { job: showJob(await change(ctx, caller, await currentJob(ctx, caller, params.id))) };
      },
    );
}

/** Results and labels, until they are confirmed. */
function fetchingRoutes(app: App, ctx: FactoryContext): void {
  const content = Object.fromEntries(fileTypes.map((type) => [type, { schema: Type.Unsafe<Readable>({}) }]));
  const response = { 200: { description: 'The file, as it is made.', content } };
  const config = { right: ['read', 'job'], errors: ['notFound', 'resultsGone', 'forbidden'] } as const;
  app.get(
    `${jobsPath}/:id/results`,
    {
      exposeHeadRoute: false,
      config,
      schema: {
        tags,
        operationId: 'getProvisioningJobResults',
        summary: 'Fetch the results of a job: ids, secrets, association codes, topics',
        description:
          'Only who made the job, when it has ended, as often as needed until they are confirmed, for 24 hours. csv, ndjson and json are one file; the others are a ZIP with a file for each unit, `<row>-<serial>`. Not in a batch.',
        params: idParams,
        querystring: resultsQuery,
        response,
      },
    },
    (request, reply) =>
      send(ctx, request, reply, request.query.format ?? 'ndjson', (units) =>
        resultFile(request.query.format ?? 'ndjson', units),
      ),
  );
  app.get(
    `${jobsPath}/:id/labels`,
    {
      exposeHeadRoute: false,
      config,
      schema: {
        tags,
        operationId: 'getProvisioningJobLabels',
        summary: 'Fetch the labels of the units of a job',
        description:
          'As the results, with which they end; they never hold a secret. svg and png are a ZIP, html is one sheet to print. Not in a batch.',
        params: idParams,
        querystring: labelsQuery,
        response,
      },
    },
    (request, reply) =>
      send(ctx, request, reply, `labels/${request.query.format ?? 'svg'}`, (units) =>
        labelFile(request.query.format ?? 'svg', units, (drawing, label) =>
          ctx.labels.draw(laneOf(request.caller), drawing, label),
        ),
      ),
  );
  app.post(
    `${jobsPath}/:id/results/confirm`,
    {
      config: { right: ['update', 'job'], errors: ['notFound', 'resultsGone', 'forbidden'] },
      schema: {
        tags,
        operationId: 'resultsConfirmProvisioningJob',
        summary: 'Confirm that the results of a job are saved, which destroys them',
        description: 'The secrets cannot be downloaded after that. Confirming again has no effect.',
        params: idParams,
        response: { 200: jobResponse('The results are destroyed.') },
      },
    },
    async ({ caller, params }) => {
      const job = await currentJob(ctx, caller, params.id);
      demandResults(caller, job);
      const confirmed = job.confirmed === null && job.sealedKey !== null ? await confirmJob(ctx, caller, job) : job;
      if (confirmed.confirmed === null) throw new PlatformError('resultsGone');
      return { job: showJob(confirmed) };
    },
  );
}

/** Sends what is made of the units of a job, and notes who has had it. */
async function send(
  ctx: FactoryContext,
  request: FastifyRequest<{ Params: Static<typeof idParams> }>,
  reply: FastifyReply,
  format: string,
  make: (units: AsyncIterable<Unit>) => Download,
) {
  const { caller, params } = request;
  const job = await currentJob(ctx, caller, params.id);
  const seal = openResults(ctx, caller, job);
  demandOutsideBatch(request);
  if (format.startsWith('labels/') && job.action !== 'provision') throw invalid('id', 'the job has no labels');
  await ctx.audit.record(ctx.registry.query, {
    event: 'jobResultsFetched',
    outcome: 'success',
    accountId: job.accountId,
    actor: caller,
    target: { kind: 'job', id: job.id },
    details: { format },
  });
  const { type, extension, body } = make(unitsOf(ctx, caller, job, seal));
  reply.header('content-disposition', `attachment; filename="job-${job.id}.${extension}"`);
  return reply.type(type).send(body);
}

function demandOutsideBatch(request: FastifyRequest): void {
  if (isInsideBatch(request)) throw invalid('path', 'must not be a file or a stream');
}

/** A job that the caller sees, with its results ended when their time is over. @throws PlatformError 404/100. */
export async function currentJob(ctx: FactoryContext, caller: Caller, id: string): Promise<Job> {
  const job = await findJob(ctx, caller, id);
  const isDue = job.sealedKey !== null && job.expires !== null && job.expires <= timestamp(ctx.clock);
  if (!isDue) return job;
  await endKey(ctx, id);
  return findJob(ctx, caller, id);
}

async function listJobs(ctx: FactoryContext, caller: Caller, query: Static<typeof listQuery>) {
  const { query: db } = ctx.registry;
  const { state, action } = query;
  let matching = db.selectFrom('jobs').where('accountId', '=', caller.accountId).where('state', '!=', receiving);
  if (!isAccountWide(caller)) matching = matching.where('createdById', '=', caller.id);
  if (state) matching = matching.where('state', '=', state);
  if (action) matching = matching.where('action', '=', action);
  return pageOfTable(ctx, caller, query, {
    matching,
    key: 'id',
    order: ['created', 'id'],
    long: ['parameters'],
    read: (_, some: string[]) => db.selectFrom('jobs').selectAll().where('id', 'in', some).execute(),
    idOf: ({ id }) => id,
  });
}

async function listRows(ctx: FactoryContext, caller: Caller, job: Job, query: Static<typeof rowsQuery>) {
  const { query: db } = ctx.registry;
  const { state } = query;
  // Rows that a cancelled job did not reach count as skipped; nothing is written for them.
  const isOver = job.state === 'cancelled';
  const states = isOver && state === 'skipped' ? ['skipped', 'pending'] : [isOver && state === 'pending' ? '' : state];
  let matching = db.selectFrom('jobRows').where('jobId', '=', job.id);
  if (state) matching = matching.where('state', 'in', states as string[]);
  return pageOfTable(
    ctx,
    caller,
    { ...query, sortOrder: 'asc' },
    {
      matching,
      key: 'row',
      order: ['row'],
      long: ['input', 'errors'],
      read: (_, some: number[]) => {
        const rows = db.selectFrom('jobRows').select(['row', 'state', 'input', 'deviceId', 'commandId', 'errors']);
        return rows.where('jobId', '=', job.id).where('row', 'in', some).execute();
      },
      idOf: ({ row }) => row,
    },
  );
}

type ShownRow = Pick<JobRow, 'row' | 'state' | 'input' | 'deviceId' | 'commandId' | 'errors'>;

function showRow(
  { row, state, input, deviceId, commandId, errors }: ShownRow,
  isOver: boolean,
): Static<typeof rowShape> {
  const { serialNumber = null } = (JSON.parse(input) as StoredRow).values;
  return {
    row,
    serialNumber: typeof serialNumber === 'string' ? serialNumber.toWellFormed() : null,
    state: (isOver && state === 'pending' ? 'skipped' : state) as Static<typeof rowShape>['state'],
    deviceId,
    commandId,
    errors: errors === null ? [] : (JSON.parse(errors) as RowError[]),
  };
}
