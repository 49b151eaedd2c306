/** The owner of a data directory: a lock between processes of a machine, a fence between machines. */
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import Sqlite from 'better-sqlite3';

/** Names the holder in one line of this length, so that it is replaced by a single write. */
const holderFile = 'server.holder';
const lineLength = 256;
/** Characters of the line that tell holders apart: the generation, and a random part for two that take over at once. */
const markLength = 16 + 1 + 16;

/** Another process has taken over the data directory: nothing may be written or acknowledged here any more. */
export class Fenced extends Error {
  override name = 'Fenced';
  readonly code = 'FENCED';

  constructor() {
    super('another process has taken over the data directory');
  }
}

/** Compares who holds a directory with who held it. One comparison reads 33 bytes of a file that is open: microseconds. */
export class Fence {
  readonly #fd: number;
  readonly #mark: Buffer;
  readonly #found = Buffer.alloc(markLength);

  private constructor(fd: number, mark: Buffer) {
    this.#fd = fd;
    this.#mark = mark;
  }

  /** For the holder of this mark, or for the present one; undefined if no server has held the directory. */
  static open(directory: string, mark?: string): Fence | undefined {
    try {
      const fd = openSync(join(directory, holderFile), 'r');
      const found = Buffer.alloc(markLength);
      readSync(fd, found, 0, markLength, 0);
      return new Fence(fd, mark === undefined ? found : Buffer.from(mark));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT' && mark === undefined) return undefined;
      throw error;
    }
  }

  /** The data with which other threads open their fence. */
  get mark(): string {
    return this.#mark.toString();
  }

  /** @throws Fenced if another process has taken over. */
  checkHolder(): void {
    const read = readSync(this.#fd, this.#found, 0, markLength, 0);
    if (read !== markLength || !this.#found.equals(this.#mark)) throw new Fenced();
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/**
 * Commits as the holder of a directory: compared before the commit, and after it, because only then it is certain that the next
 * holder has read what was committed. @throws Fenced if another process has taken over: nothing of it may be acknowledged.
 */
export function commitAsHolder<R>(fence: { checkHolder(): void } | undefined, commit: () => R): R {
  fence?.checkHolder();
  const committed = commit();
  fence?.checkHolder();
  return committed;
}

/** Makes a directory and those above it, one by one: where the system refuses oddly, `recursive` tries for ever. */
function makeDirectory(directory: string): void {
  if (existsSync(directory)) return;
  makeDirectory(dirname(directory));
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    // Another process may have been quicker.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/**
 * Keeps every other process of this machine off `directory` until this one ends, however it ends.
 * @throws Error that names the other process.
 */
export function lockDirectory(directory: string): { release(): void } {
  makeDirectory(directory);
  const lock = new Sqlite(join(directory, 'server.lock'), { timeout: 0 });
  try {
    lock.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    lock.close();
    if (error instanceof Sqlite.SqliteError && error.code.startsWith('SQLITE_BUSY'))
      throw new Error(`another server is running on it${describeHolder(directory)}`);
    throw error;
  }
  return { release: () => lock.close() };
}

/** Whether another process has locked a directory; nothing is created to find out. */
export function isLocked(directory: string): boolean {
  if (!existsSync(join(directory, 'server.lock'))) return false;
  try {
    lockDirectory(directory).release();
    return false;
  } catch {
    return true;
  }
}

/** Makes this process the holder of a directory that it has locked; the process that held it before can commit nothing more. */
export function takeOver(directory: string): Fence {
  const path = join(directory, holderFile);
  const generation = (readHolder(path)?.generation ?? 0) + 1;
  const mark = `${String(generation).padStart(16, '0')} ${randomBytes(8).toString('hex')}`;
  const line = `${mark} process ${process.pid} on ${hostname()} since ${new Date().toISOString()}`;
  // In place: a file that replaced it would not be seen by processes that have the old one open.
  const fd = openSync(path, readHolder(path) ? 'r+' : 'w', 0o600);
  try {
    writeSync(fd, `${line.slice(0, lineLength - 1).padEnd(lineLength - 1)}\n`, 0);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  return Fence.open(directory, mark) as Fence;
}

function readHolder(path: string): { generation: number; name: string } | undefined {
  try {
    const [, generation, name = ''] = /^(\d{16}) [0-9a-f]{16} (.*?) *\n/.exec(readFileSync(path, 'latin1')) ?? [];
    return { generation: Number(generation ?? 0), name };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function describeHolder(directory: string): string {
  const { name = '' } = readHolder(join(directory, holderFile)) ?? {};
  return name === '' ? '' : `: ${name}`;
}
