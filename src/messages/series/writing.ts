/** POST /data/{topic}: points over HTTP, on the way of a PUBLISH. */
import { Type } from 'typebox';
import type { Caller } from '../../core/caller.ts';
import { errorBody, invalid, PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { idempotentPosts } from '../../entity/idempotency.ts';
import type { App } from '../../http/app.ts';
import { requireCaller } from '../../identity/sessions/authentication.ts';
import type { MessagesContext } from '../context.ts';
import type { OpenKind } from '../payload/reader.ts';
import { payloadLimit, rejectionShape } from '../publish.ts';
import { pointBodies } from './bodies.ts';
import { findChannel } from './query.ts';

const answer = Type.Object(
  {
    success: Type.Literal(true),
    count: Type.Integer({ description: 'Points that were stored; those that were not are in rejection.' }),
    rejection: Type.Optional(rejectionShape),
  },
  { description: 'What is counted is on disk.' },
);

/** POST /data/{topic}, in a scope of its own: its bodies are payloads. */
export function seriesWriting(app: App, ctx: MessagesContext): void {
  const { maxPayloadBytes } = ctx.config.mqtt;
  requireCaller(app, ctx);
  idempotentPosts(app, ctx);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(Object.keys(pointBodies), { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.post(
    '/data/*',
    {
      bodyLimit: maxPayloadBytes || ctx.config.httpBodyBytes,
      config: {
        creates: true,
        decodes: true,
        whenFull: true,
        right: ['publish', 'device'],
        errors: ['notFound', 'forbidden', 'deleted', 'tooLarge', 'tooMany'],
        bodyLimit: payloadLimit(ctx),
        bodies: pointBodies,
      },
      schema: {
        tags: ['Messages'],
        operationId: 'writePoints',
        summary: 'Write points of a channel',
        description:
          'The body is a payload as a device publishes it, and it is delivered as one with QoS 1. What holds no points is refused here and delivered to nobody; so is everything for a channel that stores nothing.',
        params: Type.Object({ '*': Type.String({ description: 'The topic, raw or percent-encoded.' }) }),
        body: {
          content: Object.fromEntries(Object.keys(pointBodies).map((type) => [type, { schema: { properties: {} } }])),
        },
        response: { 200: answer },
      },
    },
    async (request) => {
      const payload = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      const isBytes = request.headers['content-type']?.startsWith('application/octet-stream') ?? false;
      return writePoints(ctx, request.caller, request.params['*'], payload, isBytes ? 'any' : 'text');
    },
  );
}

/**
 * Publishes a payload that holds points on a channel that stores them.
 * @throws PlatformError as findSeries; 400/106 naming what is wrong with the payload, or the channel; 413 over the limit.
 */
async function writePoints(ctx: MessagesContext, caller: Caller, topic: string, payload: Buffer, open: OpenKind) {
  const { channel } = findChannel(ctx, caller, topic);
  if (channel.persistenceType !== 'timeSeries' || channel.payload === 'none')
    throw invalid('topic', 'the channel stores no points; POST /messaging/publish delivers a message on it');
  const reading = await ctx.payloads.read(laneOf(caller), payload, ctx.clock.now(), channel.payload, open);
  if ('reason' in reading) throw invalid('body', reading.reason);
  const {
    delivered,
    rejection,
    points = 0,
  } = await ctx.publisher.publish(caller, { topic, payload, qos: 1, retain: false });
  if (!delivered) throw new PlatformError(rejection?.kind ?? 'server', rejection);
  return { success: true as const, count: points, ...(rejection && { rejection: errorBody(rejection) }) };
}
