/** The HTTP server: what every request and every answer goes through. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { Server as TlsServer } from 'node:tls';
import cookie from '@fastify/cookie';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, { type FastifyBaseLogger, type FastifyReply, type FastifyRequest, LogController } from 'fastify';
import type { Logger } from 'pino';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Access } from '../core/access.ts';
import type { AccountGate } from '../core/account-gate.ts';
import type { Config } from '../core/config.ts';
import { PlatformError } from '../core/errors.ts';
import { onBehalfOf } from '../core/log.ts';
import { forwardedAddress, peerAddress, type Trust, trustOf } from '../core/network/addresses.ts';
import { endHandshakesWith } from '../core/network/handshakes.ts';
import { asksForCertificates, secureOptions } from '../core/network/server-tls.ts';
import type { Scheduler } from '../core/scheduler/scheduler.ts';
import { noteFailure, sendError } from './answers/errors.ts';
import type { App } from './app.ts';
import { schemaCompilers, strictBodies } from './bodies.ts';
import { checkDigests } from './body-digests.ts';
import { lookAtBodyNames } from './body-names.ts';
import { decodeBodies } from './content-encoding.ts';
import { askAccountGate } from './guards/account-gate.ts';
import { anonymousBodyBytes, limitConnections, throttleAnonymous } from './guards/anonymous.ts';
import { answerHeaders } from './guards/answer-headers.ts';
import { answerBadHttp, answerTooSlow } from './guards/bad-http.ts';
import { laneOfRequest, paceRequests } from './guards/pacing.ts';
import { limitPipelining } from './guards/pipelining.ts';
import { limitRequestTime } from './guards/request-time.ts';
import { enforceRights } from './guards/rights.ts';
import { sliceArrays } from './guards/sliced-arrays.ts';
import { boundTexts } from './guards/text-bounds.ts';
import { canonicalUrl, lowerIds } from './id-case.ts';
import { methodsByUrl } from './methods.ts';
import { documentation } from './openapi/document.ts';
import { Traffic } from './traffic.ts';

/** Programs tell by it whether there is no such path, or no such item. */
const noEndpoint = [{ path: 'url', message: 'names no endpoint' }];

const serverOptions = {
  // Milliseconds: the head of a request has to come in the first, and whether it has is looked at this often.
  headersTimeout: 10_000,
  connectionsCheckingInterval: 1000,
  // Who asks to upgrade to another protocol is answered as if they had not asked.
  // Node before 24.9 ignores this: broker/connections/declined-upgrade.ts serves it there.
  shouldUpgradeCallback: ({ headers }: IncomingMessage) => headers.upgrade?.toLowerCase() === 'websocket',
};
/** Milliseconds. */
const handshakeTimeout = 10_000;

/** What the server needs of the rest. */
export interface HttpServices {
  config: Config;
  log: Logger;
  access: Access;
  gate: AccountGate;
  /** Pieces of long bodies and answers: one is read or made at a time. */
  reads: Scheduler;
  longAnswers: Scheduler;
  messages: Pick<MessageStore, 'isNoRoom'>;
  /** The account of a request whose token was verified before. */
  knownAccount(request: FastifyRequest): string | undefined;
  /** A caller is not permitted to do what it has asked for. */
  noteForbidden(request: FastifyRequest): void;
}

/** Builds the server; `mount` adds the routes. The caller listens and closes. */
export async function buildHttp(ctx: HttpServices, mount: (app: App, traffic: Traffic) => Promise<void>): Promise<App> {
  const { config } = ctx;
  const traffic = new Traffic();
  const fail = (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    traffic.refusals[sendError(error, request, reply)] += 1;
  };
  /** No hook runs for a URL that cannot be read: what every answer has, and is counted by, comes from here. */
  const answerBadUrl = (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    setHeaders(request, reply);
    reply.raw.once('finish', () => traffic.answered(request, reply));
    fail(error, request, reply);
  };
  const app = newApp(ctx, answerBadUrl);
  if (app.server instanceof TlsServer) endHandshakesWith(app.server);
  limitPipelining(app.server);
  paceRequests(app, ctx.knownAccount);
  // Lines of a request have its id by what runs on its behalf; a logger for each would cost more and know less.
  app.setChildLoggerFactory((logger) => logger);
  app.addHook('onRequest', (request, _, done) =>
    onBehalfOf(
      {
        ...{ cause: { requestId: request.id }, lane: laneOfRequest(request) },
        isAwaited: () => !request.raw.socket.destroyed,
      },
      done,
    ),
  );
  // Without TLS here, telling browsers to insist on it would lock them out.
  const setHeaders = await answerHeaders(app, { hsts: config.tls !== undefined, prefix: config.headerPrefix });
  const trusts = trustOf(config.trustedProxies);
  decorate(app, ctx, trusts);
  limitConnections(app, config.limits.httpConnectionsPerAddress, trusts);
  limitRequestTime(app.server);
  throttleAnonymous(app, (request, reply) => {
    traffic.refusals.invalid += 1;
    answerTooSlow(request, reply);
  });
  checkDigests(app);
  decodeBodies(app);
  strictBodies(app, ctx);
  answerErrors(app, ctx, fail);
  addLastHooks(app, ctx, traffic);

  await app.register(cookie);
  boundTexts(app);
  lowerIds(app);
  lookAtBodyNames(app);
  sliceArrays(app);
  await documentation(app, ctx);
  askAccountGate(app, { gate: ctx.gate, prefix: config.headerPrefix });
  enforceRights(app, ctx);
  await mount(app, traffic);
  await app.ready();
  return app;
}

type Answer = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;

function newApp({ config, log }: HttpServices, answerBadUrl: Answer): App {
  return Fastify({
    // Fastify's own line about listening would be in the middle of ours.
    loggerInstance: log.child({}, { level: quieter(log.level) }) as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: Math.min(anonymousBodyBytes, config.httpBodyBytes),
    // limitRequestTime cuts slow senders off.
    requestTimeout: 0,
    connectionTimeout: 0,
    keepAliveTimeout: 65_000,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 512, ignoreTrailingSlash: true },
    // The router takes any first character for a slash: `*metrics` would be asked past rules of a proxy about paths.
    rewriteUrl: ({ url = '/' }) => canonicalUrl(/^\*./.test(url) ? `/${url}` : url),
    genReqId: () => randomUUID(),
    schemaController: schemaCompilers(),
    frameworkErrors: (error, ...[request, reply]: unknown[]) =>
      answerBadUrl(error, request as FastifyRequest, reply as FastifyReply),
    clientErrorHandler: answerBadHttp,
    ...(config.tls
      ? { https: { ...secureOptions(config.tls), ...asksForCertificates, ...serverOptions, handshakeTimeout } }
      : { http: serverOptions }),
  }).withTypeProvider<TypeBoxTypeProvider>() as unknown as App;
}

/** What routes find at the app and at their request. */
function decorate(app: App, { config, longAnswers }: HttpServices, trusts: Trust): void {
  app.decorate('headerPrefix', config.headerPrefix);
  app.decorate('strictQueries', config.strictQueries);
  app.decorate('strictBodies', config.strictBodies);
  app.decorate('longAnswers', longAnswers);
  app.decorateRequest('caller');
  app.decorateRequest('authenticated');
  app.decorateRequest('application');
  app.decorateRequest('address', {
    getter() {
      return forwardedAddress(peerAddress(this.raw.socket), this.headers['x-forwarded-for'], trusts) ?? '';
    },
  });
}

function answerErrors(app: App, ctx: HttpServices, fail: Answer): void {
  app.setErrorHandler((error, request, reply) => {
    if (error instanceof PlatformError && error.status === 403 && request.caller) ctx.noteForbidden(request);
    fail(error, request, reply);
    if (reply.statusCode >= 500) noteFailure(ctx.messages, error, request);
  });
  const methodsOf = methodsByUrl(app);
  app.setNotFoundHandler((request, reply) => {
    const methods = methodsOf(request.url);
    // Below /docs a file can be missing.
    if (methods.length === 0 || methods.includes(request.method))
      return fail(
        new PlatformError('notFound', { message: 'The endpoint does not exist.', details: noEndpoint }),
        request,
        reply,
      );
    reply.header('allow', methods.join(', '));
    const message = `${request.method} is not supported here; supported: ${methods.join(', ')}.`;
    fail(new PlatformError('methodNotAllowed', { message }), request, reply);
  });
}

function addLastHooks(app: App, ctx: HttpServices, traffic: Traffic): void {
  app.addHook('onSend', ({ method }, _, payload, done) => {
    if (method !== 'HEAD' || !(payload instanceof Readable)) return done();
    // Fastify would read it to its end for nobody, and a whole range of points is long.
    payload.destroy();
    done(null, Readable.from([]));
  });
  app.addHook('onResponse', (request, reply, done) => {
    traffic.answered(request, reply);
    if (ctx.log.isLevelEnabled('debug')) {
      const { method, id: requestId } = request;
      const route = request.routeOptions.url;
      ctx.log.debug({ requestId, method, route, status: reply.statusCode, ms: reply.elapsedTime }, 'request');
    }
    done();
  });
}

function quieter(level: string): string {
  return level === 'info' ? 'warn' : level;
}
