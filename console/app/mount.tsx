/** Puts a page into the document, with what every page shows over itself. */
import { type ComponentChildren, render } from 'preact';
import { Boundary } from '../parts/boundary.tsx';
import { Uncopied } from '../parts/copy.tsx';
import { Question } from '../parts/dialog.tsx';
import { keepFocus } from '../parts/focus.ts';
import { Toasts } from '../parts/toast.tsx';
import { guardPage } from '../parts/unsaved.ts';

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
