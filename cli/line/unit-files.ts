/** The files of units: whole, on disk and only the owner's, or not there. */
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { UsageError } from '../usage.ts';

export const labelForms = ['none', 'svg', 'png', 'html'] as const;
export type LabelForm = (typeof labelForms)[number];

export interface File {
  /** Below the directory of the units. */
  path: string;
  content: string | Buffer;
}

const partial = '.partial';
/** Writing waits for the disk: several files at once share its commits. */
const atOnce = 32;

/**
 * The name of a unit's files. Serial numbers of capitals, digits and `._-` are their own names; any other gets a digest, so
 * that no two are one file where case does not matter, and none leaves the directory.
 */
export function fileNameOf(serialNumber: string): string {
  const isReserved = /^(CON|PRN|AUX|NUL|COM\d|LPT\d)(\.|$)/.test(serialNumber);
  if (/^[A-Z0-9]([A-Z0-9._-]{0,78}[A-Z0-9])?$/.test(serialNumber) && !isReserved) return serialNumber;
  const digest = createHash('sha256').update(serialNumber).digest('hex').slice(0, 12);
  const readable = serialNumber.replace(/[^A-Za-z0-9-]+/g, '_').slice(0, 40);
  return `${readable.replace(/^-/, '_')}-${digest}`;
}

/** Writes files that are on disk, under their own names, when this returns; each was never there in part. */
export async function writeFiles(directory: string, files: readonly File[]): Promise<void> {
  const folders = new Set(files.map(({ path }) => dirname(join(directory, path))));
  for (const folder of folders) await makeFolder(folder);
  const waiting = files.values();
  const writeOnes = async () => {
    for (const { path, content } of waiting) await writeOne(join(directory, path), content);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, files.length) }, writeOnes));
  for (const folder of folders) await syncFolder(folder);
}

/** Node's own `recursive` never returns where the system makes no folders, as in /proc. @throws UsageError for a file. */
export async function makeFolder(path: string): Promise<void> {
  const make = () => mkdir(path, { mode: 0o700 });
  try {
    await make();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const isFolder =
      code !== 'ENOENT' &&
      (await stat(path).then(
        (found) => found.isDirectory(),
        () => false,
      ));
    if (isFolder) return;
    if (code === 'EEXIST' || code === 'ENOTDIR') throw new UsageError(`${path} is not a directory.`);
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
    await makeFolder(dirname(path));
    await make().catch((again: NodeJS.ErrnoException) => {
      if (again.code !== 'EEXIST') throw again;
    });
  }
}

async function writeOne(path: string, content: string | Buffer): Promise<void> {
  const file = await open(path + partial, 'w', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(path + partial, path);
}

/** The names in a folder are on disk too. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r').catch(() => undefined);
  // Windows opens no folder, and keeps its names by itself.
  await handle?.sync().catch(() => {});
  await handle?.close();
}

/** Removes files that a killed command left incomplete. */
export async function removePartials(directory: string): Promise<void> {
  for (const folder of [directory, join(directory, 'labels')])
    for (const name of await readdir(folder).catch(() => [])) if (name.endsWith(partial)) await rm(join(folder, name));
}
