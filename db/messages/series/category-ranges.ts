/** Where the points of a category are in a series, read from the marks that the writer keeps (marks.ts). */
import type Sqlite from 'better-sqlite3';
import type { Range } from '../types.ts';

/** Marks that are read in one go, and that become one stretch: few at first, because the last point is mostly in the last mark. */
const marksAtOnce = 64;
const nextSize = (size: number) => Math.min(4 * size, marksAtOnce);

/** A stretch of time: `from` inclusive and `to` exclusive, in milliseconds. */
export interface Stretch {
  from: number;
  to: number;
}

/** Reads marks, from the connection for reading. */
export class CategoryRanges {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepare(reader);
  }

  /** The categories of a series; undefined if there are more than `max`. */
  categoriesOf(series: number, max: number): number[] | undefined {
    const { nextCategory } = this.#statements;
    const found: number[] = [];
    for (let one = nextCategory.get(series, 0); one !== undefined; one = nextCategory.get(series, one)) {
      found.push(one);
      if (found.length > max) return undefined;
    }
    return found;
  }

  /** Whether a category has a mark in a stretch; if not, it has no point there. */
  has(series: number, category: number, { from, to }: Stretch): boolean {
    const last = this.#statements.marksBelow.get({ series, category, bound: to, limit: 1 });
    return last !== undefined && last.to > from;
  }

  /** The stretches that hold all points of a category, in the order of time. Up to 64 adjacent marks become one stretch. */
  *stretches(series: number, category: number, stretch: Stretch, order: Range['order']): Generator<Stretch> {
    let open: Stretch | undefined;
    let marks = 0;
    let most = 1;
    for (const { from, to } of this.#marks(series, category, stretch, order)) {
      marks += 1;
      if (open && marks <= most && (open.to === from || to === open.from)) {
        open = { from: Math.min(open.from, from), to: Math.max(open.to, to) };
        continue;
      }
      if (open) {
        yield open;
        most = nextSize(most);
      }
      open = { from, to };
      marks = 1;
    }
    if (open) yield open;
  }

  /** Where in a stretch a category is, in an order; nothing of it is elsewhere. */
  *#marks(series: number, category: number, { from, to }: Stretch, order: Range['order']): Generator<Stretch> {
    const { marksBelow, marksAbove } = this.#statements;
    const clip = (mark: Stretch) => ({ from: Math.max(mark.from, from), to: Math.min(mark.to, to) });
    if (order === 'desc') {
      for (let [bound, limit] = [to, 2]; ; limit = nextSize(limit)) {
        const marks = marksBelow.all({ series, category, bound, limit });
        for (const mark of marks) {
          if (mark.to <= from) return;
          yield clip(mark);
          bound = mark.from;
        }
        if (marks.length < limit) return;
      }
    }
    const [begun] = marksBelow.all({ series, category, bound: from + 1, limit: 1 });
    if (begun && begun.to > from && from < to) yield clip(begun);
    for (let bound = from; ; ) {
      const marks = marksAbove.all({ series, category, bound, limit: marksAtOnce });
      for (const mark of marks) {
        if (mark.from >= to) return;
        yield clip(mark);
        bound = mark.from;
      }
      if (marks.length < marksAtOnce) return;
    }
  }
}

interface MarksQuery {
  series: number;
  category: number;
  bound: number;
  limit: number;
}

function prepare(reader: Sqlite.Database) {
  const marks = (beyond: '<' | '>', order: 'ASC' | 'DESC') =>
    reader.prepare<[MarksQuery], Stretch>(
      `SELECT "from", "to" FROM "categoryMarks" WHERE "series" = @series AND "category" = @category
       AND "from" ${beyond} @bound ORDER BY "from" ${order} LIMIT @limit`,
    );
  return {
    nextCategory: reader
      .prepare<[number, number], number>(
        `SELECT "category" FROM "categoryMarks" WHERE "series" = ? AND "category" > ? ORDER BY "category" LIMIT 1`,
      )
      .pluck(),
    marksBelow: marks('<', 'DESC'),
    marksAbove: marks('>', 'ASC'),
  };
}
