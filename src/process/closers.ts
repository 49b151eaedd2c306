/** The ends of what has been opened, to be called in reverse order. */
export class Closers {
  readonly #closers: Array<() => unknown> = [];

  push(close: () => unknown): void {
    this.#closers.push(close);
  }

  async close(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close();
  }
}
