/**
 * The results of rows, sealed with a key of their job: without the key they cannot be read. Those of many rows are sealed as one,
 * and stored with the first of them.
 */

import { randomBytes } from 'node:crypto';
import { decrypt, encrypt } from '../../core/formats/aes-gcm.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import type { Job, JobRow } from '../jobs/job.ts';

const keyBytes = 32;

/** The stored values of a unit, until its job's results are destroyed. */
export interface Result {
  row: number;
  deviceId: string;
  serialNumber: string;
  deviceTemplateId: string;
  secret: string;
  /** Without hyphens; a regenerated secret comes without one. */
  code?: string;
}

/** Earlier versions sealed each row by itself. */
type FormerResult = Omit<Result, 'row' | 'deviceId'>;

/** A new key for the results of a job, as it is stored. */
export function makeResultKey(sealing: Sealing, jobId: string): string {
  return sealing.seal(`job/${jobId}`, randomBytes(keyBytes).toString('base64'));
}

/** Seals and opens the results of one job. */
export class ResultSeal {
  readonly #key: Buffer;
  readonly #jobId: string;

  private constructor(key: Buffer, jobId: string) {
    this.#key = key;
    this.#jobId = jobId;
  }

  /** Undefined when the job has no key: it has no results, or they have been destroyed. */
  static of(
    { sealing }: { sealing: Sealing },
    { id, sealedKey }: Pick<Job, 'id' | 'sealedKey'>,
  ): ResultSeal | undefined {
    if (sealedKey === null) return undefined;
    return new ResultSeal(Buffer.from(sealing.open(`job/${id}`, sealedKey), 'base64'), id);
  }

  /** Seals results that are stored with the row of the first. */
  seal(results: readonly [Result, ...Result[]]): Buffer {
    return encrypt(this.#key, JSON.stringify(results), this.#owner(results[0].row));
  }

  /** The results that are stored with a row. @throws Error when they were sealed for another row or job, or have been altered. */
  open({ row, deviceId, sealedResult }: Pick<JobRow, 'row' | 'deviceId' | 'sealedResult'>): Result[] {
    if (!sealedResult) return [];
    const opened = JSON.parse(decrypt(this.#key, sealedResult, this.#owner(row))) as Result[] | FormerResult;
    return Array.isArray(opened) ? opened : [{ row, deviceId: deviceId ?? '', ...opened }];
  }

  #owner(row: number): string {
    return `${this.#jobId}/${row}`;
  }
}
