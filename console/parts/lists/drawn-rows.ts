/**
 * Which rows of a long table are drawn: those near the visible part, and the one that has the focus; all of them once the page is
 * printed, or searched by the browser.
 */
import { flushSync } from 'preact/compat';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

/** Shorter tables draw all of their rows. */
const longFrom = 100;
/** Rows beyond the visible ones, so that the Tab key finds a next one. */
const margin = 10;
/** The drawn part moves by so many rows at a time. */
const step = 10;
/** Rows that are drawn before the visible part is known. */
const firstDrawn = 40;
/** Pixels, until a row is measured. */
const usualHeight = 40;

/** A row by its place, or the height in pixels of rows that are not drawn, from the place of the first. */
type Part = number | { from: number; height: number };

/** `columns` changes with the columns of the table. */
export function useDrawnRows(count: number, columns: unknown) {
  const [hasAll, setAll] = useState(false);
  const isLong = count > longFrom && !hasAll;
  const drawAll = () => flushSync(() => setAll(true));
  useLayoutEffect(() => {
    if (!isLong) return;
    // Before the browser looks at the page, which it does next.
    const press = ({ key, ctrlKey, metaKey }: KeyboardEvent) => {
      if (key === 'F3' || ((ctrlKey || metaKey) && key.toLowerCase() === 'f')) drawAll();
    };
    addEventListener('beforeprint', drawAll);
    addEventListener('keydown', press);
    return () => {
      removeEventListener('beforeprint', drawAll);
      removeEventListener('keydown', press);
    };
  }, [isLong]);
  const table = useRef<HTMLTableElement>(null);
  const [drawn, setDrawn] = useState<Drawn>({ from: 0, to: firstDrawn, height: usualHeight, isPart: false });
  const latest = useRef(drawn);
  const [focused, setFocused] = useState<number>();
  useLayoutEffect(() => {
    if (!isLong) return;
    const look = () => {
      const shown = table.current;
      if (!shown) return;
      // Here the page is laid out already. After rows have been drawn, measuring would make the browser do it once more.
      steadyWidths(shown);
      latest.current = visiblePart(shown, count, latest.current);
      setDrawn(latest.current);
      if (latest.current.isPart) plan();
    };
    // In a task of its own: drawing rows in the task that paints the page would keep it longer.
    let planned: ReturnType<typeof setTimeout> | undefined;
    const plan = () => {
      planned ??= setTimeout(() => {
        planned = undefined;
        look();
      });
    };
    look();
    const options = { passive: true };
    addEventListener('scroll', plan, options);
    addEventListener('resize', plan, options);
    return () => {
      clearTimeout(planned);
      removeEventListener('scroll', plan);
      removeEventListener('resize', plan);
    };
  }, [isLong, count, columns]);
  useLayoutEffect(() => {
    const heads = isLong && table.current ? headsOf(table.current) : [];
    return () => {
      for (const head of heads) head.style.minWidth = '';
    };
  }, [isLong, columns]);
  const onFocusIn = ({ target }: FocusEvent) => {
    const place = (target as HTMLElement).closest('tr')?.dataset.place;
    setFocused(place === undefined ? undefined : Number(place));
  };
  const [from, to] = isLong ? [Math.min(drawn.from, count), Math.min(drawn.to, count)] : [0, count];
  const kept = isLong && focused !== undefined && focused < count && (focused < from || focused >= to);
  const beyond = kept ? focused : undefined;
  const parts = useMemo(() => {
    const places = Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
    if (beyond !== undefined) places.push(beyond);
    return withGaps(places, count, drawn.height);
  }, [from, to, count, beyond, drawn.height]);
  return { table, isLong, drawAll, onFocusIn, parts };
}

interface Drawn {
  from: number;
  to: number;
  height: number;
  /** Whether rows beyond the visible ones are still to come. */
  isPart: boolean;
}

/** After a jump these are the visible rows alone, which is half of the work; the others come in the next task. */
function visiblePart(table: HTMLTableElement, count: number, before: Drawn): Drawn {
  const [body] = table.tBodies;
  const row = body?.querySelector('tr[data-place]');
  if (!body || !row) return before;
  const height = row.getBoundingClientRect().height || usualHeight;
  const first = -body.getBoundingClientRect().top / height;
  const last = first + innerHeight / height;
  const isPart = first > before.to || last < before.from;
  const beyond = isPart ? 0 : margin;
  const from = Math.max(0, Math.floor((first - beyond) / step) * step);
  const to = Math.min(count, Math.ceil((last + beyond) / step) * step);
  const isSame = from === before.from && to === before.to && height === before.height && isPart === before.isPart;
  return isSame ? before : { from, to, height, isPart };
}

function withGaps(places: number[], count: number, height: number): Part[] {
  const parts: Part[] = [];
  let next = 0;
  for (const place of [...places.sort((a, b) => a - b), count]) {
    if (place > next) parts.push({ from: next, height: (place - next) * height });
    if (place < count) parts.push(place);
    next = place + 1;
  }
  return parts;
}

const headsOf = (table: HTMLTableElement) => [...(table.tHead?.rows[0]?.cells ?? [])];

/** Columns get wider with longer texts, but not narrower: else they would jump with each row that is drawn. */
function steadyWidths(table: HTMLTableElement): void {
  const heads = headsOf(table);
  const isTooWide = table.scrollWidth > (table.parentElement?.clientWidth ?? 0);
  // All are read before one is written, so that the page is laid out once.
  const widths = heads.map((head) => (isTooWide ? '' : `${head.offsetWidth}px`));
  for (const [at, head] of heads.entries())
    if (head.style.minWidth !== widths[at]) head.style.minWidth = widths[at] ?? '';
}
