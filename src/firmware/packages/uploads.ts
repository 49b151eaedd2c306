/** Uploads of firmware files: straight to the disk, resumed after a break, checked when they are whole. */
import { randomUUID } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError, tooLarge } from '../../core/errors.ts';
import { demandWithin } from '../../core/limits/table.ts';
import { firmwareBytes } from '../../core/limits/use.ts';
import { change, findLive, writeAs } from '../../entity/verbs.ts';
import type { DownlinkContext } from '../context.ts';
import type { FirmwarePackage } from './files.ts';
import { frozen, maxFiles, recordPackage } from './packages.ts';
import { type Part, readDigest, readPart } from './upload-headers.ts';

type UploadServices = Pick<DownlinkContext, 'audit' | 'clock' | 'config' | 'firmware' | 'keeping' | 'registry'>;

type Upload = Row<'firmwareUploads'>;
/** The properties of a file in the query of its upload. */
type FileWords = { revision?: string; signature?: string };

/** Uploads of an account at a time. */
const maxUploads = 16;

export function uploadOf(db: Registry['query'] | Tx, packageId: string, name: string): Promise<Upload | undefined> {
  const rows = db.selectFrom('firmwareUploads').selectAll();
  return rows.where('packageId', '=', packageId).where('name', '=', name).executeTakeFirst();
}

/** Uploads under way. One file has one writer: a later request ends the former one, which may hang in a broken connection. */
export class Uploads {
  readonly #ctx: UploadServices;
  readonly #writers = new Map<string, { accountId: string; abort(): void; ended: Promise<unknown> }>();

  constructor(ctx: UploadServices) {
    this.#ctx = ctx;
  }

  /**
   * Takes the body of a request as the file or a part of it; how much is on disk, or the package when the file is whole.
   * @throws PlatformError 400/106, 413, 429, 416 with `received` for a gap, 507 for a full disk.
   */
  async takeBody(
    request: FastifyRequest,
    { id }: FirmwarePackage,
    name: string,
    query: FileWords,
  ): Promise<FirmwarePackage | { received: number }> {
    const { headers, caller } = request;
    const part = readPart(headers['content-range'], headers['content-length']);
    const digest = readDigest(headers);
    if ((part.total ?? 0) > this.#ctx.config.limits.firmwareFileBytes) throw tooLarge('SLIPWAY_FIRMWARE_FILE_BYTES');
    this.#demandTurn(caller.accountId, `${id}/${name}`);
    return this.#alone(caller.accountId, `${id}/${name}`, async (signal) => {
      const upload = await this.#findOrMake(caller, id, name, part, digest);
      const body = (request.body ?? request.raw) as Readable;
      const { received, fault } = await this.#receive(upload, part, body, signal);
      // The connection broke: what has come is kept, and nobody hears the answer.
      if (fault) throw fault;
      if (upload.total !== null && received < upload.total) return { received };
      return this.#finishUpload(caller, upload, received, query);
    });
  }

  async remove(caller: Caller, { id, name }: { id: string; name: string }): Promise<FirmwarePackage> {
    const { clock, firmware } = this.#ctx;
    return this.#alone(caller.accountId, `${id}/${name}`, async () => {
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

  /** Uploads may take long, so an account has only so many at a time. @throws PlatformError 429/-199. */
  #demandTurn(accountId: string, key: string): void {
    const others = [...this.#writers].filter(([other, writer]) => writer.accountId === accountId && other !== key);
    if (others.length < maxUploads) return;
    const message = `An account can upload ${maxUploads} files at the same time.`;
    throw new PlatformError('tooMany', { message, allowance: { limit: maxUploads, remaining: 0, reset: 5 } });
  }

  async #alone<R>(accountId: string, key: string, work: (signal: AbortSignal) => Promise<R>): Promise<R> {
    for (let other = this.#writers.get(key); other; other = this.#writers.get(key)) {
      other.abort();
      await other.ended.catch(() => {});
    }
    const aborter = new AbortController();
    const ended = work(aborter.signal).finally(() => this.#writers.delete(key));
    this.#writers.set(key, { accountId, abort: () => aborter.abort(), ended });
    return ended;
  }

  /** The upload that a part goes on with, or a new one. */
  async #findOrMake(
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
    const bytes = part.total ?? this.#ctx.config.limits.firmwareFileBytes;
    this.#ctx.keeping.demandRoom(caller.accountId, bytes);
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
      await this.#demandQuota(tx, caller.accountId, bytes, known);
      await deleteFrom(tx, 'firmwareUploads', { packageId, name });
      await tx.insertInto('firmwareUploads').values(upload).execute();
    });
    if (known && known.partial !== upload.partial) await firmware.dropPartial(known.partial);
    return upload;
  }

  /** @throws PlatformError 400/106 naming the quota. */
  async #demandQuota(
    db: Registry['query'] | Tx,
    accountId: string,
    bytes: number,
    except: Pick<Upload, 'partial'> | undefined,
  ): Promise<void> {
    const used = await firmwareBytes(db, accountId, except?.partial);
    demandWithin(this.#ctx.config.limits, 'firmwareBytes', used + bytes, 'file');
  }

  /** Writes the bytes of a body; those that are on disk, and why there are not more. */
  async #receive(
    upload: Upload,
    { from, total, length }: Part,
    body: Readable,
    signal: AbortSignal,
  ): Promise<{ received: number; fault?: Error }> {
    const { firmware, config, keeping } = this.#ctx;
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
        // Each upload had room when it began, and there may be many.
        const full = keeping.refusal(upload.accountId);
        if (full !== undefined) {
          fault = new PlatformError('storeFull', { details: [{ message: full }] });
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
    await this.#noteReceived(upload, received);
    return { received, ...(fault && { fault }) };
  }

  #noteReceived({ packageId, name }: Upload, received: number): Promise<unknown> {
    const { registry, clock } = this.#ctx;
    const changed = registry.query.updateTable('firmwareUploads').set({ received, touched: timestamp(clock) });
    return changed.where('packageId', '=', packageId).where('name', '=', name).execute();
  }

  /** @throws PlatformError 400/106 when it is not what its digest says: then nothing of it is kept. */
  async #finishUpload(
    caller: Caller,
    upload: Upload,
    size: number,
    { revision, signature }: FileWords,
  ): Promise<FirmwarePackage> {
    const { firmware, clock } = this.#ctx;
    const { packageId, name, accountId, partial } = upload;
    const sha256 = await firmware.hashOfPartial(partial);
    const drop = async (reason: PlatformError) => {
      await deleteFrom(this.#ctx.registry.query, 'firmwareUploads', { packageId, name });
      await firmware.dropPartial(partial);
      return reason;
    };
    if (upload.digest !== null && upload.digest !== sha256)
      throw await drop(invalid('digest', `does not fit: the bytes have the SHA-256 ${sha256}`));
    if (size === 0) throw await drop(invalid('file', 'is empty'));
    // One after the other in an account, whose quota each looks at; and the content is not removed as unused meanwhile.
    return firmware.exclusive(accountId, () =>
      firmware.exclusive(sha256, async () => {
        // How long it becomes was not told when it began, and others have come meanwhile.
        if (upload.total === null)
          await this.#demandQuota(this.#ctx.registry.query, accountId, size, upload).catch(async (reason) => {
            throw await drop(reason);
          });
        await firmware.keepContent(partial, sha256);
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
      }),
    );
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
  if (names.size >= maxFiles) throw invalid('name', `cannot be added: a package has at most ${maxFiles} files`);
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
