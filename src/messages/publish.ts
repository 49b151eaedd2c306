/** Publishing over HTTP, with what MQTT takes as well: a username and password, or a token. */

import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import type { Caller } from '../core/caller.ts';
import type { Config } from '../core/config.ts';
import { errorBody, invalid, PlatformError } from '../core/errors.ts';
import { clientPropertiesOf, maxUserProperties, propertyBytes } from '../core/formats/message-properties.ts';
import { limitTries } from '../core/limits/tries.ts';
import { idempotentPosts } from '../entity/idempotency.ts';
import type { App } from '../http/app.ts';
import { nameIgnored } from '../http/ignored-names.ts';
import { requireCaller } from '../identity/sessions/authentication.ts';
import type { ProofRefusal, ProvenCaller } from '../ports/publisher.ts';
import type { MessagesContext } from './context.ts';
import { payloadBody } from './series/bodies.ts';

const query = Type.Object({
  qos: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 2, default: 1, description: 'Of the deliveries, at most; as in MQTT.' }),
  ),
  retain: Type.Optional(Type.Boolean({ default: false, description: 'An empty body clears what is retained.' })),
  contentType: Type.Optional(
    Type.String({ maxLength: 1000, description: 'A property of MQTT 5: the media type of the payload.' }),
  ),
  responseTopic: Type.Optional(
    Type.String({ maxLength: 1000, description: 'Where an answer is expected; the caller may subscribe to it.' }),
  ),
  correlationData: Type.Optional(
    Type.String({
      maxLength: 10_000,
      pattern: '^[A-Za-z0-9+/]*={0,2}$',
      description: 'What an answer has to repeat, in base64.',
    }),
  ),
  userProperties: Type.Optional(
    Type.String({ maxLength: 20_000, description: 'JSON: a list of pairs of a name and a value, at most 32.' }),
  ),
  messageExpiry: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 0xffff_ffff, description: 'Seconds after which nobody is sent it any more.' }),
  ),
});
export const rejectionShape = Type.Object(
  {
    code: Type.Integer(),
    message: Type.String(),
    details: Type.Array(Type.Object({ message: Type.String(), path: Type.Optional(Type.String()) }), { maxItems: 1 }),
  },
  { description: 'Why the message was delivered, but not stored.' },
);
const pairs = Type.Array(Type.Array(Type.String(), { minItems: 2, maxItems: 2 }), { maxItems: maxUserProperties });
const answer = Type.Object(
  { success: Type.Literal(true), rejection: Type.Optional(rejectionShape) },
  { description: 'What has to be stored is on disk.' },
);
const jwtUsername = 'Auth:JWT';
const challenge = 'Basic realm="slipway", charset="UTF-8"';

/** POST /messaging/publish/{topic}, in a scope of its own: it takes bodies of any type, and passwords. */
export function publishing(app: App, ctx: MessagesContext): void {
  mountPublish(app, ctx, false);
}

/** As publishing, at the root, where existing clients look for it; the document has it once. */
export function publishingAtRoot(app: App, ctx: MessagesContext): void {
  mountPublish(app, ctx, true);
}

function mountPublish(scope: App, ctx: MessagesContext, hide: boolean): void {
  const proven = new WeakMap<FastifyRequest, ProvenCaller>();
  const { maxPayloadBytes } = ctx.config.mqtt;
  const sizeLimit = payloadLimit(ctx);
  takePasswords(scope, ctx, proven);
  requireCaller(scope, ctx);
  idempotentPosts(scope, ctx);
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  scope.post(
    '/messaging/publish/*',
    {
      // A payload over the limit of MQTT is refused with an explanation on `_rejected`; what is far over it, unread.
      bodyLimit: Math.max(ctx.config.httpBodyBytes, maxPayloadBytes),
      config: {
        creates: true,
        decodes: true,
        whenFull: true,
        right: ['publish', 'device'],
        errors: ['notFound', 'forbidden', 'unknownReference', 'deleted', 'badCredentials', 'tooLarge', 'tooMany'],
        sends: ['ignored', 'revocation'],
        bodyLimit: sizeLimit,
        bodies: { '*/*': payloadBody },
      },
      schema: {
        hide,
        tags: ['Messages'],
        operationId: 'publishMessage',
        summary:
          'Publish a message, with a token, a username and secret (Basic), or the client certificate of a device',
        description:
          'The path goes on with a topic, raw or percent-encoded, and the body is the payload as it is, of any media type. Rights, refusals and what is stored are those of a PUBLISH. Devices publish with Basic or their client certificate; the path without `/api/v1` does the same. In a batch the payload is the JSON of `payload`.',
        security: [{ basic: [] }],
        params: Type.Object({ '*': Type.String({ description: 'The topic.' }) }),
        querystring: query,
        response: { 200: answer },
      },
    },
    async (request, reply) => {
      nameIgnored(request, reply, query);
      const caller = provenCaller(request.caller, proven.get(request));
      const { qos = 1, retain = false } = request.query;
      const clientProperties = readProperties(request.query);
      const payload = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      const topic = request.params['*'];
      const message = { topic, payload, qos: qos as 0 | 1 | 2, retain, clientProperties };
      const { delivered, rejection } = await ctx.publisher.publish(caller, message);
      if (!delivered) throw new PlatformError(rejection?.kind ?? 'server', rejection);
      return { success: true as const, ...(rejection && { rejection: errorBody(rejection) }) };
    },
  );
}

/** The properties that a query names. @throws PlatformError 400/106 for user properties that are no list of pairs. */
function readProperties({
  contentType,
  responseTopic,
  correlationData,
  userProperties,
  messageExpiry,
}: Static<typeof query>) {
  const properties = {
    ...(contentType !== undefined && { contentType: text('contentType', contentType) }),
    ...(responseTopic !== undefined && { responseTopic: text('responseTopic', responseTopic) }),
    ...(correlationData !== undefined && { correlationData: Buffer.from(correlationData, 'base64') }),
    ...(userProperties !== undefined && { userProperties: pairsIn(userProperties) }),
  };
  const travelling = propertyBytes(properties);
  return clientPropertiesOf({ ...properties, ...(messageExpiry !== undefined && { messageExpiry }) }, travelling);
}

function pairsIn(json: string): Array<[string, string]> {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw invalid('userProperties', 'is no JSON');
  }
  if (!Value.Check(pairs, value)) throw invalid('userProperties', 'is no list of at most 32 pairs of texts');
  return value.map(([name = '', one = '']) => [text('userProperties', name), text('userProperties', one)]);
}

/** As MQTT has it: without U+0000, at most 65,535 bytes. */
function text(name: string, value: string): string {
  if (value.includes('\0') || !value.isWellFormed() || Buffer.byteLength(value) > 65_535)
    throw invalid(name, 'is no text of MQTT');
  return value;
}

/** The variable that says how large a payload over HTTP may be. */
export function payloadLimit({ config }: { config: Config }): string {
  return config.mqtt.maxPayloadBytes > 0 ? 'SLIPWAY_MQTT_MAX_PAYLOAD_BYTES' : 'SLIPWAY_HTTP_BODY_BYTES';
}

/**
 * Basic authentication with the username and password of a CONNECT. A client certificate counts without a password, as in
 * MQTT; the username may then name the device or its account. Requests for which `isProven` is true need neither.
 */
export function takePasswords(
  app: App,
  ctx: MessagesContext,
  proven: WeakMap<FastifyRequest, ProvenCaller>,
  isProven: (request: FastifyRequest) => boolean = () => false,
): void {
  const perSecond = limitTries('requests', ctx);
  app.addHook('onRequest', async (request) => {
    if (isProven(request)) return;
    const credentials = readBasic(request);
    const result = await proveDevice(ctx, request, credentials);
    if (!result) return;
    if ('refused' in result) throw unproven(result);
    request.caller = { ...result.caller, address: request.address };
    perSecond.takeTry(result.caller.id);
    proven.set(request, result);
  });
  // Many clients send a password only when they are asked for it. Browsers would ask people, who have a token or a cookie.
  app.addHook('onSend', async ({ headers }, reply) => {
    const isPerson = headers.cookie !== undefined || /^bearer/i.test(headers.authorization ?? '');
    if (reply.statusCode === 401 && !isPerson) reply.header('www-authenticate', challenge);
  });
}

/** Undefined when a request has neither a password nor a certificate: its token, if it has one, is checked elsewhere. */
async function proveDevice(
  { publisher }: MessagesContext,
  request: FastifyRequest,
  credentials: { username: string; password: string } | undefined,
): Promise<ProvenCaller | ProofRefusal | undefined> {
  const { address, headers, socket } = request;
  if (credentials?.password) return publisher.proveCaller(credentials.username, credentials.password, address);
  const hasToken = headers.authorization !== undefined || headers.cookie !== undefined;
  const shown =
    credentials || !hasToken
      ? await publisher.proveCertificate(socket, credentials?.username ?? '', address)
      : undefined;
  return shown ?? (credentials && publisher.proveCaller(credentials.username, '', address));
}

function unproven({ refused, allowance, limit }: ProofRefusal): PlatformError {
  if (refused === 'wrong') return new PlatformError('badCredentials');
  if (refused === 'notNow')
    return new PlatformError('wrongToken', { message: 'The entity is not permitted to publish now.' });
  const message = `${limit}: too many wrong passwords for one username from one address.`;
  return new PlatformError('tooMany', { message, ...(allowance && { allowance }) });
}

/** The username and password of an Authorization: Basic header; a username has no colon but that of `Auth:JWT`. */
function readBasic({ headers }: FastifyRequest): { username: string; password: string } | undefined {
  const [scheme = '', encoded = ''] = (headers.authorization ?? '').split(' ', 2);
  if (scheme.toLowerCase() !== 'basic') return undefined;
  const decoded = Buffer.from(encoded, 'base64').toString();
  const from = decoded.startsWith(`${jwtUsername}:`) ? jwtUsername.length : 0;
  const colon = decoded.indexOf(':', from);
  return colon === -1
    ? { username: decoded, password: '' }
    : { username: decoded.slice(0, colon), password: decoded.slice(colon + 1) };
}

/** A caller may have been cut off while its body arrived; a token is checked again in `publish`. */
export function provenCaller(caller: Caller, proven: ProvenCaller | undefined): Caller {
  if (!proven) return caller;
  const current = proven.currentCaller();
  if (!current) throw new PlatformError('badCredentials');
  const { sessionId, address } = caller;
  return { ...current, ...(sessionId !== undefined && { sessionId }), ...(address !== undefined && { address }) };
}
