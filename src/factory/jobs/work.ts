/** The interface of an action for the engine: check some rows, and do them in one transaction. */

import type { Logger } from 'pino';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Commands } from '../../commands/commands.ts';
import type { Access } from '../../core/access.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Caller } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { type ErrorDetail, failureOf, PlatformError } from '../../core/errors.ts';
import type { Fields } from '../../entity/fields.ts';
import type { RevokedCounts } from '../../http/revoked-counts.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import type { Secrets } from '../../identity/secrets/secrets.ts';
import type { Sessions } from '../../identity/sessions/sessions.ts';
import type { Keeping } from '../../messages/keeping.ts';
import type { Audit } from '../../operations/audit/index.ts';
import type { Downlink } from '../../ports/downlink.ts';
import type { Revocations } from '../../ports/revocations.ts';
import type { Overlaps } from '../../registry/credentials/overlaps.ts';
import type { Equipping } from '../provisioning/equipping.ts';
import type { RowValues, StoredRow } from '../provisioning/rows.ts';
import type { ResultSeal } from '../results/store.ts';
import type { Job, JobRow, Parameters, RowState } from './job.ts';

/** Services that jobs use. */
export type JobServices = {
  config: Config;
  clock: Clock;
  log: Logger;
  gate: AccountGate;
  keeping: Pick<Keeping, 'demandRoom'>;
  registry: Registry;
  access: Access;
  commands: Commands;
  fields: Fields;
  overlaps: Overlaps;
  secrets: Secrets;
  sessions: Sessions;
  sealing: Sealing;
  audit: Audit;
  revoked: RevokedCounts;
  downlink: Pick<Downlink, 'deviceUpdated'>;
  revocations: Revocations;
};

/** One job while it runs. */
export interface Run {
  ctx: JobServices;
  job: Job;
  parameters: Parameters;
  equipping: Equipping;
  /** Absent where the rows have no results. */
  seal: ResultSeal | undefined;
}

/** A row that is to be done. */
export interface GivenRow {
  row: number;
  values: RowValues;
  sameAs?: number;
}

export interface RowError {
  /** That of the error; without it, 106. */
  code?: number;
  column?: string;
  message: string;
}

/** The outcome of a row. */
export type Outcome = Pick<JobRow, 'row' | 'deviceId' | 'before' | 'errors' | 'commandId' | 'sealedResult'> & {
  state: RowState;
};

/** Rows that have been looked at. */
export interface Prepared {
  /** Does them; an outcome for each. A PlatformError that it throws ends the job. */
  write(tx: Tx, caller: Caller): Promise<Outcome[]>;
  /** Notifications to send after the commit. */
  after?(caller: Caller): Promise<void>;
}

/** Looks at rows of a job, before the transaction that does them. */
export type Work = (caller: Caller, rows: readonly GivenRow[]) => Promise<Prepared>;

/** Begins or goes on with a job. */
export type OpenWork = (run: Run) => Work;

export function givenRow({ row, input }: Pick<JobRow, 'row' | 'input'>): GivenRow {
  const { values, sameAs } = JSON.parse(input) as StoredRow;
  return { row, values, ...(sameAs !== undefined && { sameAs }) };
}

export function outcome(row: number, state: RowState, more: Partial<Outcome> = {}): Outcome {
  return { row, state, deviceId: null, before: null, errors: null, commandId: null, sealedResult: null, ...more };
}

/** Characters of the errors that are kept of a row, and of each of them. */
const maxErrorsLength = 2000;
const maxErrorLength = 500;

export function failedRow(row: number, errors: readonly RowError[], more: Partial<Outcome> = {}): Outcome {
  return outcome(row, 'failed', { errors: JSON.stringify(shortened(errors)), ...more });
}

/** A row of a few bytes may have an error for each of many fields. */
function shortened(errors: readonly RowError[]): RowError[] {
  const kept: RowError[] = [];
  let length = 0;
  for (const { code = failureOf('invalid').code, column, message } of errors) {
    const short = message.length > maxErrorLength ? `${message.slice(0, maxErrorLength).toWellFormed()}…` : message;
    length += short.length + (column?.length ?? 0);
    if (kept.length > 0 && length > maxErrorsLength) {
      kept.push({ message: `and ${errors.length - kept.length} more errors` });
      break;
    }
    kept.push({ code, ...(column !== undefined && { column: column.slice(0, maxErrorLength) }), message: short });
  }
  return kept;
}

/** The errors of a row from a refusal. @throws any other error. */
export function rowErrors(error: unknown): RowError[] {
  if (!(error instanceof PlatformError)) throw error;
  const { code, details } = error;
  if (details.length === 0) return [{ code, message: error.message }];
  return details.map(({ path, message }: ErrorDetail) => ({ code, ...(path && { column: path }), message }));
}
