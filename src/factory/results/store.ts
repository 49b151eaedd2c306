/** The results of a row, sealed with a key of its job. Without the key they cannot be read. */

import { randomBytes } from 'node:crypto';
import { decrypt, encrypt } from '../../formats/aes-gcm.js';
import type { Sealing } from '../../identity/secrets/sealing.js';
import type { Job } from '../jobs/job.js';

const keyBytes = 32;

/** The stored values of a unit, until its job's results are destroyed. */
export interface Result {
  serialNumber: string;
  deviceTemplateId: string;
  secret: string;
  /** Without hyphens; a regenerated secret comes without one. */
  code?: string;
}

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

  seal(row: number, result: Result): Buffer {
    return encrypt(this.#key, JSON.stringify(result), this.#owner(row));
  }

  /** @throws Error when it was sealed for another row or job, or has been altered. */
  open(row: number, sealed: Buffer): Result {
    return JSON.parse(decrypt(this.#key, sealed, this.#owner(row))) as Result;
  }

  #owner(row: number): string {
    return `${this.#jobId}/${row}`;
  }
}
