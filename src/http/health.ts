/** Whether the service works, for load balancers and whatever restarts it: /health/live and /health/ready. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.ts';
import { diskFault, isStoreBusy, type Registry } from '../../db/registry/index.ts';
import type { Config } from '../core/config.ts';
import { joinRun } from '../core/scheduler/runs.ts';
import type { App } from './app.ts';
import { demandToken } from './guards/operator-token.ts';

/** Milliseconds for which an answer is good: asking often costs nothing. */
const goodFor = 1000;
/** A store that has committed in this time, in milliseconds, need not prove again that it can. */
const provenFor = 10_000;
/** Milliseconds for which a fault of the disk counts, though small writes may succeed in between. */
const failedFor = 5000;
/** Milliseconds that a store may take to prove it. */
const patience = 2000;

/** Problems that keep the service from doing its work. */
export interface Problem {
  part: 'process' | 'broker' | 'messages' | 'registry';
  reason: string;
}

type Services = { broker: { readonly isListening: boolean }; messages: MessageStore; registry: Registry; log: Logger };
type Store = Services['messages'] | Services['registry'];

export class Health {
  readonly #services: Services;
  #isStopping = false;
  #isReady = true;
  readonly #proving = new Map<Store, Promise<void>>();
  #looked: { at: number; problems: Promise<Problem[]> } | undefined;

  constructor(services: Services) {
    this.#services = services;
  }

  /** From now on it is not ready: it ends soon. */
  stopping(): void {
    this.#isStopping = true;
  }

  /** Why it is not ready; empty when it is. Never rejects. */
  async problems(): Promise<Problem[]> {
    const now = performance.now();
    if (!this.#looked || now - this.#looked.at >= goodFor) this.#looked = { at: now, problems: this.#findProblems() };
    const stopping: Problem[] = this.#isStopping ? [{ part: 'process', reason: 'The service is stopping.' }] : [];
    return [...stopping, ...(await this.#looked.problems)];
  }

  async #findProblems(): Promise<Problem[]> {
    const { broker, messages, registry } = this.#services;
    const problems: Problem[] = [];
    if (!broker.isListening) problems.push({ part: 'broker', reason: 'The broker does not listen.' });
    const [ofMessages, ofRegistry] = await Promise.all([this.#proveStore(messages), this.#proveStore(registry)]);
    const full = messages.full?.message;
    if (full !== undefined) problems.push({ part: 'messages', reason: full });
    else if (ofMessages) problems.push({ part: 'messages', reason: ofMessages });
    if (ofRegistry) problems.push({ part: 'registry', reason: ofRegistry });
    this.#logProblems(problems);
    return problems;
  }

  /** Said once, not to everybody who asks. */
  #logProblems(problems: Problem[]): void {
    const { log } = this.#services;
    const isReady = problems.length === 0;
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    if (isReady) log.warn('ready again');
    else log.error({ problems }, 'not ready');
  }

  /** Why a store cannot be written. */
  async #proveStore(store: Store): Promise<string | undefined> {
    const { succeededAt, failure } = store.writer.commits;
    const now = performance.now();
    if (failure && now - failure.at < failedFor) return failure.reason;
    if (now - succeededAt < provenFor && succeededAt > (failure?.at ?? 0)) return undefined;
    const late = new AbortController();
    try {
      const proven = this.#proof(store).then(() => true);
      const inTime = await Promise.race([proven, sleep(patience, false, { signal: late.signal, ref: false })]);
      return inTime ? undefined : `A commit has not ended within ${patience / 1000} seconds.`;
    } catch (error) {
      if (isStoreBusy(error)) return 'Another program holds the file.';
      if (this.#isReady) this.#services.log.error({ err: error }, 'a store could not prove that it can be written');
      return diskFault(error) ?? 'A commit has failed.';
    } finally {
      late.abort();
    }
  }

  /** One at a time: those of a store that hangs would pile up. */
  #proof(store: Store): Promise<void> {
    return joinRun(this.#proving, store, () => store.proveWritable());
  }
}

/** Mounts the endpoints: open unless SLIPWAY_METRICS_TOKEN is set, as the metrics are. */
export function healthRoutes(app: App, ctx: { config: Config; health: Health }): void {
  app.get('/health/live', { schema: { hide: true } }, async (request, reply) => {
    demandToken(request, ctx.config.metricsToken);
    reply.header('cache-control', 'no-store');
    return { live: true };
  });
  app.get('/health/ready', { schema: { hide: true } }, async (request, reply) => {
    demandToken(request, ctx.config.metricsToken);
    const problems = await ctx.health.problems();
    reply.header('cache-control', 'no-store').status(problems.length === 0 ? 200 : 503);
    return { ready: problems.length === 0, problems };
  });
}
