/** A page of rows that is read again while it is looked at: rows change where they are, and new ones come at an end. */
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError } from '../../app/errors.ts';
import { isWatched } from '../../app/session.ts';
import { type Loaded, useLoad } from '../data/load.ts';
import { useStale } from '../data/stale.tsx';

interface Slice<T> {
  results?: T[];
  meta?: { count: number };
}

interface Live<T> {
  /** The answer that these rows have followed. */
  of: Slice<T>;
  slice: Slice<T>;
  fresh: ReadonlySet<string>;
}

const none: ReadonlySet<string> = new Set();

/**
 * `every` is in milliseconds; of a list that has the newest first, new rows come at the beginning. What is asked for anew, by its dependencies or `reload`, comes in its
 * own order.
 */
export function useLiveRows<T extends { id: string }>(
  load: (signal: AbortSignal) => Promise<Slice<T>>,
  dependencies: readonly unknown[],
  { every, newestFirst = false }: { every: number; newestFirst?: boolean },
): Loaded<Slice<T>> & { fresh: ReadonlySet<string> } {
  const loaded = useLoad(load, dependencies);
  const [live, setLive] = useState<Live<T>>();
  const [failed, setFailed] = useState<{ error: unknown; since: number }>();
  const { data, loading } = loaded;
  const latest = useRef(load);
  latest.current = load;
  const readNow = useRef(() => {});
  useEffect(() => {
    if (!data || loading || every === 0) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let shown: Live<T> = { of: data, slice: data, fresh: none };
    let since = Date.now();
    const follow = (next: Slice<T>) => {
      shown = followed(shown, next, newestFirst);
      since = Date.now();
      setLive(shown);
      setFailed(undefined);
    };
    const read = async () => {
      timer = undefined;
      if (isWatched()) {
        const { signal } = controller;
        await latest.current(signal).then(
          (next) => signal.aborted || follow(next),
          (error) => signal.aborted || (isPastEnd(error) ? loaded.reload() : setFailed({ error, since })),
        );
        if (signal.aborted) return;
      }
      timer = setTimeout(read, every);
    };
    readNow.current = () => {
      if (timer === undefined) return;
      clearTimeout(timer);
      read();
    };
    timer = setTimeout(read, every);
    return () => {
      controller.abort();
      clearTimeout(timer);
      setFailed(undefined);
    };
  }, [data, loading, every, newestFirst]);
  useStale(
    failed?.error,
    failed?.since ?? 0,
    useCallback(() => readNow.current(), []),
  );
  const current = live && live.of === data ? live : undefined;
  return useMemo(
    () => ({ ...loaded, data: current?.slice ?? data, fresh: current?.fresh ?? none }),
    [current, data, loading, loaded.error],
  );
}

/** The rows as they are now, in the places that they have: nothing moves under the pointer. */
function followed<T extends { id: string }>(
  { of, slice, fresh }: Live<T>,
  next: Slice<T>,
  newestFirst: boolean,
): Live<T> {
  const before = slice.results ?? [];
  const now = new Map((next.results ?? []).map((row) => [row.id, row]));
  const known = new Set(before.map(({ id }) => id));
  const come = [...now.values()].filter(({ id }) => !known.has(id));
  const gone = before.filter(({ id }) => !now.has(id)).length;
  // On a full page new rows push others out, which stay where they are; else they are gone.
  const kept = gone <= come.length ? before : before.filter(({ id }) => now.has(id));
  // A row that shows the same stays the same object, and is not drawn again.
  const rows = kept.map((row) => {
    const latest = now.get(row.id);
    return latest && JSON.stringify(latest) !== JSON.stringify(row) ? latest : row;
  });
  const isSame = come.length === 0 && rows.length === before.length && rows.every((row, at) => row === before[at]);
  const changed = newestFirst ? [...come, ...rows] : [...rows, ...come];
  const results = isSame ? before : changed;
  const marked = come.length === 0 ? fresh : new Set([...fresh, ...come.map(({ id }) => id)]);
  return { of, slice: { ...next, results }, fresh: marked };
}

const isPastEnd = (error: unknown) => error instanceof ApiError && error.status === 416;

/** Leads to the page before one whose rows were all deleted, here or elsewhere. */
export function usePageBefore(
  page: number,
  { error, loading }: Pick<Loaded<unknown>, 'error' | 'loading'>,
  onPage: (page: number, replace: boolean) => void,
): void {
  const isPast = !loading && page > 1 && isPastEnd(error);
  useEffect(() => {
    if (isPast) onPage(page - 1, true);
  }, [isPast, page]);
}
