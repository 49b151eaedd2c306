/** Random bytes of what is no secret, such as ids and salts: to draw many at once takes as long as to draw a few. */
import { randomFillSync } from 'node:crypto';

const drawnAtOnce = 4096;

let drawn = Buffer.alloc(drawnAtOnce);
let used = drawnAtOnce;

/** So many random bytes, at most 4,096. Secrets are drawn by themselves: other bytes of these are in memory for long. */
export function randomSome(bytes: number): Buffer {
  if (used + bytes > drawnAtOnce) {
    drawn = randomFillSync(Buffer.allocUnsafeSlow(drawnAtOnce));
    used = 0;
  }
  used += bytes;
  return drawn.subarray(used - bytes, used);
}
