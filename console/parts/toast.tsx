/** Short notices, with "Undo" where the trash can give back. */
import { signal } from '@preact/signals';
import { texts } from '../texts.ts';

interface Toast {
  id: number;
  text: string;
  undo: (() => Promise<unknown>) | undefined;
}
const shown = signal<readonly Toast[]>([]);
const shownFor = 8000;
let last = 0;

export function toast(text: string, undo?: () => Promise<unknown>): void {
  last += 1;
  const id = last;
  shown.value = [...shown.value, { id, text, undo }];
  setTimeout(() => dismiss(id), shownFor);
}

export function failed(error: unknown): void {
  toast((error as Error).message);
}

function dismiss(id: number): void {
  shown.value = shown.value.filter((one) => one.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status">
      {shown.value.map(({ id, text, undo }) => (
        <div class="toast" key={id}>
          <span>{text}</span>
          {undo && (
            <button
              type="button"
              onClick={() => {
                dismiss(id);
                undo().catch(failed);
              }}
            >
              {texts.undo}
            </button>
          )}
        </div>
      ))}
    </div>
  );
}
