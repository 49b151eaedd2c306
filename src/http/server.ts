/** The HTTP server: callers, bodies, error mapping, and the two families of endpoints. */
import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import cookie from '@fastify/cookie';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { Ajv, type ValidateFunction } from 'ajv';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { isStoreFull } from '../../db/registry/index.js';
import { auditRoutes } from '../audit/index.js';
import { bridgeRoutes } from '../bridges/routes.js';
import type { Context } from '../context.js';
import { commandRoutes } from '../downlink/commands/command-routes.js';
import { firmwareFileRoutes } from '../downlink/packages/package-files.js';
import { firmwarePackageRoutes } from '../downlink/packages/packages.js';
import { firmwareRolloutRoutes } from '../downlink/rollouts/rollout-routes.js';
import { firmwareContentRoutes, firmwareDeviceRoutes } from '../downlink/ways/http.js';
import { findUnstorable, unstorable } from '../entity/values.js';
import { type FailureKind, identityErrorCode, identityMessage, invalid, PlatformError, tooLarge } from '../errors.js';
import { addressRoutes } from '../factory/addresses.js';
import { bulkRoutes } from '../factory/jobs/bulk-routes.js';
import { jobRoutes } from '../factory/jobs/routes.js';
import { provisioningRoutes } from '../factory/provisioning/routes.js';
import { verificationRoutes } from '../factory/verification.js';
import { isNestedDeeply } from '../formats/json-size.js';
import { applicationRoutes } from '../identity/applications.js';
import { emailAddressRoutes, emailConfirmationRoutes } from '../identity/email-address.js';
import { identityProviderRoutes } from '../identity/federation/providers.js';
import { federationRoutes } from '../identity/federation/routes.js';
import { meRoutes } from '../identity/me.js';
import { mfaRoutes } from '../identity/mfa/enrolment.js';
import { mfaLoginRoutes } from '../identity/mfa/login.js';
import { profileRoutes } from '../identity/profile.js';
import { passwordChangeRoutes, passwordResetRoutes } from '../identity/secrets/password-reset.js';
import { securityRoutes } from '../identity/security.js';
import { requireAppToken, requireCaller } from '../identity/sessions/authentication.js';
import { loginRoutes } from '../identity/sessions/login.js';
import { keyRoutes, sessionRoutes, validationRoutes } from '../identity/sessions/routes.js';
import { signInRoutes } from '../identity/sign-in.js';
import { registrationRoutes, userRoutes } from '../identity/users.js';
import { sendAllowance } from '../limits/attempts.js';
import { laneOf, strangerLane } from '../limits/fair-queue.js';
import { onBehalfOf } from '../log.js';
import { logRoutes } from '../messages/logs/routes.js';
import { publishing, publishingAtRoot } from '../messages/publish.js';
import { retentionRoutes } from '../messages/retention.js';
import { timeSeriesRoutes } from '../messages/series/routes.js';
import { seriesWriting } from '../messages/series/writing.js';
import { streamRoutes } from '../messages/stream.js';
import { usageRoutes } from '../messages/usage.js';
import { metricsRoutes } from '../metrics/index.js';
import { Traffic } from '../metrics/traffic.js';
import { forwardedAddress, peerAddress, trustOf } from '../network/addresses.js';
import { asksForCertificates, secureOptions } from '../network/server-tls.js';
import { accountUserRoutes } from '../registry/account-users.js';
import { certificateAuthorityRoutes } from '../registry/certificates/authorities.js';
import { certificateRoutes } from '../registry/certificates/certificates.js';
import { channelTemplateRoutes } from '../registry/channel-templates.js';
import { associationRoutes } from '../registry/credentials/association.js';
import { credentialRoutes } from '../registry/credentials/credentials.js';
import { replacementRoutes } from '../registry/credentials/replacement.js';
import { customFieldRoutes } from '../registry/custom-fields.js';
import { connectivityRoutes } from '../registry/devices/connectivity.js';
import { deviceRoutes } from '../registry/devices/devices.js';
import { refusalRoutes } from '../registry/devices/refusals.js';
import { endUserRoutes } from '../registry/end-users.js';
import { organizationRoutes } from '../registry/organizations.js';
import { permissionRoutes } from '../registry/permissions.js';
import { templateRoutes } from '../registry/templates.js';
import { consoleRoutes } from './answers/console.js';
import { pageRoutes } from './answers/pages.js';
import type { App } from './app.js';
import { batchRoutes } from './batch.js';
import { cellRoutes } from './cell.js';
import { answerHeaders } from './guards/answer-headers.js';
import { keepReserve } from './guards/disk-reserve.js';
import { paceRequests } from './guards/pacing.js';
import { limitRequestTime } from './guards/request-time.js';
import { enforceRights } from './guards/rights.js';
import { hurryStrangers, limitConnections, strangerBodyBytes } from './guards/strangers.js';
import { boundTexts } from './guards/text-bounds.js';
import { healthRoutes } from './health.js';
import { idempotentPosts } from './idempotency.js';
import { methodsByUrl } from './methods.js';
import { documentation, isFlat } from './openapi/document.js';
import { detailsOf, type Fault, isJson, jsonFault } from './validation.js';

/** Milliseconds: the head of a request has to come in the first, and whether it has is looked at this often. */
const timing = { headersTimeout: 10_000, connectionsCheckingInterval: 1000 };

/** Characters of a JSON body that is read without waiting for a turn, and bytes that take as long as a row of a list. */
const shortBody = 32_768;
const bytesOfRow = 4096;

/** Builds the server with every route; the caller listens and closes. */
export async function buildHttp(ctx: Context): Promise<App> {
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
  const app = Fastify({
    // Fastify's own line about listening would be in the middle of ours.
    loggerInstance: ctx.log.child({}, { level: quieter(ctx.log.level) }) as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: Math.min(strangerBodyBytes, config.httpBodyBytes),
    // limitRequestTime cuts slow senders off.
    requestTimeout: 0,
    connectionTimeout: 0,
    keepAliveTimeout: 65_000,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 512, ignoreTrailingSlash: true },
    genReqId: () => randomUUID(),
    frameworkErrors: (error, ...[request, reply]: unknown[]) =>
      answerBadUrl(error, request as FastifyRequest, reply as FastifyReply),
    clientErrorHandler: answerBadHttp,
    ...(config.tls ? { https: { ...secureOptions(config.tls), ...asksForCertificates, ...timing } } : { http: timing }),
  }).withTypeProvider<TypeBoxTypeProvider>() as unknown as App;

  paceRequests(app);
  // Lines of a request have its id by what runs on its behalf; a logger for each would cost more and know less.
  app.setChildLoggerFactory((logger) => logger);
  app.addHook('onRequest', (request, _, done) => onBehalfOf({ requestId: request.id }, done));
  // Without TLS here, telling browsers to insist on it would lock them out.
  const setHeaders = await answerHeaders(app, { hsts: config.tls !== undefined, prefix: config.headerPrefix });
  app.decorate('headerPrefix', config.headerPrefix);
  app.decorate('strictQueries', config.strictQueries);
  app.decorateRequest('caller');
  app.decorateRequest('authenticated');
  app.decorateRequest('application');
  const trusts = trustOf(config.trustedProxies);
  app.decorateRequest('address', {
    getter() {
      return forwardedAddress(peerAddress(this.raw.socket), this.headers['x-forwarded-for'], trusts) ?? '';
    },
  });
  limitConnections(app, config.limits.httpConnectionsPerAddress, trusts);
  limitRequestTime(app.server);
  hurryStrangers(app, (request, reply) => {
    traffic.refusals.invalid += 1;
    answerTooSlow(request, reply);
  });
  strictBodies(app, ctx);
  app.setErrorHandler((error, request, reply) => {
    noteRefusal(ctx, error, request);
    fail(error, request, reply);
    if (reply.statusCode >= 500) noteFailure(ctx, error, request);
  });
  const methodsOf = methodsByUrl(app);
  app.setNotFoundHandler((request, reply) => {
    const methods = methodsOf(request.url);
    if (methods.length === 0)
      return fail(new PlatformError('notFound', { message: 'The endpoint does not exist.' }), request, reply);
    reply.header('allow', methods.join(', '));
    const message = `${request.method} is not supported here; supported: ${methods.join(', ')}.`;
    fail(new PlatformError('methodNotAllowed', { message }), request, reply);
  });
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

  await app.register(cookie);
  boundTexts(app);
  await documentation(app, ctx);
  enforceRights(app, ctx);

  keyRoutes(app, ctx);
  metricsRoutes(app, ctx, traffic);
  healthRoutes(app, ctx);
  cellRoutes(app, ctx);
  pageRoutes(app);
  await consoleRoutes(app);
  await app.register(
    async (scope) => {
      for (const mount of [
        loginRoutes,
        mfaLoginRoutes,
        validationRoutes,
        federationRoutes,
        signInRoutes,
        passwordChangeRoutes,
        emailConfirmationRoutes,
      ])
        mount(scope as App, ctx);
    },
    { prefix: '/api/v1' },
  );
  await app.register(
    async (scope) => {
      requireAppToken(scope as App, ctx);
      idempotentPosts(scope as App, ctx);
      keepReserve(scope as App, ctx);
      for (const mount of [passwordResetRoutes, registrationRoutes]) mount(scope as App, ctx);
    },
    { prefix: '/api/v1' },
  );
  await app.register(
    async (scope) => {
      const behind = scope as App;
      requireCaller(behind, ctx);
      idempotentPosts(behind, ctx);
      keepReserve(behind, ctx);
      sessionRoutes(behind, ctx);
      for (const mount of [
        profileRoutes,
        meRoutes,
        emailAddressRoutes,
        userRoutes,
        deviceRoutes,
        connectivityRoutes,
        endUserRoutes,
        organizationRoutes,
        templateRoutes,
        channelTemplateRoutes,
        customFieldRoutes,
        accountUserRoutes,
        credentialRoutes,
        certificateRoutes,
        certificateAuthorityRoutes,
        associationRoutes,
        addressRoutes,
        batchRoutes,
        logRoutes,
        streamRoutes,
        retentionRoutes,
        usageRoutes,
        refusalRoutes,
        permissionRoutes,
        applicationRoutes,
        identityProviderRoutes,
        bridgeRoutes,
        replacementRoutes,
        verificationRoutes,
        mfaRoutes,
        securityRoutes,
        auditRoutes,
        jobRoutes,
        provisioningRoutes,
        bulkRoutes,
        firmwarePackageRoutes,
        firmwareRolloutRoutes,
        commandRoutes,
      ])
        mount(behind, ctx);
    },
    { prefix: '/api/v1' },
  );
  await app.register(
    async (scope) => {
      requireCaller(scope as App, ctx);
      timeSeriesRoutes(scope as App, ctx);
    },
    { prefix: '/api/v4' },
  );
  await app.register(
    async (scope) => {
      requireCaller(scope as App, ctx);
      firmwareFileRoutes(scope as App, ctx);
    },
    { prefix: '/api/v1' },
  );
  for (const mount of [firmwareDeviceRoutes, firmwareContentRoutes])
    await app.register(async (scope) => mount(scope as App, ctx), { prefix: '/api/v1' });
  await app.register(async (scope) => seriesWriting(scope as App, ctx), { prefix: '/api/v4' });
  await app.register(async (scope) => publishing(scope as App, ctx), { prefix: '/api/v1' });
  await app.register(async (scope) => publishingAtRoot(scope as App, ctx));
  await app.ready();
  return app;
}

function quieter(level: string): string {
  return level === 'info' ? 'warn' : level;
}

/** Marks a body that came as a form: all its values are text. */
const form = Symbol('form');

/** Bodies are taken as they are; what comes in a URL or a form is text and is read as what the schema wants. */
function strictBodies(app: App, { reads }: Pick<Context, 'reads'>): void {
  // The schemas are our own: compiling the schema of schemas to check them would take longer than all of them.
  const trusted = { meta: false, validateSchema: false } as const;
  const shared = {
    allErrors: false,
    strictTypes: false,
    strictSchema: false,
    useDefaults: false,
    verbose: true,
    ...trusted,
  } as const;
  const strict = new Ajv({ ...shared, coerceTypes: false });
  const coercing = new Ajv({ ...shared, coerceTypes: true });
  app.setValidatorCompiler<object>(({ schema, httpPart }) => {
    const [coerce, check] = [checking(coercing, schema, httpPart), checking(strict, schema, httpPart)];
    if (httpPart !== 'body') return coerce;
    return (body) => {
      if (!isForm(body)) return check(body);
      readNulls(schema, body);
      return coerce(body);
    };
  });
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));

  // Fastify takes plain text by itself; here it is a media type like any other that is not supported.
  app.removeContentTypeParser('text/plain');
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<string>('application/json', { parseAs: 'string' }, (request, body, done) => {
    // Clients send the header with calls that have no body, such as recover.
    if (body === '') return done(null, undefined);
    const read = () => {
      if (isNestedDeeply(body)) return done(invalid('body', unstorable), undefined);
      parse(request, body, (error, value) => (error ? done(unreadable(body), undefined) : accept(value, done)));
    };
    if (body.length <= shortBody) return read();
    // It takes milliseconds: accounts take turns. Only callers may send so much.
    const lane = request.caller ? laneOf(request.caller) : strangerLane(request.address);
    reads.run(lane, body.length / bytesOfRow, async () => read()).catch((error) => done(error, undefined));
    return undefined;
  });
  app.addContentTypeParser<string>('application/x-www-form-urlencoded', { parseAs: 'string' }, (_, body, done) => {
    if (/^\s*[{[]/.test(body)) return done(jsonAsForm(), undefined);
    const values = [...new URLSearchParams(body)];
    if (values.some(([name]) => name === '__proto__'))
      return done(invalid('__proto__', 'is not a property'), undefined);
    accept(Object.defineProperty(Object.fromEntries(values), form, { value: true }), done);
  });
}

function accept(value: unknown, done: (error: Error | null, value?: unknown) => void): void {
  const path = findUnstorable(value);
  done(path === undefined ? null : invalid(path, unstorable), value);
}

/** The parser refuses what is no JSON, and names with which objects could be spoilt. */
function unreadable(body: string): PlatformError {
  const fault = isJson(body) ? 'has a property __proto__, or a constructor with a prototype' : jsonFault(body);
  const details = [{ path: 'body', message: fault }];
  return new PlatformError('invalid', { message: 'The request cannot be read.', details });
}

/** What curl sends without a header: the media type of a form, and JSON. */
function jsonAsForm(): PlatformError {
  const said = 'is application/x-www-form-urlencoded, so the body was read as a form; send JSON as application/json';
  return new PlatformError('invalid', { details: [{ path: 'content-type', message: said }] });
}

function isForm(body: unknown): body is Record<string, unknown> {
  return typeof body === 'object' && body !== null && form in body;
}

/** The text `null` is no value where the schema takes null, custom fields among them. */
function readNulls(
  { properties = {} }: { properties?: Record<string, { type?: unknown }> },
  body: Record<string, unknown>,
) {
  for (const [name, value] of Object.entries(body)) {
    const type = Object.hasOwn(properties, name) ? properties[name]?.type : undefined;
    if (value === 'null' && (type === undefined || (Array.isArray(type) && type.includes('null')))) body[name] = null;
  }
}

/** A check against a schema, which is compiled when it is first used: all of them at once would be a slow start. */
function checking(ajv: Ajv, schema: object, httpPart = '') {
  let validate: ValidateFunction | undefined;
  return (value: unknown): true | { error: Error } => {
    validate ??= ajv.compile(schema);
    if (validate(value)) return true;
    const failure = { validation: validate.errors ?? [], validationContext: httpPart, statusCode: 400 };
    return { error: Object.assign(new Error('invalid value'), failure) };
  };
}

/** What a caller was not permitted to do is in the audit record, sampled. */
function noteRefusal({ audit }: Context, error: unknown, { caller, method, routeOptions }: FastifyRequest): void {
  if (!(error instanceof PlatformError) || error.status !== 403 || !caller) return;
  const endpoint = `${method} ${routeOptions.url}`;
  const { accountId } = caller;
  audit.sample(
    { event: 'permissionRefused', outcome: 'failure', accountId, actor: caller, details: { endpoint } },
    endpoint,
  );
}

/** The one place where an error becomes an answer; of which kind it is. */
function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FailureKind {
  const failure = asPlatformError(error, request);
  const { code, status, message, details, allowance } = failure;
  const requestId = request.id;
  if (allowance) {
    sendAllowance(reply, allowance);
    reply.header('retry-after', allowance.reset);
  }
  if (request.routeOptions?.config?.family !== 'identity') {
    reply.status(status).send({ error: { code, message, details }, requestId });
    return failure.kind;
  }
  const errorCode = identityErrorCode(failure.kind);
  const attributes = { errorCode, error: message, details };
  const name = STATUS_CODES[status] ?? 'Error';
  reply
    .status(status)
    .send({ statusCode: status, error: name, message: identityMessage(failure), attributes, requestId });
  return failure.kind;
}

/** A store that takes no messages has said so once: many requests fail at it, and lines would take the last of the disk. */
function noteFailure({ messages }: Context, error: unknown, { id: requestId, log }: FastifyRequest): void {
  const isSaid = isStoreFull(error) && error.message === messages.full?.message;
  // What has a name is no fault of the service, and a provider that is away would fill the log with them.
  const isNamed = error instanceof PlatformError && error.kind !== 'server';
  const level = isSaid ? 'debug' : isNamed ? 'warn' : 'error';
  log[level]({ requestId, err: error }, 'request failed');
}

/** Answers a request whose body does not come, past Fastify, which waits for it, and closes its connection. */
function answerTooSlow(request: FastifyRequest, reply: FastifyReply): void {
  reply.hijack();
  const message = 'The request has not arrived in 10 seconds.';
  const isIdentity = request.routeOptions?.config?.family === 'identity';
  const { code } = new PlatformError('invalid');
  const body = JSON.stringify(
    isIdentity
      ? { statusCode: 408, error: STATUS_CODES[408], message, attributes: {}, requestId: request.id }
      : { error: { code, message, details: [] }, requestId: request.id },
  );
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'x-request-id': request.id,
    connection: 'close',
  };
  reply.raw.writeHead(408, headers).end(body, () => request.raw.socket.destroy());
}

/** Answers bytes that are no HTTP, or too much of it, in the shape of every other error, and closes. */
function answerBadHttp(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const tooLarge = error.code === 'HPE_HEADER_OVERFLOW';
  const { code, message } = new PlatformError(tooLarge ? 'tooLarge' : 'invalid', {
    message: tooLarge ? 'The headers are too large.' : 'The request cannot be read.',
  });
  const requestId = randomUUID();
  const body = JSON.stringify({ error: { code, message, details: [] }, requestId });
  const head = [
    tooLarge ? 'HTTP/1.1 431 Request Header Fields Too Large' : 'HTTP/1.1 400 Bad Request',
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}

function asPlatformError(error: unknown, request: FastifyRequest): PlatformError {
  if (error instanceof PlatformError) return error;
  if (isStoreFull(error)) return new PlatformError('storeFull', { details: [{ message: error.message }] });
  const { validation, validationContext, statusCode } = error as Partial<FastifyError>;
  if (validation)
    return new PlatformError('invalid', { details: detailsOf(validation as Fault[], validationContext ?? '') });
  if (statusCode === 413 && !request.caller)
    return new PlatformError('tooLarge', {
      message: `The body is too large: without a valid token it has at most ${request.routeOptions.bodyLimit} bytes.`,
    });
  if (statusCode === 413) return tooLarge(request.routeOptions?.config?.bodyLimit ?? 'SLIPWAY_HTTP_BODY_BYTES');
  if (statusCode === 415) return unsupported(request);
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return new PlatformError('invalid', { message: 'The request cannot be read.' });
  return new PlatformError('server');
}

/** 415, naming what the endpoint takes. */
function unsupported({ routeOptions, headers }: FastifyRequest): PlatformError {
  const body = routeOptions?.schema?.body as { content?: object } | undefined;
  if (!body) return new PlatformError('mediaType');
  const forms = isFlat(body) ? ['application/x-www-form-urlencoded'] : [];
  const types = body.content ? Object.keys(body.content) : ['application/json', ...forms];
  return new PlatformError('mediaType', {
    ...(headers['content-type'] === undefined && { message: 'The request has a body and no Content-Type header.' }),
    details: [{ path: 'content-type', message: `must be one of ${types.join(', ')}` }],
  });
}
