import type Sqlite from 'better-sqlite3';

/** What a change is of: the key of what has changed, and bits that say what of it. An empty key stands for all there is. */
export interface Change {
  key: string;
  bits: number;
}

/** Changes of one commit that are told one by one. */
const maxChanges = 10_000;
const everything: readonly Change[] = [{ key: '', bits: -1 }];

/** What triggers of a connection note by `note_change(key, bits)`. */
export class NotedChanges {
  readonly #bits = new Map<string, number>();

  constructor(connection: Sqlite.Database, triggers: readonly string[]) {
    connection.function('note_change', (key, bits) => {
      if (bits !== 0 && key !== null && this.#bits.size <= maxChanges)
        this.#bits.set(String(key), (this.#bits.get(String(key)) ?? 0) | Number(bits));
      return null;
    });
    for (const trigger of triggers) connection.exec(trigger);
  }

  /** What has been noted since the last call; some of it may have been rolled back. */
  take(): readonly Change[] {
    if (this.#bits.size === 0) return [];
    const taken = this.#bits.size > maxChanges ? everything : Array.from(this.#bits, ([key, bits]) => ({ key, bits }));
    this.#bits.clear();
    return taken;
  }
}
