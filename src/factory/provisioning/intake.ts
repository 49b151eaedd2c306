/** How much of bodies with rows is held at once: they are in memory until their job is stored. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { PlatformError } from '../../errors.ts';
import { maxBytes } from './rows.ts';

/** Bytes that may be on their way, of one caller, of one account and in all: nobody's slow bodies take everybody's place. */
const maxPerCaller = 2 * maxBytes;
const maxPerAccount = 4 * maxBytes;
const maxTotal = 8 * maxBytes;
/** Bytes that a body counts at least: a row is larger in memory than in a body. */
const minBytes = 256 * 1024;
/** Seconds after which it is worth trying again. */
const retryAfter = 5;

interface Held {
  callerId: string;
  accountId: string;
  bytes: number;
  /** Its rows are needed even if the caller has gone away. */
  inUse: boolean;
}

export class Intake {
  readonly #held = new Map<FastifyRequest, Held>();

  /**
   * Counts a body until its answer is sent or its caller gone; one of unknown length as the longest. To be called before
   * it is read. @throws PlatformError 429/-199 when there are too many already.
   */
  takeRequest(request: FastifyRequest, reply: FastifyReply): void {
    const { id: callerId, accountId } = request.caller;
    const declared = Number(request.headers['content-length'] ?? maxBytes);
    const bytes = Math.min(maxBytes, Math.max(minBytes, declared));
    const all = [...this.#held.values()];
    const ofCaller = all.filter((one) => one.callerId === callerId);
    const ofAccount = all.filter((one) => one.accountId === accountId);
    const isTooMuch =
      sum(ofCaller) + bytes > maxPerCaller || sum(ofAccount) + bytes > maxPerAccount || sum(all) + bytes > maxTotal;
    if (isTooMuch) {
      const allowance = { limit: maxPerCaller, remaining: 0, reset: retryAfter };
      throw new PlatformError('tooMany', { message: 'Too many uploads of rows at once.', allowance });
    }
    this.#held.set(request, { callerId, accountId, bytes, inUse: false });
    const leave = () => {
      if (!this.#held.get(request)?.inUse) this.#held.delete(request);
    };
    reply.raw.once('finish', leave);
    reply.raw.once('close', leave);
  }

  /** Does what needs the rows of a body; then it counts no more. */
  async use<R>(request: FastifyRequest, work: () => Promise<R>): Promise<R> {
    const held = this.#held.get(request);
    if (held) held.inUse = true;
    try {
      return await work();
    } finally {
      this.#held.delete(request);
    }
  }
}

function sum(held: readonly Held[]): number {
  return held.reduce((bytes, one) => bytes + one.bytes, 0);
}
