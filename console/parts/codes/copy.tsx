/** Copies texts, also where a browser has no clipboard for pages: over plain HTTP. */
import { signal } from '@preact/signals';
import { texts } from '../../words.ts';
import { CloseButton, Dialog } from '../dialogs/dialog.tsx';
import { TextArea } from '../forms/form.tsx';

/** What the browser lets no page copy: it is shown, selected. */
const shown = signal<string | undefined>(undefined);

/** Resolves to whether it is in the clipboard; else the person is told, and gets it to copy by hand. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    if (copySelected(text)) return true;
    shown.value = text;
    return false;
  }
}

/** As by the keyboard. */
function copySelected(text: string): boolean {
  const before = document.activeElement;
  const field = document.createElement('textarea');
  field.className = 'hidden';
  field.readOnly = true;
  field.value = text;
  // Outside of the dialog that is open nothing can be selected.
  const place = [...document.querySelectorAll('dialog:modal')].at(-1) ?? document.body;
  place.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  return isCopied;
}

export function Uncopied() {
  if (shown.value === undefined) return null;
  const close = () => {
    shown.value = undefined;
  };
  return (
    <Dialog title={texts.copyByHand} onClose={close}>
      <p>{texts.copyByHandSays}</p>
      <TextArea label={texts.text} name="text" value={shown.value} selected />
      <CloseButton onClose={close} />
    </Dialog>
  );
}
