/** POST /commands/bulk: one command to all devices that are selected, some at a time, until too many fail. */
import { type Static, Type } from 'typebox';
import { commandBody } from '../../commands/command.ts';
import type { Caller } from '../../core/caller.ts';
import { demandKnown, invalid } from '../../core/errors.ts';
import type { App } from '../../http/app.ts';
import { fleetOfBody, selection } from '../../registry/devices/selection.ts';
import type { FactoryContext } from '../context.ts';
import { maxRows } from '../provisioning/rows.ts';
import { demandRowRights, type Job, type Pacing, showJob } from './job.ts';
import { jobResponse, jobsPath } from './routes.ts';
import { allSelected, rowsOf } from './selected.ts';
import { makeJob } from './store.ts';

/** Commands of a job that may be open at once, and what is meant where nothing is said. */
const maxAtOnce = 1000;
const usual: Pacing = { atOnce: 100, maxFailurePercent: 20 };

const body = Type.Object({
  accountId: Type.String(),
  filter: Type.Optional(selection),
  fleetId: fleetOfBody,
  command: commandBody,
  maxFailurePercent: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 100,
      default: usual.maxFailurePercent,
      description:
        'When more of the commands that have ended have failed, timed out or expired, the job fails and sends no more. Looked at from five on.',
    }),
  ),
  atOnce: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: maxAtOnce,
      default: usual.atOnce,
      description: 'Commands that have not ended at any time.',
    }),
  ),
});

export function bulkCommandRoutes(app: App, ctx: FactoryContext): void {
  const { access, commands } = ctx;
  app.post(
    '/commands/bulk',
    {
      config: {
        creates: true,
        made: { at: jobsPath, status: 202 },
        right: ['create', 'bulkChange'],
        errors: ['notFound', 'unknownReference', 'forbidden', 'tooMany'],
      },
      schema: {
        tags: ['Commands'],
        operationId: 'createBulkCommand',
        summary: `Send a command to all devices that match, ${maxRows} at most, and follow it as a job`,
        description:
          'The job is read, followed, cancelled and retried at `/provisioning/jobs/{id}`; its rows have the `commandId`. Which devices is fixed when the job is made; connected ones come first. It ends when all commands have ended. Where a device does not declare the command so, its row is refused alone. Cancelling it cancels the commands that have not gone to their devices.',
        body,
        response: { 202: jobResponse('The job, which now runs by itself.') },
      },
    },
    async ({ caller, body: asked }, reply) => {
      demandRowRights(access, caller, 'command');
      access.demandAccount(caller, asked.accountId);
      demandKnown(asked, Object.keys(body.properties), 'a bulk command');
      commands.demandSendable(asked.command, 'command/');
      return reply.status(202).send({ job: showJob(await bulkCommand(ctx, caller, asked)) });
    },
  );
}

async function bulkCommand(ctx: FactoryContext, caller: Caller, asked: Static<typeof body>): Promise<Job> {
  const { filter, fleetId, command, atOnce = usual.atOnce, maxFailurePercent = usual.maxFailurePercent } = asked;
  if ((filter === undefined) === (fleetId === undefined))
    throw invalid('filter', 'either filter or fleetId is required');
  const ids = await allSelected(ctx, caller, { filter, fleetId });
  const { accountId } = caller;
  // Others would hold back the next ones for a day.
  const rows = await rowsOf(ctx, accountId, ids, (deviceId) => ctx.commands.isHeardBy({ accountId, deviceId }));
  return makeJob(ctx, caller, {
    action: 'command',
    parameters: { command, pacing: { atOnce, maxFailurePercent } },
    rows,
  });
}
