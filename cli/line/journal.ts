/**
 * What a directory of units knows of itself: an append-only file of JSON lines, each on disk before what it announces is
 * done. Anyone who is killed at any moment goes on where it is. It holds no secrets.
 */
import { type FileHandle, open, readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { FlashFormat } from '../../src/factory/provisioning/unit.ts';
import { Ending, trouble, UsageError } from '../usage.ts';
import { type LabelForm, makeFolder } from './unit-files.ts';

/** The request for one unit. */
export interface UnitRow {
  serialNumber: string;
  /** Name of its files, without extension. */
  file: string;
  /** Further fields of the device. */
  fields: Record<string, string>;
  /** When the device is there and only needs a secret. */
  deviceId?: string | undefined;
}

/** Units that are asked for together, under one Idempotency-Key. */
export interface Chunk {
  key: string;
  /** When it was begun, ISO 8601. */
  time: string;
  /** The caller that began it: the Idempotency-Key works for that caller only. */
  caller?: string | undefined;
  /** A job for many, single calls for one. */
  by: 'job' | 'unit';
  template?: string | undefined;
  organization?: string | undefined;
  rows: UnitRow[];
}

export interface DoneUnit {
  serialNumber: string;
  deviceId: string;
  file: string;
  /** The sheet that its label is on, below the directory, where labels are sheets. */
  sheet?: string | undefined;
  /** The flags that it was made with, as Line has them; an older journal does not say. */
  madeWith?: string | undefined;
}

export interface FailedUnit {
  serialNumber: string;
  reason: string;
  /** That of the server's error. */
  code?: number | undefined;
}

/** Values that cannot change in a directory: it would mix files of two formats or units of two accounts. */
export interface Settings {
  accountId: string;
  format: FlashFormat;
  labels: LabelForm;
}

type Entry =
  | ({ type: 'settings' } & Settings)
  | ({ type: 'chunk' } & Chunk)
  | { type: 'job'; key: string; jobId: string }
  /** The files of these units are on disk. */
  | { type: 'written'; key: string; done: DoneUnit[]; failed: FailedUnit[]; madeWith?: string }
  | { type: 'confirmed'; key: string }
  /** Nothing was made of it. */
  | { type: 'dropped'; key: string; reason: string }
  /** The results of its job are gone: its devices get new secrets, each by itself. */
  | { type: 'recover'; key: string; chunks: Chunk[]; failed: FailedUnit[] };

/** Where a chunk stands. */
export interface ChunkState extends Chunk {
  jobId?: string;
  state: 'begun' | 'written' | 'over';
}

const fileName = 'journal.ndjson';
/** How long a command for one unit waits for another one in the same directory, in milliseconds. */
const unitPatience = 10_000;

export class Journal {
  settings: Settings | undefined;
  /** Whether units have been asked for. */
  isUsed = false;
  readonly chunks = new Map<string, ChunkState>();
  readonly done = new Map<string, DoneUnit>();
  #writing: Promise<void> = Promise.resolve();

  readonly directory: string;
  readonly handle: FileHandle;
  readonly release: () => void;

  private constructor(directory: string, handle: FileHandle, release: () => void) {
    this.directory = directory;
    this.handle = handle;
    this.release = release;
  }

  /**
   * Opens the journal of a directory, alone; with `serialNumber` only what concerns that unit is read. @throws Ending 3 when another
   * command works there, UsageError for a journal that is damaged, or missing where there are files of units.
   */
  static async open(directory: string, serialNumber?: string): Promise<Journal> {
    try {
      return await Journal.#openAlone(directory, serialNumber);
    } catch (error) {
      if (error instanceof UsageError || error instanceof Ending) throw error;
      throw trouble(`${directory} cannot be used: ${(error as Error).message}`);
    }
  }

  static async #openAlone(directory: string, serialNumber: string | undefined): Promise<Journal> {
    await makeFolder(directory);
    const release = await lock(directory, serialNumber === undefined ? 0 : unitPatience);
    const handle = await open(join(directory, fileName), 'a+', 0o600).catch((error) => {
      release();
      throw error;
    });
    try {
      const journal = new Journal(directory, handle, release);
      await journal.#read(serialNumber);
      return journal;
    } catch (error) {
      await handle.close();
      release();
      throw error;
    }
  }

  async close(): Promise<void> {
    // Anyone who appended has heard of what went wrong.
    await this.#writing.catch(() => {});
    await this.handle.close();
    this.release();
  }

  /** Chunks that were begun and never brought to an end. */
  get begun(): ChunkState[] {
    return [...this.chunks.values()].filter(({ state }) => state !== 'over');
  }

  /** The entry is on disk when this returns. @throws Ending 3 when the disk takes it not. */
  async append(entry: Entry): Promise<void> {
    const line = `${JSON.stringify(entry)}\n`;
    this.#writing = this.#writing.then(async () => {
      await this.handle.appendFile(line);
      await this.handle.datasync();
    });
    await this.#writing.catch((error: Error) => {
      throw trouble(`${join(this.directory, fileName)} cannot be written: ${error.message}`);
    });
    this.#apply(entry);
  }

  async #read(serialNumber: string | undefined): Promise<void> {
    const content = await this.handle.readFile();
    if (content.length === 0) await this.#demandNoUnits();
    const end = content.lastIndexOf(0x0a) + 1;
    // A line that was being written when the command was killed announces nothing that has been done.
    if (end < content.length) await this.handle.truncate(end);
    // Lines that name the unit, and lines about a chunk that does.
    const wanted = serialNumber === undefined ? [''] : [JSON.stringify(serialNumber)];
    for (let start = 0; start < end; ) {
      const next = content.indexOf(0x0a, start) + 1;
      const line = content.subarray(start, next);
      const isSettings = line.includes('{"type":"settings"');
      if (!isSettings) this.isUsed = true;
      if (isSettings || wanted.some((text) => line.includes(text))) {
        const entry = this.#parse(line);
        if (entry.type === 'chunk') wanted.push(entry.key);
        if (entry.type === 'recover') wanted.push(...entry.chunks.map(({ key }) => key));
        this.#apply(entry);
      }
      start = next;
    }
  }

  /** Without a journal, earlier units are unknown: they would be made twice and overwritten. */
  async #demandNoUnits(): Promise<void> {
    const found = (await readdir(this.directory)).find((name) => /.\.(csv|env|h|json)$/.test(name));
    if (found === undefined) return;
    const sentence = `There is ${found} in ${this.directory}, and no ${fileName} that says what it is`;
    throw new UsageError(`${sentence}: use an empty directory, or restore the journal.`);
  }

  #parse(line: Buffer): Entry {
    try {
      return JSON.parse(line.toString()) as Entry;
    } catch {
      throw new UsageError(`${join(this.directory, fileName)} is damaged: ${line.subarray(0, 60)}`);
    }
  }

  #apply(entry: Entry): void {
    if (entry.type === 'settings') {
      const { type: _, ...settings } = entry;
      this.settings = settings;
      return;
    }
    if (entry.type === 'chunk') {
      const { type: _, ...chunk } = entry;
      this.chunks.set(chunk.key, { ...chunk, state: 'begun' });
      return;
    }
    const chunk = this.chunks.get(entry.key);
    // Where only one unit is looked at, lines about many may name a chunk that was not read.
    if (!chunk) return;
    switch (entry.type) {
      case 'job':
        chunk.jobId = entry.jobId;
        break;
      case 'written':
        for (const unit of entry.done) this.done.set(unit.serialNumber, { madeWith: entry.madeWith, ...unit });
        // Single units have nothing that could be confirmed.
        chunk.state = chunk.by === 'job' ? 'written' : 'over';
        break;
      case 'recover':
        for (const one of entry.chunks) this.chunks.set(one.key, { ...one, state: 'begun' });
        chunk.state = 'over';
        break;
      default:
        chunk.state = 'over';
    }
  }
}

/** A lock of SQLite is the system's own: it ends with the process, however that ends. */
async function lock(directory: string, patience: number): Promise<() => void> {
  // By require: an import would read each of its files twice, to find what they export.
  const Sqlite = createRequire(import.meta.url)('better-sqlite3') as typeof import('better-sqlite3');
  const path = join(directory, 'journal.lock');
  await (await open(path, 'a', 0o600)).close();
  const file = new Sqlite(path, { timeout: patience });
  try {
    file.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    file.close();
    if (error instanceof Sqlite.SqliteError && error.code.startsWith('SQLITE_BUSY'))
      throw trouble(`Another command works in ${directory}.`);
    throw error;
  }
  return () => file.close();
}
