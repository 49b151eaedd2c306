/** The file of a backup: a ZIP with both databases, the keys, and a manifest that says what each of them must be. */
import { createHash } from 'node:crypto';
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import yauzl from 'yauzl';
import yazl from 'yazl';
import { sync } from '../../db/files/copies.ts';
import { usedContents } from '../../db/files/firmware.ts';
import { UsageError } from '../usage.ts';

const format = 1;
const manifestName = 'manifest.json';
const manifestBytes = 1024 * 1024;
/** Entries that a backup has at most: two databases, and keys, of which each rotation leaves one for 100 days. */
const maxEntries = 10_000;
/** File names that a backup may contain; none leads out of the restored directory. */
const entryName = /^(registry\.db|messages\.db|keys\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}|firmware\/[0-9a-f]{64})$/;
/** A version; snapshots are called by it. Empty: none is known. */
const versionText = /^[\w.+-]{0,100}$/;
/** Fast: time-series become a third with it, and more would take the processor from a server next to it. */
const compressionLevel = 1;

/** A file of the backup; `sha256` in hex. */
export interface ManifestFile {
  name: string;
  bytes: number;
  sha256: string;
}

/** `slipway` is the version that ran on the data, `schema` the last step of each database, `time` ISO 8601. */
export interface Manifest {
  format: number;
  slipway: string;
  time: string;
  schema: Record<string, string>;
  files: ManifestFile[];
}

/**
 * Writes the backup of `databases`, files in `directory`, of the keys in `keys` and the firmware that the registry names; it is on disk when it resolves. Keys
 * are read last: none is missing that something in the databases was sealed with.
 */
export async function writeArchive(
  path: string,
  from: { directory: string; databases: readonly string[]; keys: string; firmware: string },
  about: Pick<Manifest, 'slipway' | 'time' | 'schema'>,
): Promise<Manifest> {
  const zip = new yazl.ZipFile();
  const options = { mode: 0o100600, mtime: new Date(about.time), compressionLevel };
  const manifest: Manifest = { format, ...about, files: [] };
  const failed = new Promise<never>((_, reject) => zip.on('error', reject));
  const contents = contentsOf(from.directory);
  demandContents(contents, from.firmware);
  const sources = [
    ...from.databases.map((name) => ({ name, source: join(from.directory, name) })),
    ...contents.map((sha256) => ({ name: `firmware/${sha256}`, source: join(from.firmware, sha256) })),
  ];
  for (const { name, source } of sources) {
    const { size } = statSync(source);
    zip.addReadStreamLazy(name, { ...options, size }, (begin) => {
      const stream = createReadStream(source, { highWaterMark: 256 * 1024 });
      const hash = createHash('sha256');
      stream.on('data', (chunk) => hash.update(chunk));
      stream.on('end', () => manifest.files.push({ name, bytes: size, sha256: hash.digest('hex') }));
      stream.on('error', (error) => zip.emit('error', error));
      begin(null, stream);
    });
  }
  for (const { name, bytes } of readKeys(from.keys)) {
    manifest.files.push({ name, bytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') });
    zip.addBuffer(bytes, name, options);
  }
  // Last, when what is in it is known.
  zip.addReadStreamLazy(manifestName, options, (begin) => begin(null, Readable.from([JSON.stringify(manifest)])));
  zip.end();
  const written = pipeline(zip.outputStream, createWriteStream(path, { flags: 'wx', mode: 0o600 }));
  await Promise.race([written, failed]);
  sync(path);
  return manifest;
}

/** The contents of firmware files that the copied registry names: what is not used stays for a day, a backup less. */
function contentsOf(directory: string): string[] {
  const path = join(directory, 'registry.db');
  return existsSync(path) ? usedContents(path) : [];
}

/** @throws UsageError when a firmware file is gone that the registry names. */
function demandContents(contents: readonly string[], firmware: string): void {
  const gone = contents.find((sha256) => !existsSync(join(firmware, sha256)));
  if (gone)
    throw new UsageError(
      `${join(firmware, gone)} is missing, and the registry names it. Upload the file again, or delete its firmware package.`,
    );
}

/** Skips backups that are still being written or that a rotation has just removed. */
function readKeys(directory: string): Array<{ name: string; bytes: Buffer }> {
  if (!existsSync(directory)) return [];
  return readdirSync(directory)
    .map((file) => ({ file, name: `keys/${file}` }))
    .filter(({ name }) => entryName.test(name) && !name.endsWith('.partial'))
    .flatMap(({ file, name }) => {
      try {
        return [{ name, bytes: readFileSync(join(directory, file)) }];
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
        throw error;
      }
    });
}

/** An opened backup; the caller closes it. */
export interface Archive {
  manifest: Manifest;
  /** Writes its files into a directory, on disk when it resolves. @throws UsageError when one is not what it must be. */
  extract(directory: string): Promise<void>;
  close(): void;
}

/** @throws UsageError when the file is no backup, or a damaged one. */
export async function openArchive(path: string): Promise<Archive> {
  const zip = await openZip(path);
  try {
    const entries = await readEntries(zip);
    const manifest = await readManifest(zip, entries);
    for (const { name } of manifest.files) if (!entries.has(name)) throw damaged(`${name} is missing`);
    return {
      manifest,
      close: () => zip.close(),
      extract: async (directory) => {
        for (const file of manifest.files) {
          const entry = entries.get(file.name);
          if (entry) await extractFile(zip, entry, file, join(directory, file.name));
        }
        sync(directory);
      },
    };
  } catch (error) {
    zip.close();
    throw error;
  }
}

function openZip(path: string): Promise<yauzl.ZipFile> {
  return new Promise((resolve, reject) =>
    yauzl.open(path, { lazyEntries: true, autoClose: false }, (error, zip) => {
      if (!error) return resolve(zip);
      const { code, message } = error as NodeJS.ErrnoException;
      reject(code ? new UsageError(`${path} cannot be read: ${message}`) : damaged(message));
    }),
  );
}

function readEntries(zip: yauzl.ZipFile): Promise<Map<string, yauzl.Entry>> {
  const entries = new Map<string, yauzl.Entry>();
  return new Promise((resolve, reject) => {
    zip.on('error', (error) => reject(damaged(error.message)));
    zip.on('end', () => resolve(entries));
    zip.on('entry', (entry: yauzl.Entry) => {
      const { fileName } = entry;
      if (fileName !== manifestName && !entryName.test(fileName)) return reject(damaged(`it is not of ${fileName}`));
      if (entries.has(fileName)) return reject(damaged(`${fileName} is in it twice`));
      if (entries.size >= maxEntries) return reject(damaged('it has too many files'));
      entries.set(fileName, entry);
      zip.readEntry();
    });
    zip.readEntry();
  });
}

async function readManifest(zip: yauzl.ZipFile, entries: Map<string, yauzl.Entry>): Promise<Manifest> {
  const entry = entries.get(manifestName);
  if (!entry) throw damaged(`${manifestName} is missing`);
  if (entry.uncompressedSize > manifestBytes) throw damaged(`${manifestName} is too long`);
  const chunks: Buffer[] = [];
  for await (const chunk of readEntry(await openEntry(zip, entry))) chunks.push(chunk);
  let manifest: unknown;
  try {
    manifest = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw damaged(`${manifestName} is not JSON`);
  }
  if (isOfLaterFormat(manifest)) throw new UsageError('This backup was made by a newer version of Slipway.');
  if (!isManifest(manifest)) throw damaged(`${manifestName} is not one of a backup`);
  return manifest;
}

function isOfLaterFormat(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Number((value as Partial<Manifest>).format) > format;
}

function isManifest(value: unknown): value is Manifest {
  if (typeof value !== 'object' || value === null) return false;
  const { format: given, slipway, time, schema, files } = value as Partial<Manifest>;
  if (
    given !== format ||
    typeof slipway !== 'string' ||
    !versionText.test(slipway) ||
    typeof time !== 'string' ||
    !Array.isArray(files)
  )
    return false;
  if (typeof schema !== 'object' || schema === null || Number.isNaN(Date.parse(time))) return false;
  const areFiles = files.every(
    (file: unknown) => typeof file === 'object' && file !== null && isManifestFile(file as Partial<ManifestFile>),
  );
  if (!areFiles) return false;
  const names = new Set(files.map(({ name }) => name));
  return names.size === files.length && names.has('registry.db');
}

function isManifestFile({ name, bytes, sha256 }: Partial<ManifestFile>): boolean {
  return typeof name === 'string' && entryName.test(name) && Number.isSafeInteger(bytes) && typeof sha256 === 'string';
}

async function extractFile(zip: yauzl.ZipFile, entry: yauzl.Entry, file: ManifestFile, path: string): Promise<void> {
  const stream = await openEntry(zip, entry);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const hash = createHash('sha256');
  let bytes = 0;
  async function* counted(): AsyncGenerator<Buffer> {
    for await (const chunk of readEntry(stream)) {
      bytes += chunk.length;
      if (bytes > file.bytes) break;
      hash.update(chunk);
      yield chunk;
    }
  }
  await pipeline(counted, createWriteStream(path, { flags: 'wx', mode: 0o600 }));
  if (bytes !== file.bytes || hash.digest('hex') !== file.sha256)
    throw damaged(`${file.name} is not what was backed up`);
  sync(path);
}

/** An entry that cannot be inflated is damaged. */
async function* readEntry(stream: Readable): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of stream) yield chunk as Buffer;
  } catch (error) {
    throw damaged((error as Error).message);
  }
}

function openEntry(zip: yauzl.ZipFile, entry: yauzl.Entry): Promise<Readable> {
  return new Promise((resolve, reject) =>
    zip.openReadStream(entry, (error, stream) => (error ? reject(damaged(error.message)) : resolve(stream))),
  );
}

/** The refusal of a file that is not a complete backup. */
export function damaged(why: string): UsageError {
  return new UsageError(
    `This is not a backup of Slipway, or it is damaged: ${why.replace(/[.]+$/, '')}. Nothing has been changed.`,
  );
}
