/** Forms that somebody has changed, and the question before one is lost: by Escape, by a link, by Back, with the page. */
import { signal } from '@preact/signals';

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

interface Watched {
  /** What each control had when somebody came to it: what comes late is no change. */
  before: Map<Control, string>;
  isChanged: boolean;
}
const forms = new Map<HTMLFormElement, Watched>();

/** What is done once the person agrees to lose what they have typed. */
export const question = signal<(() => void) | undefined>(undefined);

const contentOf = (control: Control) =>
  control instanceof HTMLInputElement && /^(checkbox|radio)$/.test(control.type)
    ? String(control.checked)
    : control.value;

const isControl = (target: EventTarget | null): target is Control =>
  target instanceof HTMLInputElement || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;

/** Watches a form until the returned function is called. `isChanged`: it was begun with something that is lost with it, too. */
export function watchForm(form: HTMLFormElement, isChanged: boolean): () => void {
  const watched: Watched = { before: new Map(), isChanged };
  const come = ({ target }: Event) => {
    if (isControl(target) && !watched.before.has(target)) watched.before.set(target, contentOf(target));
  };
  const change = ({ target }: Event) => {
    if (isControl(target) && !watched.before.has(target)) watched.isChanged = true;
  };
  // Buttons among the fields add lines, and remove them.
  const press = ({ target }: Event) => {
    const button = target instanceof Element ? target.closest('button') : null;
    if (button?.type === 'button' && !button.closest('.end')) watched.isChanged = true;
  };
  forms.set(form, watched);
  form.addEventListener('focusin', come);
  form.addEventListener('input', change);
  form.addEventListener('click', press);
  return () => forms.delete(form);
}

function changedIn(part: Node): Watched[] {
  return [...forms]
    .filter(([form]) => part.contains(form))
    .map(([, watched]) => watched)
    .filter(
      ({ before, isChanged }) =>
        isChanged || [...before].some(([control, value]) => control.isConnected && contentOf(control) !== value),
    );
}

/** Nothing of any form is worth a question any more. */
export function forgetForms(): void {
  forms.clear();
}

/** Does it at once, or once the person agrees to lose what they have changed in this part of the page. */
export function leave(go: () => void, part: Node = document): void {
  const changed = changedIn(part);
  if (changed.length === 0) {
    go();
    return;
  }
  question.value = () => {
    for (const watched of changed) {
      watched.isChanged = false;
      watched.before.clear();
    }
    go();
  };
}

/** Asks wherever a page is left. Code that has done what a person wanted goes on without a question. */
export function guardPage(): void {
  let shown = location.href;
  const note = () => {
    shown = location.href;
  };
  addEventListener('pushState', note);
  addEventListener('replaceState', note);
  // The router hears it later, or not at all.
  addEventListener(
    'popstate',
    (event) => {
      if (new URL(shown).pathname === location.pathname || changedIn(document).length === 0) return note();
      event.stopImmediatePropagation();
      history.pushState(null, '', shown);
      leave(() => history.back());
    },
    true,
  );
  document.addEventListener('click', followLink, true);
  addEventListener('beforeunload', (event) => changedIn(document).length > 0 && event.preventDefault());
  addEventListener('dragover', keepFromFiles);
  addEventListener('drop', keepFromFiles);
}

/** A browser shows a file that is dropped beside a field for files in place of the page. */
function keepFromFiles(event: DragEvent): void {
  const isField = event.target instanceof HTMLInputElement && event.target.type === 'file';
  if (!isField && event.dataTransfer?.types.includes('Files')) event.preventDefault();
}

/** Only links to another page of the console: of others the browser asks. */
function followLink(event: MouseEvent): void {
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>('a[href]') : null;
  const isPlain = event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || link.target !== '' || link.hasAttribute('download')) return;
  const { origin, pathname } = new URL(link.href);
  if (origin !== location.origin || !pathname.startsWith('/console/') || pathname === location.pathname) return;
  if (changedIn(document).length === 0) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  leave(() => link.click());
}
