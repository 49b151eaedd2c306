/** Loads what a place shows, again whenever one of the dependencies changes. */
import { computed, signal } from '@preact/signals';
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { isWatched, returned } from '../../app/session.ts';
import { givenBack } from '../dialogs/toast.tsx';
import { useStale } from './stale.tsx';

export interface Loaded<T> {
  data: T | undefined;
  error: unknown;
  loading: boolean;
  reload(): void;
}

const firstLoads = signal(0);
/** Whether a part of the page has nothing to show yet, whatever stands in its place. */
export const isIncomplete = computed(() => firstLoads.value > 0);

/** Counts a first load until what it returns is called. */
function beginFirstLoad(): () => void {
  let ended = false;
  firstLoads.value += 1;
  return () => {
    if (!ended) firstLoads.value -= 1;
    ended = true;
  };
}

/** `every` is in milliseconds: what changes by itself is read again. The signal ends a request that is no longer needed. */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
  every = 0,
): Loaded<T> {
  const [state, setState] = useState<{ data: T | undefined; error: unknown; of: string | undefined; at: number }>({
    data: undefined,
    error: undefined,
    of: undefined,
    at: 0,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const latestState = useRef(state);
  latestState.current = state;
  const key = JSON.stringify(dependencies);
  const of = `${round} ${key}`;
  const loadedKey = useRef<string>();
  // Not after the next frame: that would be one frame more until there is something to see.
  useLayoutEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    const endFirst = loadedKey.current === key ? undefined : beginFirstLoad();
    latest
      .current(signal)
      .then((data) => signal.aborted || setState({ data, error: undefined, of, at: Date.now() }))
      .catch((error) => signal.aborted || setState((before) => ({ ...before, error, of })))
      .finally(() => {
        if (!signal.aborted) loadedKey.current = key;
        endFirst?.();
      });
    return () => {
      controller.abort();
      endFirst?.();
    };
  }, [of]);
  useEffect(() => {
    if (every === 0) return;
    const timer = setInterval(() => isWatched() && setRound((before) => before + 1), every);
    return () => clearInterval(timer);
  }, [every]);
  // What failed for want of a session; what was read stays as it is.
  useEffect(() => {
    const since = returned.value;
    return returned.subscribe((now) => {
      if (now > since && latestState.current.error !== undefined) setRound((before) => before + 1);
    });
  }, []);
  useEffect(() => {
    const since = givenBack.value;
    return givenBack.subscribe((now) => now > since && setRound((before) => before + 1));
  }, []);
  // Not noted as a state of its own: that would draw everything once more with each key of a search.
  const { data, error, at } = state;
  const reload = useCallback(() => setRound((before) => before + 1), []);
  useStale(error, at, reload);
  return { data, error, loading: state.of !== of, reload };
}
