/** Loads what a place shows, again whenever one of the dependencies changes. */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Loaded<T> {
  data: T | undefined;
  error: unknown;
  loading: boolean;
  reload(): void;
}

/** `every` is in milliseconds: what changes by itself is read again. The signal ends a request that is no longer needed. */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
  every = 0,
): Loaded<T> {
  const [state, setState] = useState<{ data: T | undefined; error: unknown; loading: boolean }>({
    data: undefined,
    error: undefined,
    loading: true,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const key = JSON.stringify(dependencies);
  // Not after the next frame: that would be one frame more until there is something to see.
  useLayoutEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    setState((before) => ({ ...before, loading: true }));
    latest
      .current(signal)
      .then((data) => signal.aborted || setState({ data, error: undefined, loading: false }))
      .catch((error) => signal.aborted || setState((before) => ({ data: before.data, error, loading: false })));
    return () => controller.abort();
  }, [key, round]);
  useEffect(() => {
    if (every === 0) return;
    const timer = setInterval(() => document.hidden || setRound((before) => before + 1), every);
    return () => clearInterval(timer);
  }, [every]);
  return { ...state, reload: useCallback(() => setRound((before) => before + 1), []) };
}
