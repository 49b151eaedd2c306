/** Devices of a page: their rows are close to each other, so a bit for each is enough. */
const pageSize = 4096;
const perWord = 32;

/** A set of devices by the number of their row: a bit for each device of the service, where an account has any. */
export class DeviceSet {
  readonly #pages = new Map<number, Uint32Array>();
  size = 0;

  has(row: number): boolean {
    const word = this.#pages.get(Math.floor(row / pageSize))?.[(row % pageSize) >> 5] ?? 0;
    return (word & (1 << (row % perWord))) !== 0;
  }

  set(row: number, isIn: boolean): void {
    if (this.has(row) === isIn) return;
    const number = Math.floor(row / pageSize);
    const page = this.#pages.get(number) ?? new Uint32Array(pageSize / perWord);
    this.#pages.set(number, page);
    page[(row % pageSize) >> 5] = (page[(row % pageSize) >> 5] ?? 0) ^ (1 << (row % perWord));
    this.size += isIn ? 1 : -1;
  }

  /** Those that are not in another set; some hundred at a time. */
  *without(other: DeviceSet): Generator<number[]> {
    for (const [number, page] of [...this.#pages]) {
      const rows = Array.from({ length: pageSize }, (_, at) => number * pageSize + at);
      const some = page.some((word) => word !== 0) ? rows.filter((row) => this.has(row) && !other.has(row)) : [];
      if (some.length > 0) yield some;
    }
  }
}
