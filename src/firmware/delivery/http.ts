/** Firmware over HTTP: devices ask for their offer, download the files, and say what became of it. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { oneOf } from '../../../db/registry/records.ts';
import { PlatformError } from '../../core/errors.ts';
import type { App } from '../../http/app.ts';
import { isInsideBatch } from '../../http/batch.ts';
import { requireCaller } from '../../identity/sessions/authentication.ts';
import { provenCaller, takePasswords } from '../../messages/publish.ts';
import type { ProvenCaller } from '../../ports/publisher.ts';
import type { DownlinkContext } from '../context.ts';
import { fileShape } from '../packages/files.ts';
import { maxFiles } from '../packages/packages.ts';
import { reportBody } from '../rollouts/reports.ts';
import { type Delivery, deliveryStates } from '../rollouts/rollout.ts';
import { namesEtag, readRange } from './ranges.ts';

const tags = ['Firmware'];
const offerShape = Type.Object(
  {
    packageId: Type.Optional(Type.String()),
    firmwareVersion: Type.Optional(Type.String()),
    files: Type.Array(
      Type.Object({
        ...fileShape.properties,
        url: Type.String({ description: 'Needs no credentials, until the deadline.' }),
      }),
      { maxItems: maxFiles },
    ),
  },
  { description: 'The update that the device may have; without `files` there is none.' },
);
const reported = Type.Object(
  { firmware: Type.Object({ state: oneOf<string>(deliveryStates), firmwareVersion: Type.String() }) },
  { description: 'It is on disk.' },
);
const fileQuery = Type.Object({
  offer: Type.Optional(Type.String({ maxLength: 256, description: 'Of a signed URL: the offer and its signature.' })),
  signature: Type.Optional(
    Type.String({ maxLength: 128, description: 'Of a signed URL that a release before this form made.' }),
  ),
});

/** In a scope of its own: devices prove themselves with their secret or certificate. */
export function firmwareDeviceRoutes(app: App, ctx: DownlinkContext): void {
  const { firmwareEngine } = ctx;
  const proven = new WeakMap<FastifyRequest, ProvenCaller>();
  takePasswords(app, ctx, proven);
  requireCaller(app, ctx);
  const security = [{ basic: [] }];
  app.get(
    '/firmware/offer',
    {
      config: {
        changes: true,
        right: ['read', 'firmwareOffer'],
        errors: ['forbidden', 'badCredentials', 'tooMany'],
      },
      schema: {
        tags,
        operationId: 'getFirmwareOffer',
        summary: 'Ask for the update of a device, as the device (Basic: its id and secret, or its client certificate)',
        description: 'Answers with no files when there is no update now.',
        security,
        response: { 200: offerShape },
      },
    },
    async (request) => {
      const device = provenCaller(request.caller, proven.get(request));
      const offer = await firmwareEngine.offers.makeOffer(device.id);
      const { offers } = firmwareEngine;
      return offer ? offers.show(offer, offers.reachedAs(request.protocol, request.host)) : { files: [] };
    },
  );
  app.post(
    '/firmware/status',
    {
      config: {
        right: ['update', 'firmwareOffer'],
        errors: ['notFound', 'offerGone', 'forbidden', 'badCredentials', 'tooMany'],
      },
      schema: {
        tags,
        operationId: 'reportFirmwareStatus',
        summary: 'Report the progress of the update, as the device',
        description: 'Saying again how it has ended changes nothing. 410 when the offer has ended otherwise.',
        security,
        body: reportBody,
        response: { 200: reported },
      },
    },
    async (request) => {
      const device = provenCaller(request.caller, proven.get(request));
      const { delivery, firmwareVersion } = await firmwareEngine.report(device, request.body);
      return { firmware: { state: delivery.state, firmwareVersion } };
    },
  );
}

/** The files themselves: with a signed URL, or with the secret of a device to which they are offered. */
export function firmwareContentRoutes(app: App, ctx: DownlinkContext): void {
  const proven = new WeakMap<FastifyRequest, ProvenCaller>();
  takePasswords(app, ctx, proven, ({ query }) => isSigned(query as SignedQuery));
  app.get(
    '/firmware/files/:sha256',
    {
      config: {
        errors: [
          'invalid',
          'notFound',
          'offerGone',
          'rangeOutside',
          'tokenMissing',
          'badCredentials',
          'forbidden',
          'tooMany',
        ],
      },
      schema: {
        tags,
        operationId: 'downloadFirmware',
        summary: 'Download a firmware file: with the URL of an offer, or as a device to which it is offered',
        description: `At most SLIPWAY_FIRMWARE_DOWNLOADS at a time; further ones are told when to try again. \`Range\`, \`If-Range\` and \`If-None-Match\` are obeyed. Not in a batch.`,
        security: [],
        params: Type.Object({ sha256: Type.String({ maxLength: 64, description: 'Hex.' }) }),
        querystring: fileQuery,
        response: {
          200: {
            description: 'The bytes.',
            content: {
              'application/octet-stream': { schema: Type.Unsafe<Buffer>({ type: 'string', format: 'binary' }) },
            },
          },
        },
      },
    },
    async (request, reply) => {
      const { sha256 } = request.params;
      const delivery = await deliveryFor(ctx, request, proven);
      if (isInsideBatch(request)) throw new PlatformError('invalid', { message: 'Files are not sent in a batch.' });
      return sendContent(ctx, request, reply, delivery, sha256);
    },
  );
}

interface SignedQuery {
  offer?: string;
  signature?: string;
}

/** A signed URL alone decides: the device's TLS may show a certificate that is meant for another server. */
function isSigned({ offer, signature }: SignedQuery): boolean {
  return offer !== undefined || signature !== undefined;
}

/** @throws PlatformError 401 without a proof, 403 for a bad URL, 404 for a content that is not offered, 410 for a void offer. */
async function deliveryFor(
  { firmwareEngine }: DownlinkContext,
  request: FastifyRequest<{ Params: { sha256: string }; Querystring: SignedQuery }>,
  proven: WeakMap<FastifyRequest, ProvenCaller>,
): Promise<Delivery> {
  const { params, query, caller } = request;
  if (isSigned(query)) return firmwareEngine.offers.verify(params.sha256, query.offer ?? '', query.signature);
  if (!caller) throw new PlatformError('tokenMissing');
  const device = provenCaller(caller, proven.get(request));
  const offer = device.kind === 'device' ? await firmwareEngine.offers.of(device.id) : undefined;
  if (!offer?.files.some(({ sha256 }) => sha256 === params.sha256)) throw new PlatformError('notFound');
  return offer.delivery;
}

async function sendContent(
  { firmware, downloads, log }: DownlinkContext,
  { headers, method, id }: FastifyRequest,
  reply: FastifyReply,
  delivery: Delivery,
  sha256: string,
): Promise<void> {
  const size = await firmware.sizeOf(sha256);
  if (size === undefined) throw new PlatformError('notFound');
  const etag = `"${sha256}"`;
  reply.headers({ etag, 'accept-ranges': 'bytes', 'cache-control': 'private, no-transform' });
  if (namesEtag(headers['if-none-match'], etag)) {
    reply.status(304).send();
    return;
  }
  const isSame = headers['if-range'] === undefined || headers['if-range'] === etag;
  const range = isSame ? readRange(headers.range, size) : undefined;
  if (range === 'outside') {
    reply.header('content-range', `bytes */${size}`);
    throw new PlatformError('rangeOutside', { details: [{ path: 'range', message: `the file has ${size} bytes` }] });
  }
  const { from, to } = range ?? { from: 0, to: size - 1 };
  if (range) reply.status(206).header('content-range', `bytes ${from}-${to}/${size}`);
  reply
    .header('content-length', to - from + 1)
    .type('application/octet-stream')
    .header('x-request-id', id);
  const giveBack = method === 'HEAD' ? () => {} : downloads.places.takePlace(delivery.accountId);
  // Past Fastify: a stream of its making would hold several buffers for each reader.
  reply.hijack();
  const { raw } = reply;
  raw.writeHead(reply.statusCode, reply.getHeaders() as Record<string, string>);
  if (method === 'HEAD') {
    raw.end();
    return;
  }
  await downloads.send(raw, { delivery, sha256, from, to }, giveBack).catch((error) => {
    log.error({ err: error, requestId: id }, 'a firmware file could not be sent');
    raw.destroy();
  });
}
