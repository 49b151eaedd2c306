/** Time-series over HTTP: each way of reading one has a file of its own, writing has writing.ts. */
import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import type { Caller } from '../../access.js';
import type { Context } from '../../context.js';
import { metaWith, nameIgnored } from '../../entity/routes.js';
import { invalid } from '../../errors.js';
import type { App } from '../../http/app.js';
import { isInsideBatch } from '../../http/batch.js';
import { FairQueue, laneOf } from '../../limits/fair-queue.js';
import { exportRollup, exportSeries } from './export.js';
import { readLatest, readPage } from './pages.js';
import { findChannel, heeds, type SeriesAnswer, seriesAnswer, seriesQuery } from './query.js';
import { readRollup } from './rollups.js';

const rollupHeeds = { csv: heeds.rollupCsv, ndjson: heeds.rollupNdjson } as const;

const answer = {
  description: 'One page of points, a rollup, or a whole range as a file.',
  content: {
    'application/json': { schema: Type.Unsafe<SeriesAnswer | Readable>(seriesAnswer) },
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

/** GET /data/{topic} and /data/{topic}/latest. */
export function timeSeriesRoutes(app: App, ctx: Context): void {
  const sums = new FairQueue(rollupsAtOnce.ofAll, { perAccount: rollupsAtOnce.ofAccount });
  app.get(
    '/data/*',
    {
      config: { right: ['subscribe', 'device'], errors: ['notFound', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Messages'],
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
        return explained(ctx, caller, topic, await readLatest(ctx, caller, topic, query), ignored);
      }
      if (format === 'json') {
        const ignored = nameIgnored(request, reply, rollup === undefined ? heeds.page : heeds.rollup);
        const answer = await (rollup === undefined
          ? readPage(ctx, caller, topic, query)
          : sums.run(laneOf(caller), 1, () => readRollup(ctx, caller, topic, rollup, query)));
        return explained(ctx, caller, topic, answer, ignored);
      }
      if (isInsideBatch(request)) throw invalid('format', 'must be json in a batch');
      nameIgnored(request, reply, rollup === undefined ? heeds[format] : rollupHeeds[format]);
      const { headers, body } =
        rollup === undefined
          ? exportSeries(ctx, caller, topic, format, query)
          : await sums.run(laneOf(caller), 1, () => exportRollup(ctx, caller, topic, format, rollup, query));
      return reply.headers(headers).send(body);
    },
  );
}

/** With what explains an answer that is not as expected: a channel that keeps nothing, parameters without effect. */
function explained(
  ctx: Context,
  caller: Caller,
  topic: string,
  { meta, result }: SeriesAnswer,
  ignored: readonly string[],
): SeriesAnswer {
  const { channel } = findChannel(ctx, caller, topic);
  const message =
    channel.persistenceType === 'timeSeries' ? (channel.payload === 'none' ? isNotRead : undefined) : keepsNothing;
  return { meta: { ...metaWith(meta, ignored), ...(message && { message }) }, result };
}

const keepsNothing =
  'This channel keeps no data: its persistenceType is simple. Data is kept for channels whose persistenceType is timeSeries.';
const isNotRead = "This channel stores no new data, because the payload of its channel template is 'none'.";
