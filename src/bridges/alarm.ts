/** How long to wait after failures, on the injected clock. */

/** Milliseconds: the first pause, and the longest. */
const firstPause = 1000;
const maxPause = 300_000;
/** Milliseconds of real time between two looks at the clock while something waits. */
const look = 200;

/** The pause after so many failures in a row: doubled each time, with jitter of a half, so that bridges do not march in step. */
export function pauseAfter(failures: number): number {
  const full = Math.min(firstPause * 2 ** Math.min(failures - 1, 30), maxPause);
  return full * (0.5 + Math.random() / 2);
}

/** Calls `work` soon, once however often it was asked for, or when the clock has moved on. */
export class Alarm {
  readonly #work: () => void;
  #soon: NodeJS.Immediate | undefined;
  #later: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(work: () => void) {
    this.#work = work;
  }

  soon(): void {
    if (this.#stopped) return;
    this.#soon ??= setImmediate(() => {
      this.#soon = undefined;
      this.#work();
    });
  }

  /** Looks again in a moment: anyone who waits for a time compares it with the clock by itself. */
  later(): void {
    if (this.#stopped) return;
    this.#later ??= setTimeout(() => {
      this.#later = undefined;
      this.#work();
    }, look);
    this.#later.unref();
  }

  stop(): void {
    this.#stopped = true;
    clearImmediate(this.#soon);
    clearTimeout(this.#later);
  }
}
