/** Back finds a page as it was left: where it was scrolled to, and the row from which something was opened. */
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useLocation, useSearch } from 'wouter-preact';

interface Left {
  scrolled: number;
  /** What was pressed last, and how far from the top of the window it stood. */
  pressed: { selector: string; top: number } | undefined;
}

/** As many pages as are remembered. */
const maxLeft = 50;
/** Milliseconds that a page has to show what was pressed where it stood. */
const patience = 10_000;
/** What a person does on a page that they do not wait for. */
const own = ['keydown', 'pointerdown', 'wheel', 'touchmove'] as const;

const left = new Map<string, Left>();
/** The page before this one. */
let leftLast: string | undefined;
let isBack = performance.getEntriesByType('navigation').some((one) => 'type' in one && one.type === 'back_forward');
let pressed: Element | null = null;
addEventListener('popstate', () => {
  isBack = true;
});
addEventListener('pushState', () => {
  isBack = false;
});
document.addEventListener(
  'click',
  ({ target }) => {
    const one = target instanceof Element ? target.closest('a[href], button') : null;
    // What is chosen in a menu belongs to its button.
    pressed = one?.closest('[role=menu]') ? document.querySelector('[aria-haspopup=menu][aria-expanded=true]') : one;
  },
  true,
);

function selectorOf(element: Element): string | undefined {
  const name = ['href', 'aria-label'].find((one) => element.hasAttribute(one));
  return name && `${element.localName}[${name}=${JSON.stringify(element.getAttribute(name))}]`;
}

function leftNow(): Left {
  const selector = pressed?.isConnected && pressed.closest('main') ? selectorOf(pressed) : undefined;
  const top = pressed?.getBoundingClientRect().top ?? 0;
  return { scrolled: scrollY, pressed: selector === undefined ? undefined : { selector, top } };
}

/** For a page: notes how it is left, and after Back shows it like that as soon as it has read what it shows. */
export function useBack(): void {
  const [path] = useLocation();
  const search = useSearch();
  const address = useRef('');
  address.current = `${path}?${search}`;
  useEffect(() => {
    const before = isBack ? left.get(address.current) : undefined;
    const end = before && restore(before);
    return () => {
      end?.();
      leftLast = address.current;
      left.delete(address.current);
      left.set(address.current, leftNow());
      for (const oldest of left.keys()) if (left.size > maxLeft) left.delete(oldest);
    };
  }, []);
}

/** The page from which something was opened whose pages are below `own`; `otherwise` where that is not known. */
export function useCameFrom(own: string, otherwise: string): string {
  const [from, setFrom] = useState(otherwise);
  useLayoutEffect(() => {
    if (leftLast !== undefined && !leftLast.startsWith(own)) setFrom(leftLast);
  }, [own]);
  return from;
}

/** For a link that leads back: the page is shown as it was left. */
export const goesBack = () =>
  queueMicrotask(() => {
    isBack = true;
  });

/** @returns how to end it. */
function restore({ scrolled, pressed }: Left): () => void {
  /** Where what was pressed stands again. */
  let restored: number | undefined;
  const look = () => {
    if (restored !== undefined && scrollY !== restored) return end();
    // A long list draws the rows that are in sight.
    if (restored === undefined) scrollTo(0, scrolled);
    const found = pressed && document.querySelector<HTMLElement>(`main ${pressed.selector}`);
    if (!pressed) return scrollY < scrolled - 1 ? undefined : end();
    if (!found) return;
    if (restored === undefined) found.focus({ preventScroll: true });
    // Rows above it may still get their height.
    scrollBy(0, found.getBoundingClientRect().top - pressed.top);
    restored = scrollY;
  };
  const observer = new MutationObserver(look);
  const timer = setTimeout(() => end(), patience);
  const end = () => {
    clearTimeout(timer);
    observer.disconnect();
    for (const name of own) removeEventListener(name, end, true);
  };
  for (const name of own) addEventListener(name, end, true);
  observer.observe(document.body, { childList: true, subtree: true, attributeFilter: ['style'] });
  look();
  return end;
}
