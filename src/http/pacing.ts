/**
 * Begins requests a few milliseconds at a time: those beyond wait, and addresses take turns. However many requests come
 * at once, messages and the requests of others are not kept waiting for all of them.
 */
import { AsyncResource } from 'node:async_hooks';
import { networkOf } from '../attempts.js';
import { FairLanes } from '../fair-queue.js';
import type { App } from './app.js';

/** Milliseconds of requests in one turn of the event loop. One request may take longer. */
const sliceTime = 4;
/** Requests that may begin between two looks at what else there is to do. */
const atOnce = 8;

export function paceRequests(app: App): void {
  const waiting = new FairLanes<() => void>();
  /** When the first request of this turn of the event loop began; undefined before it. */
  let since: number | undefined;
  const hasTime = () => {
    if (since === undefined) {
      since = performance.now();
      setImmediate(goOn);
      return true;
    }
    return performance.now() - since < sliceTime;
  };
  const goOn = () => {
    since = undefined;
    // Each in a callback of its own: what it does at once belongs to its time.
    for (let n = Math.min(atOnce, waiting.size); n > 0; n -= 1) setImmediate(beginNext);
  };
  const beginNext = () => {
    if (waiting.size > 0 && hasTime()) waiting.shift()?.();
  };

  app.addHook('onRequest', (request, _, done) => {
    if (waiting.size === 0 && hasTime()) return done();
    const { socket } = request.raw;
    const lane = { accountId: networkOf(request.address), callerId: `${socket?.remotePort}` };
    waiting.push(lane, 1, AsyncResource.bind(done));
    return undefined;
  });
}
