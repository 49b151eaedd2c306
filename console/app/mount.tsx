/** Puts a page into the document, with what every page shows over itself. */
import { type ComponentChildren, render } from 'preact';
import { Uncopied } from '../parts/codes/copy.tsx';
import { Question } from '../parts/dialogs/dialog.tsx';
import { Toasts } from '../parts/dialogs/toast.tsx';
import { guardPage } from '../parts/forms/unsaved.ts';
import { Boundary } from '../parts/page/boundary.tsx';
import { keepFocus } from '../parts/page/focus.ts';

export function mount(page: ComponentChildren): void {
  guardPage();
  keepFocus();
  const root = document.getElementById('app');
  if (!root) return;
  // Preact leaves an element there for which it has no use.
  root.replaceChildren();
  render(
    <Boundary>
      {page}
      <Question />
      <Uncopied />
      <Toasts />
    </Boundary>,
    root,
  );
}
