/**
 * What the first service of a run makes and the others take, in node_modules/.cache, because each takes as long as the rest of a
 * start: a data directory with its first account, and the OpenAPI document.
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Sqlite from 'better-sqlite3';
import { bringUpToDate } from '../../db/files/schema.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const cache = join(root, 'node_modules/.cache/slipway-tests');
const files = ['registry.db', 'messages.db'] as const;

/** How many sources there are and when one was changed last: another schema needs another template. */
const version = sourceVersion();

function sourceVersion(): string {
  const times = ['src', 'cells', 'cli', 'broker', 'db'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map(
      (file) => statSync(join(root, folder, file)).mtimeMs,
    ),
  );
  return `${times.length}-${Math.max(...times)}`;
}

/** Where it is, or will be. Those of other sources go. */
function place(): string {
  const own = join(cache, version);
  if (!existsSync(own)) {
    mkdirSync(own, { recursive: true });
    for (const other of readdirSync(cache))
      if (other !== version) rmSync(join(cache, other), { recursive: true, force: true });
  }
  return join(own, 'account');
}

/** Copies the signing keys into `directory`, unless it has its own or there are none yet. */
export function copyKeys(directory: string): void {
  if (existsSync(place()) && !existsSync(join(directory, 'keys')))
    copyAll(join(place(), 'keys'), join(directory, 'keys'));
}

/** Copies the databases, with the first account, into a `directory` that has their keys and nothing else. */
export function copyDatabases(directory: string): void {
  if (!existsSync(place()) || existsSync(join(directory, 'registry.db'))) return;
  // Another process has made them since the keys were looked for: without its keys they would be refused.
  if (!existsSync(join(directory, 'keys'))) return;
  for (const name of files) copyFileSync(join(place(), name), join(directory, name));
}

/** Copies databases without an account, of which the migrations are most of a first start, into an empty `directory`. */
export async function copySchema(directory: string): Promise<void> {
  if (files.some((name) => existsSync(join(directory, name)))) return;
  const kept = `${place()}-schema`;
  if (!existsSync(kept)) {
    const partial = mkdtempSync(join(place(), '../partial-'));
    for (const name of files) await bringUpToDate(partial, name);
    keep(partial, kept);
  }
  for (const name of files) {
    copyFileSync(join(kept, name), join(directory, name));
    chmodSync(join(directory, name), 0o600);
  }
}

/** Keeps what the service on `directory` has made so far. */
export function keepTemplate(directory: string): void {
  if (existsSync(place())) return;
  const partial = mkdtempSync(join(place(), '../partial-'));
  copyAll(join(directory, 'keys'), join(partial, 'keys'));
  for (const name of files) {
    const file = new Sqlite(join(directory, name), { readonly: true });
    file.prepare('VACUUM INTO ?').run(join(partial, name));
    file.close();
  }
  keep(partial, place());
}

/** Of several at once, one is kept. */
function keep(partial: string, at: string): void {
  try {
    renameSync(partial, at);
  } catch {
    rmSync(partial, { recursive: true });
  }
}

function copyAll(from: string, to: string): void {
  mkdirSync(to, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(from)) copyFileSync(join(from, name), join(to, name));
}

/** The OpenAPI document under a header prefix, which is all that it depends on. */
export function keptDocument(headerPrefix: string, make: () => object): object {
  const kept = `${place()}-${headerPrefix}.json`;
  if (existsSync(kept)) return JSON.parse(readFileSync(kept, 'utf8'));
  const document = make();
  const partial = mkdtempSync(join(place(), '../partial-'));
  writeFileSync(join(partial, 'document'), JSON.stringify(document));
  renameSync(join(partial, 'document'), kept);
  rmSync(partial, { recursive: true });
  return document;
}
