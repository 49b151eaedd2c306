/** The focus is never lost: when what has it is gone, it goes to what has come in its place, to what was around it, or to the heading. */

interface Focused {
  element: Element;
  name: string;
  around: readonly Element[];
  dialog: Element | null;
  /** What had the focus when the dialog was opened, and is given it back. */
  opener: Focused | undefined;
}
let last: Focused | undefined;
/** What had the focus when somebody left a place; a redirect is no step of theirs. */
let leftWith: Element | null = null;

const nameOf = (element: Element) =>
  element.getAttribute('aria-label') ?? element.getAttribute('name') ?? element.textContent ?? '';

function around(element: Element): Element[] {
  const parent = element.parentElement;
  return parent ? [parent, ...around(parent)] : [];
}

function focusedBy(element: Element): Focused {
  const dialog = element.closest('dialog');
  const opener = dialog && last?.dialog === dialog ? last.opener : last;
  return { element, name: nameOf(element), around: around(element), dialog, opener: dialog ? opener : undefined };
}

const isNowhere = () => document.activeElement === null || document.activeElement === document.body;

/** Whether somebody has gone on since they left a place: the next one, coming late, leaves them where they are. */
export const hasGoneOn = () => !isNowhere() && document.activeElement !== leftWith;

/** Starts to keep it. */
export function keepFocus(): void {
  for (const change of ['pushState', 'popstate'])
    addEventListener(change, () => {
      leftWith = document.activeElement;
    });
  document.addEventListener('focusin', ({ target, relatedTarget }) => {
    // A dialog that closes gives the focus back: nobody has moved it.
    if (target instanceof Element && relatedTarget instanceof Element && relatedTarget.closest('dialog'))
      leftWith = target;
    last = target instanceof Element ? focusedBy(target) : undefined;
  });
  const observer = new MutationObserver((records) => look(records));
  const look = (records: readonly MutationRecord[]) => {
    if (!last || !isNowhere()) return;
    const { element } = last;
    if (!element.isConnected) regain(last);
    // A row that has found another place in its list.
    else if (records.some(({ removedNodes }) => [...removedNodes].some((node) => node.contains(element))))
      (element as HTMLElement).focus({ preventScroll: true });
  };
  // Who presses where nothing is wants the focus nowhere. What is gone, or was moved, has not been left.
  document.addEventListener('focusout', ({ target }) =>
    queueMicrotask(() => {
      look(observer.takeRecords());
      if (isNowhere() && target === last?.element && last?.element.isConnected) last = undefined;
    }),
  );
  observer.observe(document.body, { childList: true, subtree: true });
}

function regain({ element, name, around, dialog, opener }: Focused): void {
  // The dialog has gone, and so has what it was opened from.
  if (opener && !opener.element.isConnected && !dialog?.isConnected) {
    regain(opener);
    return;
  }
  const near = around.find(({ isConnected }) => isConnected);
  const same = [...(near?.querySelectorAll<HTMLElement>(element.localName) ?? [])].find(
    (one) => name !== '' && nameOf(one) === name,
  );
  const region = around.find((one) => one.isConnected && one.localName !== 'main' && one.hasAttribute('tabindex'));
  if (same) same.focus({ preventScroll: true });
  if (isNowhere() && region instanceof HTMLElement) region.focus({ preventScroll: true });
  if (isNowhere()) focusHeading();
}

/** The heading of the dialog that is open, else of the page. */
function focusHeading(): void {
  const dialog = [...document.querySelectorAll('dialog:modal')].at(-1);
  const heading = (dialog ?? document).querySelector<HTMLElement>(dialog ? 'h2' : 'h1');
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}
