/** Does something soon after a message on one of the topics: once for many that come together, and not while nobody looks. */
import { useEffect, useRef } from 'preact/hooks';
import { listen } from './live.ts';

/** `pause` is in milliseconds. With `fromStart` it is done, too, when the stream has opened: what was said before it is missed else. */
export function useHeard(topics: readonly string[], pause: number, run: () => void, fromStart = false): void {
  const latest = useRef(run);
  latest.current = run;
  const heard = topics.join(',');
  useEffect(() => {
    if (heard === '') return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        if (!document.hidden) latest.current();
      }, pause);
    };
    const source = listen(heard.split(','), soon, (isOpen) => isOpen && fromStart && soon());
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, [heard]);
}
