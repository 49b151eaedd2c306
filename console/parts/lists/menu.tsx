/** A menu of what can be done with one thing. The browser keeps it above everything, and closes it. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Item {
  text: string;
  run: () => void;
  danger?: boolean;
}

/** What is false is left out, so that callers write conditions into the list. */
export type Items = readonly (Item | false | null | undefined)[];

/** A button that opens a menu. Tables have one menu for all of their rows instead. */
export function Menu({ label, items }: { label: string; items: Items }) {
  const [button, setButton] = useState<HTMLButtonElement>();
  /** The browser closes an open menu before the button hears its click. */
  const wasOpen = useRef(false);
  if (!items.some((item) => item)) return null;
  return (
    <>
      <MenuButton
        label={label}
        onPointerDown={() => {
          wasOpen.current = button !== undefined;
        }}
        onOpen={(pressed) => {
          setButton(wasOpen.current ? undefined : pressed);
          wasOpen.current = false;
        }}
      />
      {button && <Popup label={label} items={items} button={button} onClose={() => setButton(undefined)} />}
    </>
  );
}

export function MenuButton({
  label,
  onOpen,
  onPointerDown,
}: {
  label: string;
  onOpen: (button: HTMLButtonElement) => void;
  onPointerDown?: () => void;
}) {
  return (
    <button
      type="button"
      class="plain actions-of"
      aria-label={label}
      aria-haspopup="menu"
      aria-expanded={false}
      onPointerDown={onPointerDown}
      onClick={({ currentTarget }) => onOpen(currentTarget)}
    />
  );
}

/** The menu of a button, which is open as long as it is there. */
export function Popup({
  label,
  items,
  button,
  onClose,
}: {
  label: string;
  items: Items;
  button: HTMLButtonElement;
  onClose: () => void;
}) {
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const shown = menu.current;
    if (!shown) return;
    shown.showPopover();
    place(shown, button);
    shown.querySelector('button')?.focus();
    button.setAttribute('aria-expanded', 'true');
    return () => button.setAttribute('aria-expanded', 'false');
  }, [button]);
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
    <div
      ref={menu}
      class="popup"
      popover="auto"
      role="menu"
      aria-label={label}
      tabIndex={-1}
      onToggle={({ newState }) => newState === 'closed' && onClose()}
      onKeyDown={press}
    >
      {items.map(
        (item) =>
          item && (
            <button
              key={item.text}
              type="button"
              role="menuitem"
              class={item.danger ? 'danger' : undefined}
              onClick={() => {
                menu.current?.hidePopover();
                item.run();
              }}
            >
              {item.text}
            </button>
          ),
      )}
    </div>
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
