/** A float of four bytes. */
import { type Reading, toPoint } from '../reading.ts';

/** What it is, for the explanation of a refusal. */
export const float32Form = 'float32: four bytes, little-endian';

/** Exactly four bytes, a little-endian float. */
export function readFloat(payload: Buffer, now: number): Reading {
  if (payload.length !== 4) return { reason: `it has ${payload.length} bytes, not 4.` };
  const point = toPoint(now, '', payload.readFloatLE(0), null);
  return typeof point === 'string' ? { reason: point } : { points: [point] };
}
