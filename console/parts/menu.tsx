/** A menu of what can be done with one row. The browser keeps it above everything, and closes it. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icons.tsx';

export interface Item {
  text: string;
  run: () => void;
  danger?: boolean;
}

/** What is false is left out, so that callers write conditions into the list. */
export function Menu({ label, items }: { label: string; items: readonly (Item | false | null | undefined)[] }) {
  const [isOpen, setOpen] = useState(false);
  /** The browser closes an open menu before the button hears its click. */
  const wasOpen = useRef(false);
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!isOpen || !menu.current || !button.current) return;
    menu.current.showPopover();
    place(menu.current, button.current);
    menu.current.querySelector('button')?.focus();
  }, [isOpen]);
  const shown = items.filter((item) => !!item);
  if (shown.length === 0) return null;
  const press = (event: KeyboardEvent) => {
    const all = [...(menu.current?.querySelectorAll('button') ?? [])];
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const moves: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 };
    if (event.key === 'Tab') menu.current?.hidePopover();
    const to = moves[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all.at(to % all.length)?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class="plain actions-of"
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onPointerDown={() => {
          wasOpen.current = isOpen;
        }}
        onClick={() => {
          setOpen(!wasOpen.current);
          wasOpen.current = false;
        }}
      >
        <Icon name="dots" />
      </button>
      {isOpen && (
        <div
          ref={menu}
          class="popup"
          popover="auto"
          role="menu"
          aria-label={label}
          tabIndex={-1}
          onToggle={({ newState }) => newState === 'closed' && setOpen(false)}
          onKeyDown={press}
        >
          {shown.map(({ text, run, danger }) => (
            <button
              key={text}
              type="button"
              role="menuitem"
              class={danger ? 'danger' : undefined}
              onClick={() => {
                menu.current?.hidePopover();
                run();
              }}
            >
              {text}
            </button>
          ))}
        </div>
      )}
    </>
  );
}

/** Pixels between the button, the menu and the edge of the page. */
const distance = 4;

/** Below its button, or above it where there is no room. */
function place(menu: HTMLElement, button: HTMLElement): void {
  const at = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = at.bottom + distance;
  menu.style.left = `${Math.max(distance, at.right - width)}px`;
  menu.style.top = `${below + height > innerHeight ? Math.max(distance, at.top - height - distance) : below}px`;
}
