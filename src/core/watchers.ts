/** Watchers of something, by its id. */
export class Watchers {
  readonly #watching = new Map<string, Set<() => void>>();

  /** Calls `hear` at every change of `id`, until the returned function is called. */
  addWatcher(id: string, hear: () => void): () => void {
    const own = this.#watching.get(id) ?? new Set();
    this.#watching.set(id, own.add(hear));
    return () => {
      own.delete(hear);
      if (own.size === 0 && this.#watching.get(id) === own) this.#watching.delete(id);
    };
  }

  /** To be told after the commit. */
  tellWatchers(ids: Iterable<string>): void {
    for (const id of ids) for (const hear of [...(this.#watching.get(id) ?? [])]) hear();
  }
}
