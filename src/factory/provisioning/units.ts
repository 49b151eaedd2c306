/** The results of a job as units, read a few at a time as they are sent. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { inGroups } from '../../core/formats/crockford.ts';
import { formatTopic } from '../../core/topics.ts';
import { currentCaller } from '../../entity/current-caller.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import { brokerUrl, claimUrl, withCode } from '../../registry/addresses.ts';
import type { FactoryContext } from '../context.ts';
import { hasResults, isMaker, isOpen, type Job } from '../jobs/job.ts';
import { type Result, ResultSeal } from '../results/store.ts';
import type { Unit } from './unit.ts';

type UnitServices = Pick<FactoryContext, 'access' | 'broker' | 'config' | 'registry' | 'sessions'>;

const unitsAtOnce = 50;

/**
 * The results of a job, for the caller that made it.
 * @throws PlatformError 403/21 for others, 400/106 while it runs or when it has none, 410/106 when they have been destroyed.
 */
export function openResults(ctx: { sealing: Sealing }, caller: Caller, job: Job): ResultSeal {
  demandResults(caller, job);
  const seal = ResultSeal.of(ctx, job);
  if (!seal) throw new PlatformError('resultsGone');
  return seal;
}

/** Demands that the caller may have the results of this job. @throws as openResults, except 410. */
export function demandResults(caller: Caller, job: Job): void {
  if (!isMaker(caller, job))
    throw new PlatformError('forbidden', { message: 'Only the caller that created the job can download its results.' });
  if (!hasResults(job)) throw invalid('id', 'the job has no results');
  if (isOpen(job)) throw invalid('id', 'the job has not finished');
}

/** Every unit of the job, in the order of its rows. It ends with an error when the caller or the results are gone. */
export async function* unitsOf(ctx: UnitServices, caller: Caller, job: Job, seal: ResultSeal): AsyncGenerator<Unit> {
  const [broker, claim] = [brokerUrl(ctx), claimUrl(ctx)];
  let count = 0;
  for await (const result of resultsOf(ctx, job, seal)) {
    yield unitOf(ctx, job, result, broker, claim);
    count += 1;
    if (count % unitsAtOnce > 0) continue;
    await nextTurn();
    await demandJobOpen(ctx, caller, job);
  }
}

/** In the order of their rows. Rows that were tried again are sealed apart from those before and after them. */
async function* resultsOf({ registry }: UnitServices, { id }: Job, seal: ResultSeal): AsyncGenerator<Result> {
  let opened: Result[] = [];
  for (let after = 0; ; ) {
    const stored = await registry.query
      .selectFrom('jobRows')
      .select(['row', 'deviceId', 'sealedResult'])
      .where('jobId', '=', id)
      .where('row', '>', after)
      .where('sealedResult', 'is not', null)
      .orderBy('row')
      .limit(1)
      .executeTakeFirst();
    if (!stored) break;
    yield* opened.filter(({ row }) => row < stored.row);
    const later = [...opened.filter(({ row }) => row > stored.row), ...seal.open(stored)];
    opened = later.sort((one, other) => one.row - other.row);
    after = stored.row;
  }
  yield* opened;
}

/** Long reading outlives neither the session nor the results. */
async function demandJobOpen(ctx: UnitServices, caller: Caller, job: Job) {
  const current = currentCaller(ctx, caller);
  if (!current || !ctx.access.may(current, 'read', 'job')) throw new PlatformError('tokenInvalid');
  const stored = ctx.registry.query.selectFrom('jobs').select('sealedKey').where('id', '=', job.id);
  if ((await stored.executeTakeFirst())?.sealedKey !== job.sealedKey) throw new PlatformError('resultsGone');
}

function unitOf(
  { access, config }: UnitServices,
  { accountId }: Job,
  result: Result,
  broker: string,
  claim: string,
): Unit {
  const { row, deviceId, serialNumber, deviceTemplateId, secret, code } = result;
  const topic = (channel: string) => formatTopic(config.topicRoot, accountId, deviceId, channel);
  const channels = [...access.channelsOf(deviceTemplateId).keys()];
  const associationCode = code === undefined ? '' : inGroups(code);
  const topics = Object.fromEntries(channels.map((channel) => [channel, topic(channel)]));
  const found = { row, serialNumber, deviceId, accountId, secret, associationCode };
  return { ...found, claimUrl: code === undefined ? '' : withCode(claim, associationCode, accountId), broker, topics };
}
