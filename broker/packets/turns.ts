/** One message that waits for its own work, and for every message before it. */
export interface Turn {
  completed: boolean;
  readonly pass: () => void;
}

/** How many passed turns stay in the array before they are cut off; a busy client's line is never empty. */
const passedKept = 1024;

/**
 * The messages of one client pass strictly in the order in which they came: a whole read chunk is dispatched at once,
 * and uneven waiting would reorder messages and acknowledgements.
 */
export class Turns {
  /** Undefined until somebody waits: most connections never do. */
  #line: Turn[] | undefined;
  #first = 0;

  get idle(): boolean {
    return this.#first === (this.#line?.length ?? 0);
  }

  /** Takes a place in the line; `pass` is called once the turn is complete and all before it have passed. */
  reserve(pass: () => void): Turn {
    const turn = { completed: false, pass };
    this.#line ??= [];
    this.#line.push(turn);
    return turn;
  }

  complete(turn: Turn): void {
    turn.completed = true;
    while (this.#line && this.#first < this.#line.length) {
      const next = this.#line[this.#first] as Turn;
      if (!next.completed) return;
      this.#first += 1;
      if (this.#first === passedKept) {
        this.#line.splice(0, passedKept);
        this.#first = 0;
      }
      next.pass();
    }
    this.#line = undefined;
    this.#first = 0;
  }
}

/** Lines that others have to find by a name, each for as long as somebody is in it. */
export class NamedTurns {
  readonly #lines = new Map<string, { turns: Turns }>();

  of(name: string): Turns | undefined {
    return this.#lines.get(name)?.turns;
  }

  /** Finds it under this name until all who are in it now have passed; `emptied` is called then, unless it is kept again. */
  keep(name: string, turns: Turns, emptied: () => void = () => {}): void {
    if (turns.idle) return;
    const line = { turns };
    this.#lines.set(name, line);
    turns.complete(
      turns.reserve(() => {
        if (this.#lines.get(name) !== line) return;
        this.#lines.delete(name);
        emptied();
      }),
    );
  }
}
