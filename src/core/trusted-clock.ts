/** The time by which something is old enough to be deleted: it does not follow a clock that jumps ahead. */
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from './clock.ts';

const day = 24 * 60 * 60_000;
/** Milliseconds that the clock may run ahead of what has passed. */
const tolerance = day;
/** Milliseconds without a write after which a start does not believe the clock. */
const longRest = 30 * day;
/** Milliseconds after which a clock that has stayed ahead is believed. */
const patience = day;
/** Milliseconds between two looks at whether somebody has confirmed the clock. */
const lookEvery = 1000;

/** Holds, in ISO 8601, what the time would be without the jump. It is there while the clock is doubted; without it, it is believed. */
const doubtName = 'clock-doubt';
const written = ['registry.db', 'registry.db-wal', 'messages.db', 'messages.db-wal', 'changed', 'version'];

/** When a data directory was written last, by the times of its files; 0 for a new one. */
export function lastWritten(directory: string): number {
  const times = written.flatMap((name) => statSync(join(directory, name), { throwIfNoEntry: false })?.mtimeMs ?? []);
  return Math.floor(Math.max(0, ...times));
}

/** What the time would be without a jump that nobody has confirmed; undefined when there was none. */
export function doubtedSince(directory: string): number | undefined {
  const path = join(directory, doubtName);
  const time = existsSync(path) ? Date.parse(readFileSync(path, 'utf8').trim()) : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}

/** The time that is believed, for a command: a server may run or not, and has the last word. To be asked before it writes. */
export function believedTime(directory: string, now = Date.now()): number {
  const doubted = doubtedSince(directory);
  const since = statSync(join(directory, doubtName), { throwIfNoEntry: false })?.mtimeMs ?? now;
  if (doubted !== undefined) return Math.min(now, doubted + Math.max(0, now - since));
  const last = lastWritten(directory);
  return last > 0 && now - last > longRest ? last : now;
}

/** Has the clock believed from now on, also by a server that runs. */
export function believeClock(directory: string): void {
  rmSync(join(directory, doubtName), { force: true });
}

interface Services {
  clock: Clock;
  directory: string;
  log: { warn(about: object, sentence: string): void };
}

export class TrustedClock implements Clock {
  readonly #services: Services;
  /** The time at a moment of the monotonic clock. */
  #anchor: { time: number; at: number };
  /** Of the monotonic clock. */
  #doubtedAt: number | undefined;
  #lookedAt = 0;

  /** `last` is when the directory was written before this start. */
  constructor(services: Services, last: number) {
    this.#services = services;
    const { clock, directory } = services;
    const [now, at] = [clock.now(), clock.monotonic?.() ?? 0];
    const before = doubtedSince(directory) ?? last;
    this.#anchor = { time: before > 0 && now - before > longRest ? before : now, at };
    this.now();
  }

  /** Milliseconds that the clock is ahead of what is believed; 0 when it is believed. */
  get ahead(): number {
    const now = this.#services.clock.now();
    return now - this.#believed(now);
  }

  now(): number {
    return this.#believed(this.#services.clock.now());
  }

  /** The believed time while the clock shows `now`. */
  #believed(now: number): number {
    const at = this.#services.clock.monotonic?.();
    if (at === undefined) return now;
    // The monotonic clock has parts of milliseconds, which no column of times takes.
    const expected = Math.floor(this.#anchor.time + at - this.#anchor.at);
    if (now - expected <= tolerance) {
      if (this.#doubtedAt !== undefined) this.#believe(now, at, 'the clock is right again');
      return now;
    }
    if (this.#doubtedAt === undefined) this.#doubt(now, expected, at);
    else if (at - this.#doubtedAt >= patience)
      this.#believe(now, at, 'the clock has stayed ahead for a day: it is believed');
    else if (at - this.#lookedAt >= lookEvery) {
      this.#lookedAt = at;
      if (!existsSync(join(this.#services.directory, doubtName)))
        this.#believe(now, at, 'the clock has been confirmed');
    }
    return this.#doubtedAt === undefined ? now : expected;
  }

  #doubt(now: number, expected: number, at: number): void {
    this.#doubtedAt = at;
    this.#lookedAt = at;
    const { directory, log } = this.#services;
    const [shown, believed] = [now, expected].map((time) => new Date(time).toISOString());
    log.warn(
      { shown, believed },
      'the clock has jumped ahead: nothing is deleted for its age until it is right, slipway clock confirm is run, or a day has passed',
    );
    writeFileSync(join(directory, doubtName), `${believed}\n`, { mode: 0o600 });
  }

  #believe(time: number, at: number, why: string): void {
    this.#anchor = { time, at };
    this.#doubtedAt = undefined;
    believeClock(this.#services.directory);
    this.#services.log.warn({ time: new Date(time).toISOString() }, why);
  }
}
