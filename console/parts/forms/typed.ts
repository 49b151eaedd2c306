/** What is asked for while somebody types: each key, but not each of a burst as a scanner types it. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

/** Whether a key belongs to an input method, which chooses characters with it. Safari says so by the code alone. */
export const isComposed = ({ isComposing, keyCode }: KeyboardEvent) => isComposing || keyCode === 229;

/** Milliseconds from one question to the next. */
const pause = 40;

export function useTyped(typed: string): string {
  const [asked, setAsked] = useState(typed);
  const askedAt = useRef(0);
  useLayoutEffect(() => {
    const ask = () => {
      askedAt.current = performance.now();
      setAsked(typed);
    };
    const left = askedAt.current + pause - performance.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (left > 0) timer = setTimeout(ask, left);
    else ask();
    return () => clearTimeout(timer);
  }, [typed]);
  return asked;
}
