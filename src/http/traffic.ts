/** Requests over HTTP, by the pattern of their route: what callers put into a URL makes no line of its own. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Latency } from '../../db/sqlite/latency.ts';
import { type FailureKind, failureKinds } from '../core/errors.ts';

interface Route {
  method: string;
  route: string;
  latency: Latency;
  byStatus: Map<number, number>;
}

/** The label of requests without a route. Methods that no route has share one label. */
const nowhere = { method: 'any', route: 'none' };

export class Traffic {
  readonly #routes = new Map<string, Route>();
  readonly #byConfig = new WeakMap<object, Route>();
  readonly refusals: Record<FailureKind, number>;

  constructor() {
    this.refusals = Object.fromEntries(failureKinds.map((kind) => [kind, 0])) as Record<FailureKind, number>;
  }

  get routes(): Iterable<Route> {
    return this.#routes.values();
  }

  /** To be told of each answer that has been sent. Server-sent events take as long as somebody listens: no latency. */
  answered(request: FastifyRequest, reply: FastifyReply): void {
    const route = this.#routeOf(request);
    const { statusCode, elapsedTime } = reply;
    route.byStatus.set(statusCode, (route.byStatus.get(statusCode) ?? 0) + 1);
    if (!String(reply.getHeader('content-type')).startsWith('text/event-stream')) route.latency.observe(elapsedTime);
  }

  #routeOf({ method, routeOptions: { url, config } }: FastifyRequest): Route {
    // Routes that serve HEAD and GET share a configuration.
    const known = this.#byConfig.get(config);
    if (known?.method === method) return known;
    const about = url === undefined ? nowhere : { method, route: url };
    const key = `${about.method} ${about.route}`;
    const route = this.#routes.get(key) ?? { ...about, latency: new Latency(), byStatus: new Map<number, number>() };
    this.#routes.set(key, route);
    if (url !== undefined) this.#byConfig.set(config, route);
    return route;
  }
}
