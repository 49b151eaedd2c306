/** Time-series over HTTP: each way of reading one has a file of its own, writing has writing.ts. */
import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { Scheduler } from '../../core/scheduler/scheduler.ts';
import { type HeldPlace, sendText, streamed } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { isInsideBatch } from '../../http/batch.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { MessagesContext } from '../context.ts';
import { type Export, exportRollup, exportSeries } from './export.ts';
import { readLatest, readPage } from './pages.ts';
import { findChannel, heeds, type SeriesAnswer, seriesAnswer, seriesQuery } from './query.ts';
import { readRollup } from './rollups.ts';

const rollupHeeds = { csv: heeds.rollupCsv, ndjson: heeds.rollupNdjson } as const;

const answer = {
  description: 'One page of points, a rollup, or a whole range as a file.',
  content: {
    'application/json': { schema: streamed(seriesAnswer) },
    'text/csv': {
      schema: Type.String({
        description:
          '`timestamp,category,numericValue,stringValue`, or of a rollup `time,category` and the aggregates.',
      }),
    },
    'application/x-ndjson': {
      schema: Type.String({ description: 'A point, or a value of a rollup, on each line, as in `result`.' }),
    },
  },
};

/** Rollups that sum up at once: each looks at a whole range, over many turns of the event loop. */
const rollupsAtOnce = { ofAll: 4, ofAccount: 2 };

/** Rollups of an account that are being sent: each holds up to 50,000 values until its reader has taken them. */
const rollupsHeld = 8;

/** GET /data/{topic} and /data/{topic}/latest. */
export function timeSeriesRoutes(app: App, ctx: MessagesContext): void {
  const sums = new Scheduler({ atOnce: rollupsAtOnce.ofAll, perAccount: rollupsAtOnce.ofAccount });
  const held = new Scheduler({ perAccount: rollupsHeld });
  app.get(
    '/data/*',
    {
      config: { right: ['subscribe', 'device'], errors: ['notFound', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Messages'],
        operationId: 'listPoints',
        summary: 'Read the time-series of a channel',
        description:
          'The path goes on with a topic, raw or percent-encoded, and with `/latest` for the latest points, newest first.',
        params: Type.Object({ '*': Type.String({ description: 'The topic, or the topic and /latest.' }) }),
        querystring: seriesQuery,
        response: { 200: answer },
      },
    },
    async (request, reply) => {
      const { caller, query, params } = request;
      const { rollup, format = 'json' } = query;
      // No channel may be called latest.
      const topic = params['*'].replace(/\/latest$/, '');
      if (topic !== params['*']) {
        const ignored = nameIgnored(request, reply, heeds.latest);
        const answer = await readLatest(ctx, caller, topic, query);
        return sendSeries(reply, explained(ctx, caller, topic, answer.meta, ignored), answer);
      }
      if (format === 'json') {
        const ignored = nameIgnored(request, reply, rollup === undefined ? heeds.page : heeds.rollup);
        const send = (answer: SeriesAnswer, place?: HeldPlace) =>
          sendSeries(reply, explained(ctx, caller, topic, answer.meta, ignored), answer, place);
        if (rollup === undefined) return send(await readPage(ctx, caller, topic, query));
        return sumUp(caller, () => readRollup(ctx, caller, topic, rollup, query), send);
      }
      if (isInsideBatch(request)) throw invalid('format', 'must be json in a batch');
      nameIgnored(request, reply, rollup === undefined ? heeds[format] : rollupHeeds[format]);
      const send = ({ headers, writeParts }: Export, place?: HeldPlace) =>
        sendText(reply.headers(headers), writeParts, place);
      if (rollup === undefined) return send(exportSeries(ctx, caller, topic, format, query));
      return sumUp(caller, () => exportRollup(ctx, caller, topic, format, rollup, query), send);
    },
  );

  /** Sums up when it is the caller's turn; `send` gives the place back when the reader has what was summed up. */
  async function sumUp<R>(
    caller: Caller,
    read: () => Promise<R>,
    send: (summed: R, place: HeldPlace) => Promise<FastifyReply>,
  ): Promise<FastifyReply> {
    const leave = await held.enter(laneOf(caller), 1);
    try {
      return await send(await sums.run(laneOf(caller), 1, read), { queue: held, leave });
    } catch (error) {
      leave();
      throw error;
    }
  }
}

/** Sends an answer as JSON, its values as they are made. */
function sendSeries(
  reply: FastifyReply,
  meta: SeriesAnswer['meta'],
  { result }: SeriesAnswer,
  place?: HeldPlace,
): Promise<FastifyReply> {
  reply.type('application/json; charset=utf-8');
  const pieces = async function* () {
    yield `{"meta":${JSON.stringify(meta)},"result":[`;
    yield* result;
    yield ']}';
  };
  return sendText(reply, pieces, place);
}

/** With what explains an answer that is not as expected: a channel that keeps nothing, parameters without effect. */
function explained(
  ctx: MessagesContext,
  caller: Caller,
  topic: string,
  meta: SeriesAnswer['meta'],
  ignored: readonly string[],
): SeriesAnswer['meta'] {
  const { channel } = findChannel(ctx, caller, topic);
  const message =
    channel.persistenceType === 'timeSeries' ? (channel.payload === 'none' ? isNotRead : undefined) : keepsNothing;
  return { ...metaWith(meta, ignored), ...(message && { message }) };
}

const keepsNothing =
  'This channel keeps no data: its persistenceType is simple. Data is kept for channels whose persistenceType is timeSeries.';
const isNotRead = "This channel stores no new data, because the payload of its channel template is 'none'.";
