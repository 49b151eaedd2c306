/** Live messages as server-sent events. */
import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { invalid, PlatformError } from '../core/errors.ts';
import { canonicalTopic } from '../core/topics.ts';
import { eventsAnswer, sendEvents } from '../http/answers/events.ts';
import type { App } from '../http/app.ts';
import { isInsideBatch } from '../http/batch.ts';
import { nameIgnored } from '../http/ignored-names.ts';
import type { StreamRefusal } from '../ports/streams.ts';
import type { MessagesContext } from './context.ts';

const query = Type.Object({
  topics: Type.String({ minLength: 1, maxLength: 65_536, description: 'Topic filters as in MQTT, comma-separated.' }),
});
/** Seconds after which one of the other streams may have ended. */
const retryAfter = 15;

/** GET /stream. */
export function streamRoutes(app: App, ctx: MessagesContext): void {
  const { streams } = ctx;
  // A server that closes waits for its answers, and these have no end.
  app.addHook('preClose', async () => streams.endAll());
  app.get(
    '/stream',
    {
      // Nobody would ever end the stream behind an answer without a body.
      exposeHeadRoute: false,
      config: { right: ['subscribe', 'device'], errors: ['notFound', 'forbidden', 'tooMany'], sends: ['ignored'] },
      schema: {
        tags: ['Messages'],
        operationId: 'streamMessages',
        summary: 'Listen to messages as server-sent events',
        description:
          'Each event has an `id`, `event: message` and as `data` the JSON `{"topic","payload","time"}`, with `payloadBase64` where the payload is no UTF-8. With the header `Last-Event-ID` the points and log entries stored since come first, with `"replayed":true`, a point as a line of CSV; `event: gap` with `{"since"}` stands for more than can be sent. `event: fleet` with `{"fleetId","deviceId","entered","time"}`, without an `id`, tells that a device has begun or ceased to match a fleet that a continuous rollout uses. Not in a batch. docs/messages.md has the details.',
        querystring: query,
        response: {
          200: eventsAnswer(
            'Events, and a comment every 15 seconds. It ends with the session, or with the last right.',
          ),
        },
      },
    },
    async (request, reply) => {
      const { caller, authenticated } = request;
      nameIgnored(request, reply, query);
      const opened = streams.open(caller, {
        filters: readTopics(request.query),
        after: lastEventId(request),
        expires: Date.parse(authenticated.session.expires),
      });
      if ('refused' in opened) throw refusalOf(opened, ctx);
      if (isInsideBatch(request)) {
        opened.destroy();
        throw invalid('path', 'must not be a stream');
      }
      return sendEvents(reply, opened);
    },
  );
}

/** A reader that has had no event yet may send an empty one. */
function lastEventId({ headers }: FastifyRequest): string | undefined {
  const id = headers['last-event-id'];
  return typeof id === 'string' && id !== '' ? id : undefined;
}

function readTopics({ topics }: Static<typeof query>): string[] {
  const named = topics.split(',').filter((topic) => topic !== '');
  return named.map(canonicalTopic);
}

function refusalOf({ refused, place = 1 }: StreamRefusal, { config }: MessagesContext): PlatformError {
  const { maxSubscriptions, maxConnectionsPerPrincipal } = config.mqtt;
  switch (refused) {
    case 'cutOff':
      return new PlatformError('tokenInvalid');
    case 'number':
      return invalid('topics', `must be 1 to ${maxSubscriptions} topic filters (SLIPWAY_MQTT_MAX_SUBSCRIPTIONS)`);
    case 'malformed':
      return invalid('topics', `number ${place} is not a topic filter`);
    case 'outOfReach':
      return new PlatformError('notFound', {
        details: [
          {
            path: 'topics',
            message: `number ${place} matches no channel in your reach (+ and # are sent as %2B and %23)`,
          },
        ],
      });
    case 'id':
      return invalid('Last-Event-ID', 'must be the id of an event');
    case 'tooMany': {
      const allowance = { limit: maxConnectionsPerPrincipal, remaining: 0, reset: retryAfter };
      const message = 'SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL: too many streams of one caller.';
      return new PlatformError('tooMany', { message, allowance });
    }
  }
}
