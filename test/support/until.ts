/** Waits of tests: each ends, and says what it waited for and what it saw. */
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';

/** Seconds without any progress after which a wait fails. */
export const patience = Number(process.env.TEST_PATIENCE_SECONDS ?? 20);

/**
 * Waits for a state that no event reports: looks often at first, then every 50 ms. Returns what was seen when `isDone` says so; without
 * it, when that is true of a condition. @throws Error after 20 seconds in which what was seen has not changed.
 */
export async function until<T>(
  look: () => T | Promise<T>,
  isDone: (seen: Awaited<T>) => unknown = Boolean,
): Promise<Awaited<T>> {
  const asked = new Error();
  const what = isDone === Boolean ? `${look}` : `${look} and ${isDone}`;
  let [shown, since] = ['nothing', performance.now()];
  for (let pause = 1; ; pause = Math.min(2 * pause, 50)) {
    const looked = look();
    const seen = await (looked instanceof Promise ? soon(what, looked, () => shown, asked) : looked);
    if (isDone(seen)) return seen;
    const now = show(seen);
    if (now !== shown) [shown, since] = [now, performance.now()];
    else if (performance.now() - since > patience * 1000) throw tooLate(what, shown, asked);
    await delay(pause);
  }
}

/**
 * What a promise gives within 20 seconds from now; `what` is what it waits for, `saw` tells what has come so far. Nobody has to
 * await it. @throws Error after that time.
 */
export function soon<T>(what: string, promise: Promise<T>, saw?: () => unknown, asked = new Error()): Promise<T> {
  const settled = new Promise<T>((resolve, reject) => {
    const fail = () => reject(tooLate(what, saw && show(saw()), asked));
    const timer = setTimeout(fail, patience * 1000).unref();
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
  settled.catch(() => {});
  return settled;
}

const show = (seen: unknown): string => (typeof seen === 'string' ? seen : inspect(seen, { depth: 3 }));

/** An error whose place is the caller's. */
function tooLate(what: string, shown: string | undefined, { stack = '' }: Error): Error {
  const error = new Error(`waited ${patience} seconds for ${what}${shown === undefined ? '' : `; it saw: ${shown}`}`);
  const callers = stack.split('\n').filter((line) => /^ +at /.test(line) && !line.includes(import.meta.filename));
  error.stack = [String(error), ...callers].join('\n');
  return error;
}
