/** The bytes of firmware files in the data directory: each content once, under its SHA-256, and uploads that are not whole yet. */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { queueRun } from '../../src/core/scheduler/runs.ts';
import { openSqlite } from '../sqlite/open.ts';
import { sync } from './copies.ts';

/** The directory of the contents, next to the databases. */
export const firmwareName = 'firmware';
const partialName = 'partial';
const contentName = /^[0-9a-f]{64}$/;

/** The contents that a registry names, by SHA-256 in hex; none before it knew firmware. */
export function usedContents(registryFile: string): string[] {
  const file = openSqlite(registryFile, { readonly: true });
  try {
    const table = file.prepare('SELECT 1 FROM "sqlite_schema" WHERE "name" = ?').get('firmwareFiles');
    if (!table) return [];
    return file.prepare<[], string>('SELECT DISTINCT "sha256" FROM "firmwareFiles" ORDER BY 1').pluck().all();
  } finally {
    file.close();
  }
}

/** SHA-256 of a file, in hex; read in small pieces. */
export async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 128 * 1024 })) hash.update(chunk);
  return hash.digest('hex');
}

/** Owns `firmware/` of a data directory. */
export class FirmwareFiles {
  readonly #directory: string;
  readonly #partials: string;
  /** The last piece of work on each account or content that has some. */
  readonly #turns = new Map<string, Promise<void>>();

  constructor(dataDir: string) {
    this.#directory = join(dataDir, firmwareName);
    this.#partials = join(this.#directory, partialName);
    mkdirSync(this.#partials, { recursive: true, mode: 0o700 });
  }

  /** Where a content lies; `sha256` in hex. */
  pathOf(sha256: string): string {
    return join(this.#directory, sha256);
  }

  /** Where an upload lies. */
  partialPath(name: string): string {
    return join(this.#partials, name);
  }

  /** Opens an upload for writing from `received` on; whatever was written behind it is cut off. */
  async openPartial(name: string, received: number): Promise<FileHandle> {
    const path = this.partialPath(name);
    const handle = await open(path, existsSync(path) ? 'r+' : 'w', 0o600);
    try {
      await handle.truncate(received);
    } catch (error) {
      await handle.close();
      throw error;
    }
    return handle;
  }

  /** Forgets what was received of an upload. */
  async dropPartial(name: string): Promise<void> {
    await rm(this.partialPath(name), { force: true });
  }

  hashOfPartial(name: string): Promise<string> {
    return hashOf(this.partialPath(name));
  }

  /** Makes a whole upload, on disk already, the content `sha256`. When it resolves, a power cut loses neither bytes nor name. */
  async keepContent(name: string, sha256: string): Promise<void> {
    const path = this.pathOf(sha256);
    if (existsSync(path)) await this.dropPartial(name);
    else await rename(this.partialPath(name), path);
    sync(this.#directory);
  }

  /** Uploads that have left bytes here. */
  partials(): string[] {
    return readdirSync(this.#partials);
  }

  /** When an upload was written to last (milliseconds). */
  partialAge(name: string): number {
    return statSync(this.partialPath(name)).mtimeMs;
  }

  /** Bytes that were written of an upload, on disk or not. */
  partialSize(name: string): number {
    return statSync(this.partialPath(name)).size;
  }

  contents(): string[] {
    return readdirSync(this.#directory).filter((name) => contentName.test(name));
  }

  async removeContent(sha256: string): Promise<void> {
    await rm(this.pathOf(sha256), { force: true });
  }

  /** Runs work on `key`, an account or a SHA-256, one piece after the other. Who takes both takes the account first. */
  exclusive<R>(key: string, work: () => Promise<R>): Promise<R> {
    return queueRun(this.#turns, key, work);
  }

  /** Bytes of a content; undefined when it is missing. */
  async sizeOf(sha256: string): Promise<number | undefined> {
    try {
      return (await stat(this.pathOf(sha256))).size;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }
}
