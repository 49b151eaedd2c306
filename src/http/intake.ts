/** How much of large bodies is held at once: they are in memory until they are stored. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { PlatformError } from '../core/errors.ts';

/** Of the largest body: what may be on its way of one caller, of one account and in all. Nobody's slow bodies take everybody's place. */
export interface IntakeLimits {
  /** Bytes of the largest body, and bytes that one counts at least: it may be larger in memory. */
  maxBytes: number;
  minBytes: number;
  /** How many of the largest bodies. */
  perCaller: number;
  perAccount: number;
  total: number;
  /** What callers are told when it is too much. */
  message: string;
}

/** Seconds after which it is worth trying again. */
const retryAfter = 5;

interface HeldBody {
  callerId: string;
  accountId: string;
  bytes: number;
  /** It is needed even if the caller has gone away. */
  inUse: boolean;
}

export class Intake {
  readonly #limits: IntakeLimits;
  readonly #held = new Map<FastifyRequest, HeldBody>();

  constructor(limits: IntakeLimits) {
    this.#limits = limits;
  }

  /**
   * Counts a body until its answer is sent or its caller gone; one of unknown length as the longest. To be called before
   * it is read. @throws PlatformError 429/-199 when there are too many already.
   */
  takeRequest(request: FastifyRequest, reply: FastifyReply): void {
    const { id: callerId, accountId } = request.caller;
    const { maxBytes, minBytes, perCaller, perAccount, total, message } = this.#limits;
    const declared = Number(request.headers['content-length'] ?? maxBytes);
    const bytes = Math.min(maxBytes, Math.max(minBytes, declared));
    const all = [...this.#held.values()];
    const ofCaller = all.filter((one) => one.callerId === callerId);
    const ofAccount = all.filter((one) => one.accountId === accountId);
    const isTooMuch =
      sum(ofCaller) + bytes > perCaller * maxBytes ||
      sum(ofAccount) + bytes > perAccount * maxBytes ||
      sum(all) + bytes > total * maxBytes;
    if (isTooMuch) {
      const allowance = { limit: perCaller * maxBytes, remaining: 0, reset: retryAfter };
      throw new PlatformError('tooMany', { message, allowance });
    }
    this.#held.set(request, { callerId, accountId, bytes, inUse: false });
    const leave = () => {
      if (!this.#held.get(request)?.inUse) this.#held.delete(request);
    };
    reply.raw.once('finish', leave);
    reply.raw.once('close', leave);
  }

  /** Does what needs a body; then it counts no more. */
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

function sum(held: readonly HeldBody[]): number {
  return held.reduce((bytes, one) => bytes + one.bytes, 0);
}
