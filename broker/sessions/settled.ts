/**
 * A promise that is settled already and calls back at once, not in a later microtask. Aedes counts a message, then
 * waits for the persistence, then delivers; a message that arrives in between would overtake and erase the earlier one.
 */
export class Settled<T> implements Promise<T> {
  readonly [Symbol.toStringTag] = 'Settled';
  readonly #value: T;
  readonly #error: Error | undefined;

  private constructor(value: T, error: Error | undefined) {
    this.#value = value;
    this.#error = error;
  }

  static of(): Promise<void>;
  static of<T>(value: T): Promise<T>;
  static of<T>(value?: T): Promise<T | undefined> {
    return new Settled(value, undefined);
  }

  static failed(error: Error): Promise<never> {
    return new Settled(undefined as never, error);
  }

  // biome-ignore lint/suspicious/noThenProperty: being a promise is its purpose
  then<A = T, B = never>(
    onValue?: ((value: T) => A | PromiseLike<A>) | null,
    onError?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#error) return onError ? this.#follow(onError(this.#error)) : Promise.reject(this.#error);
    return onValue ? this.#follow(onValue(this.#value)) : Promise.resolve(this.#value as unknown as A);
  }

  catch<B = never>(onError?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, onError);
  }

  finally(onSettled?: (() => void) | null): Promise<T> {
    onSettled?.();
    return this;
  }

  #follow<R>(result: R | PromiseLike<R>): Promise<R> {
    const isPending = typeof result === 'object' && result !== null && 'then' in result;
    return isPending ? Promise.resolve(result) : Settled.of(result as R);
  }
}
