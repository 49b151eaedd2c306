/** Idempotency-Key: the same key with the same request from the same caller gets the first answer again. */

import { createHash, createHmac } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Registry } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { boundedCache } from '../../db/sqlite/cache.ts';
import type { Access } from '../core/access.ts';
import { type Caller, principalOf } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { keptOf } from '../core/limits/kept.ts';
import { exceeded } from '../core/limits/table.ts';
import { queueTurn } from '../core/scheduler/runs.ts';
import type { App } from '../http/app.ts';
import { answerLifetime, gone, type Keyed, running, sealAnswer, unsealAnswer } from './kept-answers.ts';

/** Characters of an answer that is kept; a longer one is made again, or read back. */
const maxAnswerLength = 65_536;

/** Callers whose keys are counted in memory, and how long that holds, in milliseconds. */
const callersKept = 10_000;
const countedFor = 60_000;

/** The first request with a key, while it runs. */
interface Started {
  keyed: Keyed;
  done(): void;
}

/** Makes a digest with a key of the service. */
interface Digests {
  digest(owner: string, text: string): string;
}

type IdempotencyServices = { registry: Registry; clock: Clock; config: Config; access: Access; sealing: Digests };

/** Serves requests with the header `Idempotency-Key` to routes that have `creates`. Mount behind authentication. */
export function idempotentPosts(app: App, ctx: IdempotencyServices): void {
  const answers = new FirstAnswers(app, ctx);
  app.addHook('preValidation', (request, reply, next) => {
    const key = request.headers['idempotency-key'];
    if (typeof key !== 'string' || !request.routeOptions.config.creates) return next();
    if (key === '' || key.length > 255) return next(invalid('Idempotency-Key', 'must have 1 to 255 characters'));
    const keyed = keyOf(request, ctx.sealing.digest('Idempotency-Key', key), timestamp(ctx.clock));
    answers.answerAgain(request, reply, keyed).then((answered) => {
      if (!answered) running.run(keyed, next);
    }, next);
  });
  app.addHook('onSend', (request, reply, payload, next) => {
    const first = answers.startedBy(request);
    if (!first) return next();
    answers.keepAnswer(request, reply, first, payload).then(() => next(), next);
  });
  // Also when the caller has gone away in the middle.
  app.addHook('onResponse', (request, _, next) => {
    answers.startedBy(request)?.done();
    next();
  });
}

/** The first answers to requests with a key: kept, and given again. */
class FirstAnswers {
  readonly #app: App;
  readonly #ctx: IdempotencyServices;
  readonly #keptHeaders: readonly string[];
  /** Keys that are kept for a caller, as far as they have been counted, and when that was. */
  readonly #counted = boundedCache<string, { count: number; at: number }>(callersKept);
  /** A second request waits here for the first with its key. */
  readonly #underWay = new Map<string, Promise<void>>();
  readonly #started = new WeakMap<FastifyRequest, Started>();

  constructor(app: App, ctx: IdempotencyServices) {
    this.#app = app;
    this.#ctx = ctx;
    const { headerPrefix } = ctx.config;
    this.#keptHeaders = ['etag', `${headerPrefix}-ignored-properties`, `${headerPrefix}-revocation`];
  }

  /** Undefined for a request without a key. */
  startedBy(request: FastifyRequest): Started | undefined {
    return this.#started.get(request);
  }

  /** Whether the request has been answered with what is kept; otherwise it is the first of its key. */
  async answerAgain(request: FastifyRequest, reply: FastifyReply, keyed: Keyed): Promise<boolean> {
    const { clock, registry } = this.#ctx;
    const { keyHash, requestHash } = keyed;
    this.#started.set(request, { keyed, done: await queueTurn(this.#underWay, keyHash) });
    const rows = registry.query.selectFrom('idempotentAnswers').selectAll().where('keyHash', '=', keyHash);
    const kept = await rows.executeTakeFirst();
    if (!kept) {
      await this.#demandRoom(request.caller);
      return false;
    }
    if (Date.parse(kept.created) + answerLifetime <= clock.now()) {
      await registry.query.deleteFrom('idempotentAnswers').where('keyHash', '=', keyHash).execute();
      return false;
    }
    if (kept.requestHash !== requestHash) throw invalid('Idempotency-Key', 'has been used with another request');
    await this.#demandStill(request, kept);
    if (kept.status === gone) throw new PlatformError('answerGone');
    reply.header('idempotent-replayed', 'true').type('application/json; charset=utf-8');
    if (kept.answer !== null) {
      const [headers, answer] = unsealAnswer(keyed.key, kept.answer);
      // As text: it is short, and was made by the route once.
      reply
        .status(kept.status ?? 200)
        .headers(headers)
        .send(JSON.stringify(answer));
      return true;
    }
    // The process ended between the commit and the answer: what was made is read back.
    const { statusCode, headers, payload } = await this.#readBack(request, kept.entityId);
    if (headers.etag !== undefined) reply.header('etag', headers.etag);
    reply.status(statusCode).send(payload);
    return true;
  }

  /** @throws PlatformError 429/-199 when the caller has used as many keys as are kept for it. */
  async #demandRoom({ id }: Caller): Promise<void> {
    const { clock, config, registry } = this.#ctx;
    const most = config.limits.idempotencyKeys;
    if (most === 0) return;
    const now = clock.now();
    let known = this.#counted.get(id);
    if (!known || known.count >= most || now - known.at > countedFor) {
      known = { count: await countKeys(registry, id, now), at: now };
      this.#counted.set(id, known);
    }
    known.count += 1;
    if (known.count <= most) return;
    const details = [exceeded(config.limits, 'idempotencyKeys', 'Idempotency-Key')];
    const allowance = { limit: most, remaining: 0, reset: 3600 };
    throw new PlatformError('tooMany', {
      message: 'Too many Idempotency-Keys are kept for this caller.',
      details,
      allowance,
    });
  }

  /**
   * Whether the caller may still have the answer: the right that the request needs, and what it has made in reach.
   * @throws PlatformError 403/21, 404/100.
   */
  async #demandStill(request: FastifyRequest, { entityId, secretOf }: Row<'idempotentAnswers'>): Promise<void> {
    const { access, registry } = this.#ctx;
    const { right } = request.routeOptions.config;
    if (right) access.demand(request.caller, ...right);
    const caller = right ? access.narrow(request.caller, ...right) : request.caller;
    if (secretOf !== null) {
      const device = registry.query.selectFrom('devices').where('id', '=', secretOf);
      const row = await device
        .select(['accountId', 'organizationId', 'deviceTemplateId', 'createdById'])
        .executeTakeFirst();
      if (row && !access.reachesDevice(caller, row)) throw new PlatformError('notFound');
      return;
    }
    if (entityId === null || !this.#app.hasRoute({ method: 'GET', url: `${madeAt(request)}/:id` })) return;
    const { statusCode } = await this.#readBack(request, entityId);
    if (statusCode === 404) throw new PlatformError('notFound');
    if (statusCode === 403) throw new PlatformError('forbidden');
  }

  /** The entity that a request created, as its caller sees it now: live, or in the trash. */
  async #readBack(request: FastifyRequest, entityId: string | null) {
    const { headers, address } = request;
    const { authorization, cookie } = headers;
    const caller = {
      headers: { ...(authorization && { authorization }), ...(cookie && { cookie }) },
      remoteAddress: address,
    };
    const { made } = request.routeOptions.config;
    const path = urlOfMade(request, entityId);
    const live = await this.#app.inject({ method: 'GET', url: path, ...caller });
    if (live.statusCode === 200 && made)
      return { headers: live.headers, payload: live.payload, statusCode: made.status };
    if (live.statusCode !== 410) return live;
    const inTrash = path.replace('/api/v1/', '/api/v1/trash/');
    const trashed = await this.#app.inject({ method: 'GET', url: inTrash, ...caller });
    // Not every kind has a trash that can be read.
    return trashed.statusCode === 200 ? trashed : live;
  }

  async keepAnswer(request: FastifyRequest, reply: FastifyReply, first: Started, payload: unknown) {
    const { statusCode } = reply;
    const isKept = statusCode < 500 && statusCode !== 429 && !reply.hasHeader('idempotent-replayed');
    try {
      if (!isKept) return;
      const isShort = typeof payload === 'string' && payload.length <= maxAnswerLength;
      const { isSealed, accountId } = first.keyed;
      if (!isShort || (!isSealed && (await this.#isFull(accountId, payload.length))))
        reply.header(`${this.#ctx.config.headerPrefix}-idempotency`, 'not-kept');
      else {
        const headers = this.#keptHeaders.flatMap((name) =>
          reply.hasHeader(name) ? [[name, reply.getHeader(name)]] : [],
        );
        await this.#keepAnswer(
          first.keyed,
          statusCode,
          sealAnswer(first.keyed.key, Object.fromEntries(headers), payload),
        );
      }
    } catch (error) {
      request.log.error({ err: error }, 'an answer could not be kept for its Idempotency-Key');
    } finally {
      // Here and not later: the caller may have gone away, and then there is no response to wait for.
      first.done();
    }
  }

  /** Whether an answer so long would exceed what is kept for the account, sealed and as text. */
  async #isFull(accountId: string, length: number): Promise<boolean> {
    const { config, registry } = this.#ctx;
    const most = config.limits.idempotentBytes;
    return most > 0 && (await keptOf(registry.query, accountId, 'idempotentBytes')) + sealedLength(length) > most;
  }

  async #keepAnswer(
    { keyHash, requestHash, created, callerId, accountId, made }: Keyed,
    status: number,
    answer: string,
  ) {
    const { registry } = this.#ctx;
    if (made) {
      const noted = registry.query.updateTable('idempotentAnswers').where('keyHash', '=', keyHash);
      const { numUpdatedRows } = await noted.set({ status, answer }).executeTakeFirst();
      if (numUpdatedRows > 0n) return;
    }
    await registry.query
      .insertInto('idempotentAnswers')
      .values({ keyHash, requestHash, created, entityId: null, secretOf: null, status, answer, callerId, accountId })
      .onConflict((conflict) => conflict.doNothing())
      .execute();
  }
}

/** How many keys are kept for a caller. */
async function countKeys({ query }: Registry, callerId: string, now: number): Promise<number> {
  const { count } = await query
    .selectFrom('idempotentAnswers')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('callerId', '=', callerId)
    .where('created', '>', new Date(now - answerLifetime).toISOString())
    .executeTakeFirstOrThrow();
  return Number(count);
}

/** The pattern of the URLs below which what a request makes is read. */
function madeAt({ routeOptions }: FastifyRequest): string {
  const { made } = routeOptions.config;
  return made ? `/api/v1${made.at}` : (routeOptions.url ?? '');
}

/** The URL of what a request has made. */
function urlOfMade(request: FastifyRequest, entityId: string | null): string {
  const params = request.params as Record<string, string>;
  const path = madeAt(request).replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ''));
  return `${path}/${entityId}`;
}

/** `key` is made of the caller's with a key of the service: guessing it needs more than the database. */
function keyOf(request: FastifyRequest, key: string, created: string): Keyed {
  const { caller, body } = request;
  // With a slash at its end it is the same URL.
  const url = request.url.replace(/\/(?=\?|$)/, '');
  // Anyone who has another role meanwhile is another caller: a right that is gone gets no answer again.
  const parts = [caller.accountId, principalOf(caller), caller.kind, key];
  const keyHash = createHash('sha256').update(parts.join('\0')).digest('base64');
  // Bodies hold passwords: without the key, which is not stored, the hash tells nothing of them.
  const requestHash = createHmac('sha256', key)
    .update(`${url}\0${JSON.stringify(body ?? null)}`)
    .digest('base64');
  const of = { callerId: caller.id, accountId: caller.accountId };
  return { key, keyHash, requestHash, created, ...of, made: false, isSealed: false };
}

/** Characters of a sealed answer of so many characters, about: base64 takes four for three. */
function sealedLength(length: number): number {
  return Math.ceil((length * 4) / 3) + 100;
}
