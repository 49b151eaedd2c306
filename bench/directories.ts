/** Directories with registries: each number of devices is made once in a run, and every scenario gets a copy. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { seed } from './seed.ts';

export class Directories {
  readonly #root = mkdtempSync(join(tmpdir(), 'slipway-bench-'));
  readonly #made = new Set<number>();
  #lent: string[] = [];

  /** A new directory with so many devices. */
  async lend(devices: number): Promise<string> {
    const original = join(this.#root, `of-${devices}`);
    if (devices > 0 && !this.#made.has(devices)) {
      await seed(original, devices, (line) => console.log(line));
      this.#made.add(devices);
    }
    const copy = mkdtempSync(join(this.#root, 'lent-'));
    if (devices > 0) cpSync(original, copy, { recursive: true });
    this.#lent.push(copy);
    return copy;
  }

  /** Ends those that were lent. */
  takeBack(): void {
    for (const directory of this.#lent) rmSync(directory, { recursive: true, force: true });
    this.#lent = [];
  }

  end(): void {
    rmSync(this.#root, { recursive: true, force: true });
  }
}
