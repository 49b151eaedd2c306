/**
 * Begins requests a few milliseconds at a time: those beyond wait, and accounts take turns. However many requests come
 * at once, messages and the requests of others are not kept waiting for all of them.
 */
import { AsyncResource } from 'node:async_hooks';
import type { FastifyRequest } from 'fastify';
import { FairLanes, type Lane, laneOf, laneOfAddress } from '../../limits/fair-queue.ts';
import type { App } from '../app.ts';

/** Milliseconds of requests in one turn of the event loop. One request may take longer. */
const sliceTime = 4;
/**
 * Requests that begin in each turn at least, when the process itself gets little of the machine, and at most. In a turn
 * that others have made long one begins at least for each `every` milliseconds of it.
 */
const perTurn = { min: 4, every: 4, minOfLong: 16, max: 32 };

/** In whose lane a request writes: its caller's, or its address's while nobody is known. */
export function laneOfRequest(request: FastifyRequest): () => Lane {
  // A request that has ended has no socket to ask.
  const { address } = request;
  return () => (request.caller ? laneOf(request.caller) : laneOfAddress(address));
}

/** `accountOf` gives the account of a token that was verified before; it must neither wait nor verify. */
export function paceRequests(app: App, accountOf: (request: FastifyRequest) => string | undefined): void {
  const waiting = new FairLanes<() => void>();
  /** When the first request of this turn of the event loop began; undefined before it. */
  let since: number | undefined;
  let begun = 0;
  let least = perTurn.min;
  /** When it was said that those that wait begin in the next turn. */
  let scheduled: number | undefined;
  const hasTime = () => {
    begun += 1;
    if (since === undefined) {
      since = performance.now();
      const passed = since - (scheduled ?? since);
      least = Math.max(perTurn.min, Math.min(perTurn.minOfLong, passed / perTurn.every));
      schedule();
      return true;
    }
    return begun <= least || performance.now() - since < sliceTime;
  };
  /** Those that wait begin in each turn, however long the others make it, and before those that come in that turn. */
  const schedule = () => {
    if (scheduled !== undefined) return;
    scheduled = performance.now();
    // Each in a callback of its own: what it does at once belongs to its time.
    for (let n = Math.min(perTurn.max, waiting.size); n > 0; n -= 1) setImmediate(beginNext);
    setImmediate(endTurn);
  };
  const beginNext = () => {
    if (waiting.size > 0 && hasTime()) waiting.shift()?.();
  };
  const endTurn = () => {
    since = undefined;
    begun = 0;
    scheduled = undefined;
    if (waiting.size > 0) schedule();
  };

  app.addHook('onRequest', (request, _, done) => {
    if (waiting.size === 0 && hasTime()) return done();
    const lane = laneOfAddress(request.address);
    lane.accountId = accountOf(request) ?? lane.accountId;
    // A client that has gone needs no answer: its requests would keep others waiting.
    const begin = () => request.raw.socket.destroyed || done();
    waiting.push(lane, 1, AsyncResource.bind(begin));
    return undefined;
  });
}
