/** Bodies of server-sent events: how one ends whose maker has no more to say, or whose reader may not read on. */
import type { Readable } from 'node:stream';

/**
 * Ends a body at once. Its reader gets the end of a chunked body if it has taken everything before. Otherwise its connection
 * is closed: it shall not get the rest any more. Nothing may be pushed afterwards.
 */
export function endEvents(body: Readable): void {
  if (body.destroyed || body.readableEnded) return;
  const isBehind = body.readableLength > 0 || body.readableFlowing === false;
  if (isBehind) body.destroy();
  else body.push(null);
}
