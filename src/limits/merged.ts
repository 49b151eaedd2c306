/** Writes that wait for their turn, by key: a later value takes the place of one that waits. */
import { PlatformError } from '../errors.js';

/** A value that waits, and how many were merged into it. */
interface Waiting<V, R> {
  value: V;
  count: number;
  result: Promise<R>;
}

/**
 * Merges values of one key while their write waits: a later one that says everything that the earlier one said makes it
 * meaningless. All of them share the outcome, so each is acknowledged when it, or a later one, is on disk.
 */
export class Merged<V extends object, R> {
  readonly #waiting = new Map<string, Waiting<V, R>>();

  /**
   * Writes `value`, or lets it share a write that waits. `write` calls `begin` when its turn has come: later values have a
   * write of their own. If several share a write that is refused, each is tried by itself. @throws what `write` throws.
   */
  take(key: string, value: V, write: (value: V, begin: () => void) => Promise<R>): Promise<R> {
    const own = this.#join(key, value) ?? this.#begin(key, { ...value }, write);
    return own.result.catch((error: unknown) => {
      if (own.count === 1 || !(error instanceof PlatformError)) throw error;
      return write(value, () => {});
    });
  }

  #join(key: string, value: V): Waiting<V, R> | undefined {
    const before = this.#waiting.get(key);
    if (!before || !Object.keys(before.value).every((name) => name in value)) return undefined;
    Object.assign(before.value, value);
    before.count += 1;
    return before;
  }

  #begin(key: string, value: V, write: (value: V, begin: () => void) => Promise<R>): Waiting<V, R> {
    const begin = () => {
      if (this.#waiting.get(key) === own) this.#waiting.delete(key);
    };
    const own: Waiting<V, R> = { value, count: 1, result: Promise.resolve().then(() => write(value, begin)) };
    this.#waiting.set(key, own);
    own.result.then(begin, begin);
    return own;
  }
}
