/** POST /devices/jobs: devices that are there are deleted, moved or given new secrets; and the way back. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Static, Type } from 'typebox';
import { oneOf } from '../../../db/registry/records.ts';
import { commandBody } from '../../commands/command.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { demandKnown, invalid, PlatformError, unknownReference } from '../../core/errors.ts';
import { idParams } from '../../entity/routes.ts';
import { findLive, recoveryWindow } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { keepHistory } from '../../registry/devices/device.ts';
import { demandKeeping } from '../../registry/devices/possession.ts';
import { fleetOfBody, selection } from '../../registry/devices/selection.ts';
import type { FactoryContext } from '../context.ts';
import { maxRows, type StoredRow } from '../provisioning/rows.ts';
import type { Before } from './bulk.ts';
import { demandRowRights, isOpen, type Job, type JobAction, type Parameters, showJob } from './job.ts';
import { currentJob, jobResponse, jobsPath } from './routes.ts';
import { allSelected, rowsOf, tooMany } from './selected.ts';
import { makeJob, type NewJob } from './store.ts';

const bulkActions = ['delete', 'move', 'regenerate', 'command'] as const;
/** Rows that are read in one go. */
const atOnce = 1000;
/** Bytes: so many ids. */
const bodyLimit = 4 * 1024 * 1024;

const bulkBody = Type.Object({
  accountId: Type.Optional(Type.String()),
  action: oneOf(bulkActions),
  filter: Type.Optional(selection),
  fleetId: fleetOfBody,
  ids: Type.Optional(
    Type.Array(Type.String({ maxLength: 64 }), {
      minItems: 1,
      maxItems: maxRows,
      description: 'Ids of devices, instead of a filter.',
    }),
  ),
  organizationId: Type.Optional(
    Type.Unsafe<string | null>({
      type: ['string', 'null'],
      description: 'The organization to move the devices to. Null removes them from their organization.',
    }),
  ),
  keepHistory,
  command: Type.Optional(commandBody),
  dryRun: Type.Optional(
    Type.Boolean({ default: false, description: 'Reports for every row what would happen, and changes nothing.' }),
  ),
});

/** Whether a body deletes or moves devices, which makes room, and is no dry run, which leaves only its rows. */
function changesDevices(body: unknown): boolean {
  return !(body as Static<typeof bulkBody> | null)?.dryRun;
}

const undoes: Partial<Record<string, JobAction>> = { delete: 'undoDelete', move: 'undoMove' };

export function bulkRoutes(app: App, ctx: FactoryContext): void {
  app.post(
    '/devices/jobs',
    {
      bodyLimit,
      config: {
        creates: true,
        whenFull: changesDevices,
        made: { at: jobsPath, status: 202 },
        right: ['create', 'bulkChange'],
        errors: ['notFound', 'unknownReference', 'forbidden', 'tooMany'],
      },
      schema: {
        tags: ['Jobs'],
        operationId: 'createBulkJob',
        summary: `Delete or move up to ${maxRows} devices, give them new secrets, or send them a command: by ids, a fleet, or a filter, whose serialNumber matches any part; dryRun changes nothing`,
        description:
          'A job like those of provisioning: it is read, followed and cancelled at `/provisioning/jobs/{id}`. Which devices is fixed when the job is made; each is changed as by the single call, whatever its version. New secrets are its results. A dry run has the same rows and counts.',
        body: bulkBody,
        response: { 202: jobResponse('The job, which now runs by itself.') },
      },
    },
    async ({ caller, body }, reply) => {
      demandRights(ctx, caller, body.action);
      if (body.accountId !== undefined) ctx.access.demandAccount(caller, body.accountId);
      demandKnown(body, Object.keys(bulkBody.properties), 'a job');
      const job = await bulkJob(ctx, caller, body);
      return reply.status(202).send({ job: showJob(job) });
    },
  );
  // It is next to what is undone, and with all jobs.
  for (const [path, operationId] of [
    ['/devices/jobs', 'undoBulkJob'],
    [jobsPath, 'undoProvisioningJob'],
  ])
    app.post(
      `${path}/:id/undo`,
      {
        config: {
          creates: true,
          made: { at: jobsPath, status: 202 },
          right: ['create', 'bulkChange'],
          errors: ['notFound', 'cannotUndo', 'forbidden', 'tooMany'],
        },
        schema: {
          tags: ['Jobs'],
          operationId,
          summary: 'Undo a job that has deleted or moved devices',
          description:
            'Within 30 days, once. Devices come back from the trash, or to where each stood; one that is not any more as the job has left it is a failed row.',
          params: idParams,
          response: { 202: jobResponse('The job that undoes it.') },
        },
      },
      async ({ caller, params }, reply) => {
        const job = await undoJob(ctx, caller, await currentJob(ctx, caller, params.id));
        return reply.status(202).send({ job: showJob(job) });
      },
    );
}

/** Besides the right of the route: what the action in the body does to each device. */
function demandRights({ access }: FactoryContext, caller: Caller, action: JobAction): void {
  demandRowRights(access, caller, action);
}

async function bulkJob(ctx: FactoryContext, caller: Caller, asked: Static<typeof bulkBody>): Promise<Job> {
  const { action, organizationId, keepHistory: keeps, dryRun = false } = asked;
  if ((action === 'move') !== (organizationId !== undefined))
    throw invalid('organizationId', action === 'move' ? 'is required' : 'is allowed for the action move only');
  if (organizationId && !(await findLive(ctx.registry.query, 'organizations', caller.accountId, organizationId)))
    throw unknownReference('organizationId');
  if (keeps !== undefined && action !== 'move') throw invalid('keepHistory', 'is allowed for the action move only');
  demandKeeping(caller, keeps);
  if ((action === 'command') !== (asked.command !== undefined))
    throw invalid('command', action === 'command' ? 'is required' : 'is allowed for the action command only');
  const ids = await selectIds(ctx, caller, asked);
  const parameters: Parameters = {
    ...(organizationId !== undefined && { organizationId }),
    ...(keeps && { keepHistory: keeps }),
    ...(asked.command && { command: asked.command }),
  };
  return makeJob(ctx, caller, { action, parameters, dryRun, rows: await rowsOf(ctx, caller.accountId, ids) });
}

/** @throws PlatformError 400/106 unless it has one of filter, fleetId and ids, and for more devices than a job has rows. */
async function selectIds(
  ctx: FactoryContext,
  caller: Caller,
  { filter, fleetId, ids }: Static<typeof bulkBody>,
): Promise<string[]> {
  if ([filter, fleetId, ids].filter((one) => one !== undefined).length !== 1)
    throw invalid('filter', 'one of filter, fleetId and ids is required');
  if (ids) {
    const unique = [...new Set(ids)];
    if (unique.length > maxRows) throw tooMany('ids');
    return unique;
  }
  return allSelected(ctx, caller, { filter, fleetId });
}

/** @throws PlatformError 403/21; 400/104 for what cannot be undone, now or any more. */
async function undoJob(ctx: FactoryContext, caller: Caller, job: Job): Promise<Job> {
  const action = undoes[job.action];
  if (!action) throw cannotUndo('Created devices and replaced secrets cannot be undone.');
  demandRights(ctx, caller, action);
  if (job.dryRun === 1) throw cannotUndo('The job was a dry run, so there is nothing to undo.');
  if (isOpen(job)) throw cannotUndo('The job has not finished; cancel it first.');
  if (job.undone !== null) throw cannotUndo('The job has been undone.');
  if (Date.parse(job.finished ?? '') + recoveryWindow < ctx.clock.now())
    throw cannotUndo('The job ended more than 30 days ago.');
  const wanted: NewJob = {
    action,
    parameters: { undoes: job.id } satisfies Parameters,
    rows: await doneRows(ctx, job),
  };
  return makeJob(ctx, caller, wanted, async (tx) => {
    const marked = tx
      .updateTable('jobs')
      .set({ undone: timestamp(ctx.clock) })
      .where('id', '=', job.id);
    const stillStands = marked.where('undone', 'is', null).where('state', '=', job.state);
    if ((await stillStands.executeTakeFirst()).numUpdatedRows === 0n) throw cannotUndo('The job has been undone.');
  });
}

/** The rows of what a job has done, with what it has kept of each. */
async function doneRows({ registry }: FactoryContext, job: Job): Promise<string[]> {
  const rows: string[] = [];
  for (let after = 0; ; ) {
    const batch = await registry.query
      .selectFrom('jobRows')
      .select(['row', 'input', 'before'])
      .where('jobId', '=', job.id)
      .where('state', '=', 'done')
      .where('row', '>', after)
      .orderBy('row')
      .limit(atOnce)
      .execute();
    for (const { input, before } of batch) {
      const { values } = JSON.parse(input) as StoredRow;
      rows.push(JSON.stringify({ values: { ...values, before: JSON.parse(before ?? '{}') as Before } }));
    }
    after = batch.at(-1)?.row ?? after;
    if (batch.length < atOnce) return rows;
    await nextTurn();
  }
}

function cannotUndo(message: string): PlatformError {
  return new PlatformError('cannotUndo', { message });
}
