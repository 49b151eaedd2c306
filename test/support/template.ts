/**
 * What the first service of a run makes and the others take, kept next to the build: a data directory with its first
 * account (the signing key, the schema and the hash of a password take longer than all the rest of a start), and the
 * OpenAPI document, which takes as long again.
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

const build = fileURLToPath(new URL('../..', import.meta.url));
const files = ['registry.db', 'messages.db'] as const;

/** Where it is, or will be; each build has its own, because it may have another schema. */
function place(): string {
  return join(build, `template-${statSync(join(build, 'src/main.js')).mtimeMs}`);
}

/** Copies the signing keys into `directory`, unless it has its own or there are none yet. */
export function copyKeys(directory: string): void {
  if (existsSync(place()) && !existsSync(join(directory, 'keys')))
    copyAll(join(place(), 'keys'), join(directory, 'keys'));
}

/** Copies the databases, with the first account, into an empty `directory`. */
export function copyDatabases(directory: string): void {
  if (!existsSync(place()) || existsSync(join(directory, 'registry.db'))) return;
  for (const name of files) copyFileSync(join(place(), name), join(directory, name));
}

/** Copies databases without an account, of which the migrations are most of a first start, into an empty `directory`. */
export async function copySchema(directory: string): Promise<void> {
  if (files.some((name) => existsSync(join(directory, name)))) return;
  const kept = `${place()}-schema`;
  if (!existsSync(kept)) {
    const partial = mkdtempSync(join(build, 'partial-'));
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
  const partial = mkdtempSync(join(build, 'partial-'));
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
  const partial = mkdtempSync(join(build, 'partial-'));
  writeFileSync(join(partial, 'document'), JSON.stringify(document));
  renameSync(join(partial, 'document'), kept);
  rmSync(partial, { recursive: true });
  return document;
}
