/** The files of a package: uploaded as raw bytes, in one request or in parts, straight to the disk. */

import { randomUUID } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Registry, Tx } from '../../../db/registry/index.js';
import { Nullable, type Row } from '../../../db/registry/records.js';
import type { Caller } from '../../access.js';
import { timestamp } from '../../clock.js';
import type { Context } from '../../context.js';
import { writeAs } from '../../entity/authorized-write.js';
import { entityResponse, nameIgnored, sendEntity } from '../../entity/routes.js';
import { change, demandLive, findLive, findReached } from '../../entity/verbs.js';
import { invalid, PlatformError, tooLarge } from '../../errors.js';
import type { App } from '../../http/app.js';
import { firmwareBytes } from '../../limit-use.js';
import { demandWithin } from '../../limits.js';
import type { FirmwarePackage } from './files.js';
import { frozen, maxFiles, packageShape, recordPackage, withFiles } from './packages.js';
import { type Part, readDigest, readFileName, readPart } from './upload-headers.js';

type Upload = Row<'firmwareUploads'>;

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
  digest: Type.Optional(Type.String({ description: '`sha-256=…` of the whole file, base64 or hex.' })),
});
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

/** In a scope of its own: elsewhere bodies are JSON and wait in memory. */
export function firmwareFileRoutes(app: App, ctx: Context): void {
  const { registry } = ctx;
  const uploads = new Uploads(ctx);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_, payload, done) => done(null, payload));

  const writing = { right: ['update', 'firmwarePackage'], errors: ['notFound', 'deleted', 'forbidden'] } as const;
  app.put(
    path,
    {
      bodyLimit: ctx.config.limits.firmwareFileBytes + 1,
      config: {
        ...writing,
        errors: [...writing.errors, 'rangeOutside', 'tooLarge'],
        sends: ['etag', 'ignored'],
        bodyLimit: 'SLIPWAY_FIRMWARE_FILE_BYTES',
      },
      schema: {
        tags,
        summary: 'Upload a file of a draft, whole or in parts (`Content-Range`), as raw bytes',
        description:
          'A request that breaks off is gone on with: `GET` says how much is on disk, and the next part begins there. What is not whole after a day is removed. A request takes 30 seconds at most: send large files in parts.',
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
      const before = demandLive(await findReached(ctx, caller, 'firmwarePackages', params.id));
      const fileName = readFileName(params.name);
      if (before.state !== 'draft') throw frozen('files');
      const outcome = await uploads.take(request, before, fileName, request.query);
      if ('received' in outcome)
        return reply.status(202).send({ file: { name: fileName, received: outcome.received } });
      return sendEntity(reply, 'firmwarePackage', await withFiles(registry.query, outcome));
    },
  );
  app.get(
    path,
    {
      config: { right: ['read', 'firmwarePackage'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags,
        summary: 'Read what there is of a file',
        params: fileParams,
        response: { 200: Type.Object({ file: statusShape }, { description: 'Whole, or so much of it.' }) },
      },
    },
    async ({ caller, params }) => {
      demandLive(await findReached(ctx, caller, 'firmwarePackages', params.id));
      return { file: await statusOf(registry, params) };
    },
  );
  app.delete(
    path,
    {
      config: { ...writing, sends: ['etag'] },
      schema: {
        tags,
        summary: 'Remove a file of a draft, or what there is of it',
        params: fileParams,
        response: entityResponse('firmwarePackage', packageShape, 'The package with its new version.'),
      },
    },
    async ({ caller, params }, reply) => {
      const before = demandLive(await findReached(ctx, caller, 'firmwarePackages', params.id));
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

function uploadOf(db: Registry['query'] | Tx, packageId: string, name: string): Promise<Upload | undefined> {
  const rows = db.selectFrom('firmwareUploads').selectAll();
  return rows.where('packageId', '=', packageId).where('name', '=', name).executeTakeFirst();
}

/** Uploads under way. One file has one writer: a later request ends the former one, which may hang in a broken connection. */
class Uploads {
  readonly #ctx: Context;
  readonly #writers = new Map<string, { abort(): void; ended: Promise<unknown> }>();

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  /**
   * Takes the body of a request as the file or a part of it; how much is on disk, or the package when the file is whole.
   * @throws PlatformError 400/106, 413, 416 with `received` for a gap, 507 for a full disk.
   */
  async take(
    request: FastifyRequest,
    { id }: FirmwarePackage,
    name: string,
    query: Static<typeof uploadQuery>,
  ): Promise<FirmwarePackage | { received: number }> {
    const { headers, caller } = request;
    const part = readPart(headers['content-range'], headers['content-length']);
    const digest = readDigest(headers.digest);
    if ((part.total ?? 0) > this.#ctx.config.limits.firmwareFileBytes) throw tooLarge('SLIPWAY_FIRMWARE_FILE_BYTES');
    return this.#alone(`${id}/${name}`, async (signal) => {
      const upload = await this.#begin(caller, id, name, part, digest);
      const body = (request.body ?? request.raw) as Readable;
      const { received, fault } = await this.#receive(upload, part, body, signal);
      // The connection broke: what has come is kept, and nobody hears the answer.
      if (fault) throw fault;
      if (upload.total !== null && received < upload.total) return { received };
      return this.#finish(caller, upload, received, query);
    });
  }

  async remove(caller: Caller, { id, name }: Static<typeof fileParams>): Promise<FirmwarePackage> {
    const { clock, firmware } = this.#ctx;
    return this.#alone(`${id}/${name}`, async () => {
      const upload = await uploadOf(this.#ctx.registry.query, id, name);
      const row = await writeAs(this.#ctx, caller, undefined, async (tx) => {
        const before = await demandDraft(tx, caller, id);
        const of = { packageId: id, name };
        const gone = [await deleteFrom(tx, 'firmwareFiles', of), await deleteFrom(tx, 'firmwareUploads', of)];
        if (!gone.includes(true)) throw new PlatformError('notFound');
        await recordPackage(this.#ctx, tx, caller, before, 'fileDeleted', { file: name });
        return change(tx, 'firmwarePackages', id, 'latest', { caller, clock }, {});
      });
      if (upload) await firmware.dropPartial(upload.partial);
      return row;
    });
  }

  async #alone<R>(key: string, work: (signal: AbortSignal) => Promise<R>): Promise<R> {
    for (let other = this.#writers.get(key); other; other = this.#writers.get(key)) {
      other.abort();
      await other.ended.catch(() => {});
    }
    const aborter = new AbortController();
    const ended = work(aborter.signal).finally(() => this.#writers.delete(key));
    this.#writers.set(key, { abort: () => aborter.abort(), ended });
    return ended;
  }

  /** The upload that a part goes on with, or a new one. */
  async #begin(
    caller: Caller,
    packageId: string,
    name: string,
    part: Part,
    digest: string | undefined,
  ): Promise<Upload> {
    const { registry, clock, firmware } = this.#ctx;
    const known = await uploadOf(registry.query, packageId, name);
    if (part.from > 0) {
      const received = known?.received ?? 0;
      const isSame = known !== undefined && (known.total === null || known.total === part.total);
      if (!isSame || part.from > received) throw gap(isSame ? received : 0);
    }
    await this.#demandRoom(caller.accountId, part.total ?? this.#ctx.config.limits.firmwareFileBytes, known);
    const upload: Upload = {
      packageId,
      name,
      accountId: caller.accountId,
      partial: (part.from > 0 ? known?.partial : undefined) ?? randomUUID(),
      total: part.total ?? null,
      received: part.from,
      digest: digest ?? (part.from > 0 ? known?.digest : undefined) ?? null,
      touched: timestamp(clock),
    };
    await writeAs(this.#ctx, caller, undefined, async (tx) => {
      await demandDraft(tx, caller, packageId);
      await demandPlace(tx, packageId, name);
      await deleteFrom(tx, 'firmwareUploads', { packageId, name });
      await tx.insertInto('firmwareUploads').values(upload).execute();
    });
    if (known && known.partial !== upload.partial) await firmware.dropPartial(known.partial);
    return upload;
  }

  /** @throws PlatformError 400/106 naming the quota, 507 for a disk that has no room beside its reserve. */
  async #demandRoom(accountId: string, bytes: number, known: Upload | undefined): Promise<void> {
    const { config, registry, keeping } = this.#ctx;
    const used = await firmwareBytes(registry.query, accountId, known?.partial);
    demandWithin(config.limits, 'firmwareBytes', used + bytes, 'file');
    if (keeping.diskFree !== null && keeping.diskFree - bytes < config.messages.diskReserveBytes)
      throw new PlatformError('storeFull', { details: [{ message: 'SLIPWAY_DISK_RESERVE_BYTES: the disk is full' }] });
  }

  /** Writes the bytes of a body; those that are on disk, and why there are not more. */
  async #receive(
    upload: Upload,
    { from, total, length }: Part,
    body: Readable,
    signal: AbortSignal,
  ): Promise<{ received: number; fault?: Error }> {
    const { firmware, config } = this.#ctx;
    const most = total ?? config.limits.firmwareFileBytes;
    const end = length === undefined ? most : from + length;
    const file = await firmware.openPartial(upload.partial, from);
    const stop = () => body.destroy(new Error('another request has taken over the upload'));
    signal.addEventListener('abort', stop, { once: true });
    let received = from;
    let fault: Error | undefined;
    try {
      for await (const chunk of body) {
        if (received + chunk.length > end) {
          received = from;
          fault = total === undefined ? tooLarge('SLIPWAY_FIRMWARE_FILE_BYTES') : longerThanSaid();
          break;
        }
        await writeAll(file, chunk as Buffer, received);
        received += chunk.length;
      }
      if (!fault && length !== undefined && received < end) fault = shorterThanSaid();
    } catch (error) {
      fault = asFailure(error);
    } finally {
      signal.removeEventListener('abort', stop);
      await file.sync().finally(() => file.close());
    }
    await this.#note(upload, received);
    return { received, ...(fault && { fault }) };
  }

  #note({ packageId, name }: Upload, received: number): Promise<unknown> {
    const { registry, clock } = this.#ctx;
    const changed = registry.query.updateTable('firmwareUploads').set({ received, touched: timestamp(clock) });
    return changed.where('packageId', '=', packageId).where('name', '=', name).execute();
  }

  /** @throws PlatformError 400/106 when it is not what its digest says: then nothing of it is kept. */
  async #finish(
    caller: Caller,
    upload: Upload,
    size: number,
    { revision, signature }: Static<typeof uploadQuery>,
  ): Promise<FirmwarePackage> {
    const { firmware, clock } = this.#ctx;
    const { packageId, name, accountId, partial } = upload;
    const sha256 = await firmware.hashOfPartial(partial);
    const isWrong = upload.digest !== null && upload.digest !== sha256;
    if (size === 0 || isWrong) {
      await deleteFrom(this.#ctx.registry.query, 'firmwareUploads', { packageId, name });
      await firmware.dropPartial(partial);
      throw isWrong
        ? invalid('digest', `does not fit: the bytes have the SHA-256 ${sha256}`)
        : invalid('file', 'is empty');
    }
    return firmware.exclusive(async () => {
      await firmware.keep(partial, sha256);
      return writeAs(this.#ctx, caller, undefined, async (tx) => {
        const before = await demandDraft(tx, caller, packageId);
        const row = await change(tx, 'firmwarePackages', packageId, 'latest', { caller, clock }, {});
        const shown = { revision: revision ?? before.firmwareVersion, size, sha256, signature: signature ?? null };
        await deleteFrom(tx, 'firmwareUploads', { packageId, name });
        await deleteFrom(tx, 'firmwareFiles', { packageId, name });
        await tx
          .insertInto('firmwareFiles')
          .values({ packageId, name, accountId, ...shown })
          .execute();
        await recordPackage(this.#ctx, tx, caller, row, 'fileUploaded', { file: name, sha256, size });
        return row;
      });
    });
  }
}

async function writeAll(file: FileHandle, chunk: Buffer, position: number): Promise<void> {
  for (let at = 0; at < chunk.length; ) {
    const { bytesWritten } = await file.write(chunk, at, chunk.length - at, position + at);
    at += bytesWritten;
  }
}

async function demandDraft(tx: Tx, { accountId }: Caller, id: string): Promise<FirmwarePackage> {
  const row = await findLive(tx, 'firmwarePackages', accountId, id);
  if (!row) throw new PlatformError('notFound');
  if (row.state !== 'draft') throw frozen('files');
  return row;
}

/** @throws PlatformError 400/106 where the package has as many other files as it may. */
async function demandPlace(tx: Tx, packageId: string, name: string): Promise<void> {
  const names = new Set<string>();
  for (const table of ['firmwareFiles', 'firmwareUploads'] as const)
    for (const row of await tx.selectFrom(table).select('name').where('packageId', '=', packageId).execute())
      names.add(row.name);
  names.delete(name);
  if (names.size >= maxFiles) throw invalid('name', `is one too many: a package has at most ${maxFiles} files`);
}

async function deleteFrom(
  db: Registry['query'] | Tx,
  table: 'firmwareFiles' | 'firmwareUploads',
  { packageId, name }: { packageId: string; name: string },
): Promise<boolean> {
  const gone = db.deleteFrom(table).where('packageId', '=', packageId).where('name', '=', name);
  return (await gone.executeTakeFirst()).numDeletedRows > 0n;
}

function gap(received: number): PlatformError {
  const message = `must begin at ${received}, or before it`;
  return new PlatformError('rangeOutside', { details: [{ path: 'content-range', message, received }] });
}

const longerThanSaid = () => invalid('file', 'is longer than its Content-Range or Content-Length says');
const shorterThanSaid = () => invalid('file', 'is shorter than its Content-Range or Content-Length says');

/** A disk without room is 507; the rest is what breaks connections. */
function asFailure(error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG')
    return new PlatformError('storeFull', { details: [{ message: `The disk is full: ${message}` }] });
  return invalid('file', `broke off: ${message}`);
}
