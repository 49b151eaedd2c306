/**
 * Begins requests a few milliseconds at a time: those beyond wait, and accounts take turns. However many requests come
 * at once, messages and the requests of others are not kept waiting for all of them.
 */
import { AsyncResource } from 'node:async_hooks';
import type { FastifyRequest } from 'fastify';
import { laneOf, laneOfAddress } from '../../core/limits/lanes.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler } from '../../core/scheduler/scheduler.ts';
import { slices } from '../../core/scheduler/time-slice.ts';
import type { App } from '../app.ts';

/** In whose lane a request writes: its caller's, or its address's while nobody is known. */
export function laneOfRequest(request: FastifyRequest): () => Lane {
  // A request that has ended has no socket to ask.
  const { address } = request;
  return () => (request.caller ? laneOf(request.caller) : laneOfAddress(address));
}

/** `accountOf` gives the account of a token that was verified before; it must neither wait nor verify. */
export function paceRequests(app: App, accountOf: (request: FastifyRequest) => string | undefined): void {
  const turns = new Scheduler({ slice: slices.requests });
  app.addHook('onRequest', (request, _, done) => {
    if (!turns.isOver) {
      turns.spend(1);
      return done();
    }
    const lane = laneOfAddress(request.address);
    lane.accountId = accountOf(request) ?? lane.accountId;
    // A client that has gone needs no answer: its requests would keep others waiting.
    const begin = () => {
      if (!request.raw.socket.destroyed) done();
    };
    turns.wait(lane, AsyncResource.bind(begin));
    return undefined;
  });
}
