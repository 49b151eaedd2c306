/** The type of the Fastify server with what Slipway adds to requests. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { Caller } from '../core/caller.ts';
import type { Scheduler } from '../core/scheduler/scheduler.ts';

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

declare module 'fastify' {
  interface FastifyRequest {
    /** The caller, on every endpoint behind authentication. */
    caller: Caller;
    /** Where it comes from, behind the proxies that are trusted; empty when the socket has gone meanwhile. */
    address: string;
  }
  interface FastifyInstance {
    headerPrefix: string;
    /** Whether an unknown property of a body is an error. */
    strictBodies: boolean;
    /** Whether an unknown parameter of a query is an error. */
    strictQueries: boolean;
    /** The places of long answers, by account. */
    longAnswers: Scheduler;
  }
}
