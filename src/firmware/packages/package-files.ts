/** The files of a package over HTTP: raw bytes, in one request or in parts. */

import { type Static, Type } from 'typebox';
import type { Registry } from '../../../db/registry/index.ts';
import { Nullable } from '../../../db/registry/records.ts';
import { PlatformError } from '../../core/errors.ts';
import { entityResponse, sendEntity } from '../../entity/routes.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { isUpload } from '../../http/guards/request-time.ts';
import { nameIgnored } from '../../http/ignored-names.ts';
import type { DownlinkContext } from '../context.ts';
import { frozen, packageShape, withFiles } from './packages.ts';
import { readFileName } from './upload-headers.ts';
import { Uploads, uploadOf } from './uploads.ts';

const fileParams = Type.Object({ id: Type.String(), name: Type.String({ maxLength: 128 }) });
const uploadQuery = Type.Object({
  revision: Type.Optional(
    Type.String({ minLength: 1, maxLength: 64, description: "The package's firmwareVersion when it is left out." }),
  ),
  signature: Type.Optional(
    Type.String({
      maxLength: 4096,
      pattern: '^[A-Za-z0-9+/_=-]+$',
      description: 'Any detached signature, base64; devices get it as it is.',
    }),
  ),
});
const uploadHeaders = Type.Object({
  'content-range': Type.Optional(
    Type.String({ description: '`bytes a-b/total` for a part; the next one begins at `received`.' }),
  ),
  digest: Type.Optional(
    Type.String({ description: '`sha-256=…` of the whole file, base64 or hex; or `repr-digest: sha-256=:…:`.' }),
  ),
});
/** Any type of body is taken; generated clients send bytes as this one. */
const binary = Type.Unsafe<Buffer>({ type: 'string', format: 'binary', description: 'The bytes.' });
const unfinishedShape = Type.Object(
  { file: Type.Object({ name: Type.String(), received: Type.Integer({ description: 'Bytes that are on disk.' }) }) },
  { description: 'The part is on disk; the file is not whole yet.' },
);
const statusShape = Type.Object({
  name: Type.String(),
  received: Type.Integer({ description: 'Bytes that are on disk.' }),
  total: Nullable(Type.Integer({ description: 'Bytes of the whole file, where they were told.' })),
  revision: Type.Optional(Type.String()),
  size: Type.Optional(Type.Integer()),
  sha256: Type.Optional(Type.String()),
  signature: Type.Optional(Nullable(Type.String())),
});

const path = '/firmware/packages/:id/files/:name';
const tags = ['Firmware'];
const writing = { right: ['update', 'firmwarePackage'], errors: ['notFound', 'deleted', 'forbidden'] } as const;

/** In a scope of its own: elsewhere bodies are JSON and wait in memory. */
export function firmwareFileRoutes(app: App, ctx: DownlinkContext): void {
  const { registry } = ctx;
  const uploads = new Uploads(ctx);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_, payload, done) => done(null, payload));

  app.put(
    path,
    {
      bodyLimit: ctx.config.limits.firmwareFileBytes + 1,
      onRequest: (request, _, done) => {
        isUpload(request.raw);
        done();
      },
      config: {
        ...writing,
        errors: [...writing.errors, 'rangeOutside', 'tooLarge', 'tooMany'],
        sends: ['etag', 'ignored'],
        bodyLimit: 'SLIPWAY_FIRMWARE_FILE_BYTES',
        bodies: { 'application/octet-stream': binary },
        optionalHeaders: Object.keys(uploadHeaders.properties),
      },
      schema: {
        tags,
        operationId: 'updateFirmwarePackageFiles',
        summary: 'Upload a file of a draft, whole or in parts (`Content-Range`), as raw bytes',
        description:
          'A request that breaks off is gone on with: `GET` says how much is on disk, and the next part begins there. What is not whole after a day is removed. A request may take any time while at least 1 KiB a second comes.',
        params: fileParams,
        querystring: uploadQuery,
        headers: uploadHeaders,
        response: {
          ...entityResponse('firmwarePackage', packageShape, 'The file is whole; the package with its new version.'),
          202: unfinishedShape,
        },
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      nameIgnored(request, reply, uploadQuery);
      const before = demandLive(findReached(ctx, caller, 'firmwarePackages', params.id));
      const fileName = readFileName(params.name);
      if (before.state !== 'draft') throw frozen('files');
      const outcome = await uploads.takeBody(request, before, fileName, request.query);
      if ('received' in outcome)
        return reply.status(202).send({ file: { name: fileName, received: outcome.received } });
      return sendEntity(reply, 'firmwarePackage', await withFiles(registry.query, outcome));
    },
  );
  storedFileRoutes(app, ctx, uploads);
}

function storedFileRoutes(app: App, ctx: DownlinkContext, uploads: Uploads): void {
  const { registry } = ctx;
  app.get(
    path,
    {
      config: { right: ['read', 'firmwarePackage'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags,
        operationId: 'getFirmwarePackageFiles',
        summary: 'Read how much of a file has been uploaded',
        description: 'Shows how many bytes are stored, so that an upload can continue.',
        params: fileParams,
        response: { 200: Type.Object({ file: statusShape }, { description: 'Whole, or so much of it.' }) },
      },
    },
    async ({ caller, params }) => {
      demandLive(findReached(ctx, caller, 'firmwarePackages', params.id));
      return { file: await statusOf(registry, params) };
    },
  );
  app.delete(
    path,
    {
      config: { ...writing, sends: ['etag'] },
      schema: {
        tags,
        operationId: 'deleteFirmwarePackageFiles',
        summary: 'Remove a file of a draft, also one that is uploaded in part',
        description: 'Files of a published package cannot be removed.',
        params: fileParams,
        response: entityResponse('firmwarePackage', packageShape, 'The package with its new version.'),
      },
    },
    async ({ caller, params }, reply) => {
      const before = demandLive(findReached(ctx, caller, 'firmwarePackages', params.id));
      if (before.state !== 'draft') throw frozen('files');
      return sendEntity(
        reply,
        'firmwarePackage',
        await withFiles(registry.query, await uploads.remove(caller, params)),
      );
    },
  );
}

/** @throws PlatformError 404/100 when there is nothing of it. */
async function statusOf(
  { query }: Registry,
  { id, name }: Static<typeof fileParams>,
): Promise<Static<typeof statusShape>> {
  const upload = await uploadOf(query, id, name);
  if (upload) return { name, received: upload.received, total: upload.total };
  const files = query.selectFrom('firmwareFiles').selectAll().where('packageId', '=', id).where('name', '=', name);
  const file = await files.executeTakeFirst();
  if (!file) throw new PlatformError('notFound');
  const { revision, size, sha256, signature } = file;
  return { name, received: size, total: size, revision, size, sha256, signature };
}
