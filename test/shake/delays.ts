/** Loaded before anything else into each process and thread of a shake: delays the event loop, commits and fsync, by a seed. */
import fs from 'node:fs';
import { open } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import threads, { threadId, type WorkerOptions } from 'node:worker_threads';
import Sqlite, { type Statement } from 'better-sqlite3';
import { dice } from '../support/dice.ts';

const roll = dice(Number(process.env.TEST_SHAKE_SEED ?? 0) * 31 + threadId);
const never = new Int32Array(new SharedArrayBuffer(4));
/** Holds this thread up, as a busy machine does; it takes no CPU. */
const hold = (milliseconds: number) => void Atomics.wait(never, 0, 0, milliseconds);

/** What a disk may take: mostly nothing, one time of ten up to 40 ms, and rarely long. */
const diskTime = (): number => {
  const kind = roll();
  if (kind < 0.004) return 300 * roll();
  return kind < 0.1 ? 40 * roll() : 0;
};

// Turns of the event loop: one within a quarter of a second is late.
const later = () =>
  setTimeout(() => {
    hold(roll() < 0.02 ? 250 * roll() : 20 * roll());
    later();
  }, 250 * roll()).unref();
later();

// Threads, which the service starts without what the main one has loaded.
threads.Worker = class extends threads.Worker {
  constructor(file: string | URL, options: WorkerOptions = {}) {
    super(file, { ...options, execArgv: [...(options.execArgv ?? []), `--import=${import.meta.filename}`] });
  }
};

// Commits.
const { prepare } = Sqlite.prototype;
Sqlite.prototype.prepare = function (this: Sqlite.Database, source: string) {
  const statement: Statement = Reflect.apply(prepare, this, [source]);
  if (source !== 'COMMIT') return statement;
  const run = statement.run.bind(statement);
  return Object.defineProperty(statement, 'run', {
    value: (...values: unknown[]) => {
      hold(diskTime());
      return run(...values);
    },
  });
} as typeof prepare;

// Files that are not databases.
const { fsyncSync } = fs;
fs.fsyncSync = (descriptor) => {
  hold(diskTime());
  fsyncSync(descriptor);
};
syncBuiltinESMExports();
const file = await open(process.execPath);
const handles = Object.getPrototypeOf(file);
await file.close();
for (const name of ['sync', 'datasync']) {
  const method = handles[name];
  handles[name] = async function (this: unknown) {
    await new Promise((resolve) => setTimeout(resolve, diskTime()));
    return Reflect.apply(method, this, []);
  };
}
