/** Authentication of the operator's endpoints: SLIPWAY_METRICS_TOKEN as Bearer, if it is set. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { PlatformError } from '../../core/errors.ts';

/** @throws PlatformError 401 without it, or with another; never when none is set. */
export function demandToken({ headers }: Pick<FastifyRequest, 'headers'>, token: string | undefined): void {
  if (token === undefined) return;
  const [scheme, given] = headers.authorization?.split(' ', 2) ?? [];
  if (scheme?.toLowerCase() !== 'bearer' || !given) throw new PlatformError('tokenMissing');
  if (!timingSafeEqual(digest(given), digest(token))) throw new PlatformError('tokenInvalid');
}

/** Of one length, whatever was sent. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
