/** A job: work on many devices, as a row of the registry and on the wire. */

import { Type } from 'typebox';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import { DateText, Id, Nullable, oneOf, type Row } from '../../../db/registry/records.ts';
import type { CommandBody } from '../../commands/command.ts';
import type { Access } from '../../core/access.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import type { Right } from '../../core/rights.ts';

export type Job = Row<'jobs'>;
export type JobRow = Row<'jobRows'>;

export const jobActions = ['provision', 'delete', 'move', 'regenerate', 'command', 'undoDelete', 'undoMove'] as const;
export type JobAction = (typeof jobActions)[number];
export const jobStates = ['pending', 'running', 'succeeded', 'failed', 'cancelled', 'expired'] as const;
/** `open`: what the row has begun has not ended. */
export const rowStates = ['pending', 'open', 'done', 'failed', 'skipped'] as const;
export type RowState = (typeof rowStates)[number];

/** While its rows are still being stored; such a job is shown to nobody, and is gone after a restart. */
export const receiving = 'receiving';

/** What a caller needs for each row. A secret publishes as its device: a station makes those of its own devices only. */
const rowRights: Readonly<Record<JobAction, readonly Right[]>> = {
  provision: [
    ['create', 'device'],
    ['create', 'mqttCredential'],
    ['create', 'associationCode'],
  ],
  delete: [['delete', 'device']],
  move: [['update', 'device']],
  regenerate: [
    ['update', 'device'],
    ['create', 'mqttCredential'],
  ],
  command: [['create', 'command']],
  undoDelete: [['delete', 'device']],
  undoMove: [['update', 'device']],
};

/** Parameters of a job. `pacing`: its rows stay open. `retrying`: its failed rows are about to be pending again. */
export interface Parameters {
  deviceTemplateId?: string;
  organizationId?: string | null;
  keepHistory?: boolean;
  command?: CommandBody;
  pacing?: Pacing;
  undoes?: string;
  retrying?: true;
}

/** How many rows may be open at once, and how many of those that end may fail. */
export interface Pacing {
  atOnce: number;
  maxFailurePercent: number;
}

export function parametersOf({ parameters }: Pick<Job, 'parameters'>): Parameters {
  return JSON.parse(parameters) as Parameters;
}

export function isOpen({ state }: Pick<Job, 'state'>): boolean {
  return state === 'pending' || state === 'running';
}

/** Whether its rows have secrets as results. */
export function hasResults({ action, dryRun }: Pick<Job, 'action' | 'dryRun'>): boolean {
  return dryRun === 0 && (action === 'provision' || action === 'regenerate');
}

/** How long results can be fetched when their job is done, in milliseconds. */
const resultLifetime = 24 * 60 * 60_000;

/** The end of a job: until when its results can be fetched, if it has any. */
export function endOf(clock: Clock, job: Job): Pick<Job, 'finished' | 'expires'> {
  const at = clock.now();
  const expires = hasResults(job) ? new Date(at + resultLifetime).toISOString() : null;
  return { finished: new Date(at).toISOString(), expires };
}

/** Whether a job is the caller's: a token has only those that were made with it. */
export function isMaker(caller: Caller, { createdById, createdByKind, tokenId }: Job): boolean {
  const isOwn = caller.id === createdById && caller.kind === createdByKind;
  return isOwn && (caller.tokenId === undefined || caller.tokenId === tokenId);
}

/**
 * Who works: the caller that made the job, with the rights that are left.
 * @throws PlatformError 403/21 when they do not suffice any more.
 */
export function workerOf({ access }: { access: Access }, job: Job): Caller {
  const { createdById, createdByKind, tokenId, action } = job;
  const caller = access.callerOfPrincipal(tokenId ?? createdById);
  if (caller?.kind !== createdByKind || caller.accountId !== job.accountId)
    throw new PlatformError('forbidden', { message: 'The caller that created the job no longer exists.' });
  const uses = demandRowRights(access, caller, action as JobAction);
  return { ...caller, uses };
}

/** The rights of a caller for each row. @throws PlatformError 403/21 where it lacks one. */
export function demandRowRights(access: Access, caller: Caller, action: JobAction): readonly Right[] {
  const makesSecrets = action === 'provision' || action === 'regenerate';
  const needed = [
    ...rowRights[action],
    ...(makesSecrets && caller.kind !== 'station' ? [['publish', 'device'] as const] : []),
  ];
  for (const right of needed) access.demand(caller, ...right);
  return needed;
}

/** A job that the caller may see: of its account, or its own. @throws PlatformError 404/100. */
export async function findJob({ registry }: { registry: Registry }, caller: Caller, id: string): Promise<Job> {
  const job = await registry.query.selectFrom('jobs').selectAll().where('id', '=', id).executeTakeFirst();
  const isSeen = job && job.accountId === caller.accountId && (isAccountWide(caller) || isMaker(caller, job));
  if (!isSeen || job.state === receiving) throw new PlatformError('notFound');
  return job;
}

/** Changes a job that is still in one of `states`; undefined when it is not. */
export async function changeJob(
  tx: Tx,
  id: string,
  states: readonly string[],
  changes: Partial<Job>,
): Promise<Job | undefined> {
  const changed = tx.updateTable('jobs').set(changes).where('id', '=', id).where('state', 'in', states);
  return changed.returningAll().executeTakeFirst();
}

const date = Nullable(DateText);

export const jobShape = Type.Object({
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String({
    description: 'The caller that created the job. The job has its permissions, and only it can download the results.',
  }),
  action: oneOf(jobActions),
  dryRun: Type.Boolean({ description: 'Rows are checked, and nothing is created.' }),
  state: oneOf(jobStates, {
    description:
      '`succeeded`: all rows have been gone through, and the counts say how. `failed`: it could not go on, for the `reason`, such as too many commands that have failed. `expired`: nobody has confirmed its results in time.',
  }),
  total: Type.Integer({ description: 'Rows.' }),
  done: Type.Integer(),
  failed: Type.Integer(),
  skipped: Type.Integer({
    description:
      'Rows whose device existed already, whose command was cancelled, or that were left when the job was cancelled.',
  }),
  reason: Nullable(Type.String({ description: 'Why the job failed.' })),
  finished: date,
  expires: Nullable(Type.Unsafe<string>({ ...DateText, description: 'When the results are destroyed.' })),
  confirmed: date,
  undone: date,
  command: Nullable(
    Type.Object({
      name: Type.String(),
      maxFailurePercent: Type.Optional(Type.Integer()),
      atOnce: Type.Optional(Type.Integer()),
    }),
  ),
});

export function showJob(job: Job) {
  const { id, accountId, created, createdById, action, dryRun, state, total, done, failed, skipped } = job;
  const { reason, finished, expires, confirmed, undone } = job;
  const counts = { total, done, failed, skipped };
  return {
    ...{ id, accountId, created, createdById },
    action: action as JobAction,
    dryRun: dryRun === 1,
    state: state as (typeof jobStates)[number],
    ...counts,
    ...{ reason, finished, expires: confirmed === null ? expires : null, confirmed, undone },
    command: action === 'command' ? commandOf(job) : null,
  };
}

function commandOf(job: Job) {
  const { command, pacing } = parametersOf(job);
  return command ? { name: command.name, ...pacing } : null;
}
