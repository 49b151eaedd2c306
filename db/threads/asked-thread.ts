/** A thread that answers questions, seen from here. It starts when it is asked, and rests when it is not. */
import type { Worker } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';
import type { Answered, AskedQuestion, Failure } from './answering.ts';
import { exitOf, startThread } from './thread.ts';

/** Milliseconds without a question after which the thread ends. */
const restsAfter = 60_000;

/** Questions that one thread answers, or none: it neither rests nor closes before `end`. */
export interface HeldThread<Q, A> {
  /** Rejects as the worker does, and when its thread ends. */
  ask(question: Q): Promise<A>;
  end(): void;
}

export class AskedThread<Q, A> {
  readonly #file: URL;
  readonly #name: string;
  readonly #workerData: object;
  #life: Life<Q, A> | undefined;
  /** With those that are ending. */
  readonly #lives = new Set<Life<Q, A>>();
  #closed = false;

  /** `file` is a worker that calls `answerQuestions`, and finds `workerData`; errors name it as `name`. */
  constructor(file: URL, name: string, workerData: object = {}) {
    this.#file = file;
    this.#name = name;
    this.#workerData = workerData;
  }

  /** Questions that have not been answered. */
  get waiting(): number {
    return Array.from(this.#lives, (life) => life.waiting).reduce((sum, waiting) => sum + waiting, 0);
  }

  /** Rejects when the thread fails, or has been closed. What takes long may be answered after what was asked later. */
  async ask(question: Q): Promise<A> {
    const held = this.hold();
    try {
      return await held.ask(question);
    } finally {
      held.end();
    }
  }

  /** For several questions. @throws Error when it has been closed. */
  hold(): HeldThread<Q, A> {
    if (this.#closed) throw new Error(`${this.#name} is closed.`);
    this.#life ??= this.#begin();
    return this.#life.hold();
  }

  /** Ends the thread after what it has been asked; the next question starts another. */
  async rest(): Promise<void> {
    const life = this.#life;
    this.#life = undefined;
    await life?.end();
  }

  /** As `rest`, for good. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(Array.from(this.#lives, (life) => life.end()));
  }

  #begin(): Life<Q, A> {
    const life = new Life<Q, A>(startThread(this.#file, this.#workerData), this.#name, () => void this.rest());
    this.#lives.add(life);
    void life.over.then(() => {
      this.#lives.delete(life);
      if (this.#life === life) this.#life = undefined;
    });
    return life;
  }
}

/** One thread, from its start to its end. */
class Life<Q, A> {
  readonly #worker: Worker;
  readonly #rest: () => void;
  readonly #waiting = new Map<number, { resolve(answer: A): void; reject(error: Error): void }>();
  /** Resolves when it has ended. */
  readonly over: Promise<void>;
  /** Why it has ended. */
  #cause: Error | undefined;
  #asked = 0;
  #held = 0;
  #isEnding = false;
  #timer: NodeJS.Timeout | undefined;

  /** `rest` is called when nobody has asked for long. */
  constructor(worker: Worker, name: string, rest: () => void) {
    this.#worker = worker;
    this.#rest = rest;
    let cause = new Error(`${name} has ended.`);
    worker.on('message', (answered: Answered<A>) => {
      const asking = this.#waiting.get(answered.id);
      this.#waiting.delete(answered.id);
      if ('failure' in answered) asking?.reject(errorOf(answered.failure));
      else asking?.resolve(answered.answer);
    });
    worker.on('error', (error) => {
      cause = error as Error;
    });
    this.over = exitOf(worker).then(() => {
      this.#cause = cause;
      for (const { reject } of this.#waiting.values()) reject(cause);
      this.#waiting.clear();
    });
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  hold(): HeldThread<Q, A> {
    clearTimeout(this.#timer);
    this.#held += 1;
    let isHeld = true;
    const end = () => {
      if (!isHeld) return;
      isHeld = false;
      this.#held -= 1;
      if (this.#held > 0) return;
      if (this.#isEnding) this.#close();
      else this.#timer = setTimeout(this.#rest, restsAfter).unref();
    };
    return { ask: (question) => this.#ask(question), end };
  }

  /** Resolves when it has ended: after what it has been asked. */
  end(): Promise<void> {
    clearTimeout(this.#timer);
    this.#isEnding = true;
    if (this.#held === 0) this.#close();
    return this.over;
  }

  #ask(question: Q): Promise<A> {
    if (this.#cause) return Promise.reject(this.#cause);
    this.#asked += 1;
    const id = this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, question } satisfies AskedQuestion<Q>);
    });
  }

  #close(): void {
    this.#worker.postMessage({ close: true } satisfies AskedQuestion<Q>);
  }
}

/** What a thread has said of an error: with its code, and with the class that errors of SQLite have. */
export function errorOf({ message, code }: Failure): Error {
  if (code?.startsWith('SQLITE_')) return new Sqlite.SqliteError(message, code);
  return Object.assign(new Error(message), code !== undefined && { code });
}
