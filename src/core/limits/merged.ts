/** Writes of one key, one after the other: what comes while one is under way is merged. */
import { PlatformError } from '../errors.ts';

/** A value, and who waits for its outcome. */
interface Part<V, R> {
  value: V;
  resolve(result: R): void;
  reject(error: unknown): void;
}

type Write<V, R> = (value: V) => Promise<R>;

/**
 * Merges values of one key while an earlier one is written: a later one that says everything that the one before it says
 * makes that meaningless. Both share the outcome, so each is acknowledged when it, or a later one, is on disk.
 */
export class Merged<V extends object, R> {
  readonly #mayMerge: (before: V, later: V) => boolean;
  /** By key, what waits, in order: the parts of one write each. A key is here while something of it is written. */
  readonly #waiting = new Map<string, Array<Array<Part<V, R>>>>();

  /** Values are written by themselves, in their order, if `mayMerge` says so: the end of something stays, whatever comes later. */
  constructor(mayMerge: (before: V, later: V) => boolean = () => true) {
    this.#mayMerge = mayMerge;
  }

  /**
   * Writes `value`, by itself or with others. If several share a write that is refused, the earlier ones are tried by
   * themselves, in their order. @throws what `write` throws.
   */
  writeMerged(key: string, value: V, write: Write<V, R>): Promise<R> {
    return new Promise((resolve, reject) => {
      const part = { value, resolve, reject };
      const waiting = this.#waiting.get(key);
      if (!waiting) {
        this.#waiting.set(key, []);
        void this.#goOn(key, [part], write);
        return;
      }
      const latest = waiting.at(-1);
      const before = latest?.at(-1);
      const isCovered = before && Object.keys(before.value).every((name) => name in value);
      if (isCovered && this.#mayMerge(before.value, value)) latest?.push(part);
      else waiting.push([part]);
    });
  }

  async #goOn(key: string, first: Array<Part<V, R>>, write: Write<V, R>): Promise<void> {
    for (let parts: Array<Part<V, R>> | undefined = first; parts; parts = this.#waiting.get(key)?.shift())
      await settleParts(parts, write);
    this.#waiting.delete(key);
  }
}

async function settleParts<V, R>(parts: Array<Part<V, R>>, write: Write<V, R>): Promise<void> {
  const latest = parts.at(-1);
  if (!latest) return;
  try {
    const result = await write(latest.value);
    for (const { resolve } of parts) resolve(result);
  } catch (error) {
    if (error instanceof PlatformError)
      for (const { value, resolve, reject } of parts.slice(0, -1)) await write(value).then(resolve, reject);
    // Those that have an outcome already keep it.
    for (const { reject } of parts) reject(error);
  }
}
