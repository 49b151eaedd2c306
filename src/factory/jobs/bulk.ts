/** Rows to changes of devices that are there: each as the single call makes it, whatever the version. */

import { sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError, unknownReference } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { findLive } from '../../entity/verbs.ts';
import { makeSecret } from '../../identity/secrets/secrets.ts';
import { secretStored, storeSecret } from '../../registry/credentials/credentials.ts';
import {
  deviceChanged,
  deviceTrashed,
  moveDevice,
  recoverDevice,
  trashDevice,
} from '../../registry/devices/changes.ts';
import {
  failedRow,
  type GivenRow,
  type OpenWork,
  type Outcome,
  outcome,
  type Prepared,
  type Run,
  rowErrors,
  type Work,
} from './work.ts';

/** One device: what its row becomes, and what is to be told after the commit. */
interface Step {
  more: Partial<Outcome>;
  announceChange(caller: Caller): void | Promise<void>;
}

/** The device of a row in a bulk job; `before` is its state that the undone job kept. */
interface Target {
  row: number;
  id: string;
  before?: Before;
}

/** The change that an undo takes back: the move's source and target, or the time of deletion. */
export interface Before {
  from?: string | null;
  to?: string | null;
  deleted?: string;
}

/** Rows of the undone job that one statement reads: about a millisecond. */
const rowsPerRead = 500;

function targetOf({ row, values }: GivenRow): Target {
  const { id, before } = values as { id: string; before?: Before };
  return { row, id, ...(before && { before }) };
}

export const remove: OpenWork = (run) =>
  each(run, async (tx, caller, { id }) => {
    const row = await trashDevice(tx, run.ctx.clock, caller, id);
    return { more: kept({ deleted: row.deleted ?? '' }), announceChange: (by) => deviceTrashed(run.ctx, by, row) };
  });

export const move: OpenWork = (run) => {
  const { organizationId: to = null, keepHistory = false } = run.parameters;
  return each(run, async (tx, caller, { id }) => {
    const changed = await moveDevice(tx, run.ctx.clock, caller, id, { to, keepHistory });
    const { before, after } = changed;
    if (before === after) return { more: kept({ from: to, to }), announceChange: () => {} };
    return {
      more: kept({ from: before.organizationId, to }),
      announceChange: (by) => deviceChanged(run.ctx, by, changed),
    };
  });
};

export const undoDelete: OpenWork = (run) => {
  let serialNumbers = new Map<string, string>();
  // Looked at once in a transaction, which changes of them nothing but what the job has deleted itself.
  const newest = new WeakMap<Tx, Map<string, string>>();
  const work = each(run, async (tx, caller, { id, before }) => {
    const deleted = before?.deleted ?? '';
    const own = await findEntity(tx, 'devices', id);
    if (own && own.accountId === caller.accountId && own.deleted !== null) {
      const known = newest.get(tx) ?? new Map<string, string>();
      newest.set(tx, known);
      const name = `${own.deviceTemplateId}/${own.serialNumber}`;
      let changed = known.get(name);
      if (changed === undefined) {
        const others = await namesakes(tx, own);
        const foreign = others.filter((other) => serialNumbers.get(other.id) !== own.serialNumber);
        changed = foreign.reduce((last, { lastModified }) => (lastModified > last ? lastModified : last), '');
        known.set(name, changed);
      }
      if (changed >= deleted)
        throw new PlatformError('notUnique', {
          message: 'Another device of the template has its serial number now.',
        });
    }
    const row = await recoverDevice(tx, run.ctx.clock, caller, id, { deleted }).catch(notThere);
    return { more: {}, announceChange: () => run.ctx.access.deviceChanged(row.id) };
  });
  return async (caller, rows) => {
    if (serialNumbers.size === 0) serialNumbers = await serialNumbersOfDeleted(run);
    return work(caller, rows);
  };
};

/** The live devices of its template with its serial number, made, renamed or recovered: a line makes each once. */
async function namesakes(tx: Tx, { accountId, deviceTemplateId, serialNumber }: Row<'devices'>) {
  const { rows } = await sql<{ id: string; lastModified: string }>`
    select "id", "lastModified" from "devices" indexed by "devices_by_serialNumber"
    where substr("accountId", 27) = ${accountKey(accountId)} and "serialNumber" = ${serialNumber} and "deleted" is null
      and "deviceTemplateId" = ${deviceTemplateId}`.execute(tx);
  return rows;
}

/**
 * The devices that the job to be undone has deleted, by id, with their serial numbers then, which other devices may have
 * now. There may be 50,000: they are read in longWork, before the transaction.
 */
async function serialNumbersOfDeleted({ ctx, parameters }: Run): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const longWork = new LongWork();
  for (let after = -1, isMore = true; isMore; ) {
    longWork.beginSlice();
    const { rows } = await sql<{ row: number; deviceId: string; serialNumber: string }>`
      select "row", "deviceId", json_extract("input", '$.values.serialNumber') as "serialNumber" from "jobRows"
      where "jobId" = ${parameters.undoes ?? ''} and "state" = 'done' and "row" > ${after}
      order by "row" limit ${rowsPerRead}`.execute(ctx.registry.query);
    for (const { deviceId, serialNumber } of rows) found.set(deviceId, serialNumber);
    after = rows.at(-1)?.row ?? after;
    isMore = rows.length === rowsPerRead;
    await longWork.giveWay();
  }
  return found;
}

function notThere(error: unknown): never {
  if (!(error instanceof PlatformError) || error.kind !== 'notFound') throw error;
  throw new PlatformError('notFound', {
    message: 'The device is not in the trash any more, or was changed after the job.',
  });
}

export const undoMove: OpenWork = (run) =>
  each(run, async (tx, caller, { id, before = {} }) => {
    const device = await findLive(tx, 'devices', caller.accountId, id);
    if (device && device.organizationId !== (before.to ?? null))
      throw new PlatformError('association', { message: 'The device has been moved since the job.' });
    const changed = await moveDevice(tx, run.ctx.clock, caller, id, {
      to: before.from ?? null,
      keepHistory: false,
    });
    const isSame = changed.before === changed.after;
    return { more: {}, announceChange: (by) => (isSame ? undefined : deviceChanged(run.ctx, by, changed)) };
  });

/** A new secret for each device; hashed before the transaction, off the event loop. */
export const regenerate: OpenWork = (run) => async (caller, rows) => {
  const secrets = new Map<number, { secret: string; secretHash: string }>();
  await Promise.all(
    rows.map(async ({ row }) => {
      const secret = makeSecret();
      // Nobody will ever show the secret of a dry run.
      secrets.set(row, {
        secret,
        secretHash: run.job.dryRun === 1 ? '' : await run.ctx.secrets.hash(secret, laneOf(caller)),
      });
    }),
  );
  const work = each(run, async (tx, by, { row, id }) => {
    const made = secrets.get(row);
    const device = await findLive(tx, 'devices', by.accountId, id);
    if (!device || !made) throw unknownReference('id');
    const holder = { entityId: id, entityType: 'device' } as const;
    const { activated } = await storeSecret(tx, by, holder, made.secretHash, timestamp(run.ctx.clock));
    const { serialNumber, deviceTemplateId } = device;
    const result = { row, deviceId: id, serialNumber, deviceTemplateId, secret: made.secret };
    const sealedResult = run.seal?.seal([result]) ?? null;
    return { more: { sealedResult }, announceChange: (who) => secretStored(run.ctx, who, id, activated) };
  });
  return work(caller, rows);
};

/**
 * The same command for each device; those that cannot get one now, or do not declare it so, are failed rows. Where the job is paced,
 * a row is open until its command has ended.
 */
export const command: OpenWork = (run) => async (caller, rows) => {
  const { commands, registry } = run.ctx;
  const { command: wanted, pacing } = run.parameters;
  const templateOf = (id: string) => registry.entity('devices', id)?.deviceTemplateId;
  const templates = new Set(rows.flatMap((row) => templateOf(targetOf(row).id) ?? []));
  const refusals = new Map<string, unknown>();
  if (wanted)
    for (const template of templates)
      await commands.demandDeclared(caller, template, wanted).catch((error) => refusals.set(template, error));
  const work = each(run, async (tx, by, { row, id }) => {
    const device = await findLive(tx, 'devices', by.accountId, id);
    if (!device || !wanted) throw unknownReference('id');
    const { accountId, deviceTemplateId } = device;
    if (refusals.has(deviceTemplateId)) throw refusals.get(deviceTemplateId);
    const of = pacing && { jobId: run.job.id, row };
    const { id: commandId } = await commands.add(tx, by, { deviceId: id, accountId }, wanted, of);
    const more = { commandId, ...(pacing && { state: 'open' as const }) };
    return { more, announceChange: () => commands.added({ deviceId: id, accountId }) };
  });
  return work(caller, rows);
};

function kept(before: Before): Partial<Outcome> {
  return { before: JSON.stringify(before) };
}

/** Does one step for each row, in one transaction, and reports all of them after it; a dry run leaves nothing of it. */
function each({ job }: Run, step: (tx: Tx, caller: Caller, target: Target) => Promise<Step>): Work {
  const longWork = new LongWork();
  return async (_caller, rows): Promise<Prepared> => {
    const steps: Step[] = [];
    const write = async (tx: Tx, caller: Caller): Promise<Outcome[]> => {
      const outcomes: Outcome[] = [];
      for (const given of rows) {
        const target = targetOf(given);
        try {
          const done = await step(tx, caller, target);
          steps.push(done);
          outcomes.push(outcome(given.row, 'done', { deviceId: target.id, ...done.more }));
        } catch (error) {
          // A refusal comes before anything has been written.
          outcomes.push(failedRow(given.row, rowErrors(error), { deviceId: target.id }));
        }
      }
      return outcomes;
    };
    if (job.dryRun === 1) return { write: (tx, caller) => tryOut(tx, () => write(tx, caller)) };
    return {
      write,
      after: async (caller) => {
        for (const { announceChange } of steps) {
          longWork.beginSlice();
          await announceChange(caller);
          await longWork.giveWay();
        }
      },
    };
  };
}

/** Returns the result of some work and rolls it back. If it throws, the whole transaction fails. */
async function tryOut<R>(tx: Tx, work: () => Promise<R>): Promise<R> {
  await sql`savepoint "dryRun"`.execute(tx);
  const result = await work();
  await sql`rollback to "dryRun"`.execute(tx);
  await sql`release "dryRun"`.execute(tx);
  return result;
}
