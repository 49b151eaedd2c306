/** Short notices, with "Undo" where something can be given back. They stay while the pointer or the focus is on them. */
import { signal } from '@preact/signals';
import { createPortal } from 'preact/compat';
import { useEffect } from 'preact/hooks';
import { sentenceOf } from '../../app/errors.ts';
import { texts } from '../../words.ts';
import { Button } from '../forms/form.tsx';
import { Icon } from '../page/icons.tsx';

interface Toast {
  id: number;
  text: string;
  undo: (() => Promise<unknown>) | undefined;
}
const shown = signal<readonly Toast[]>([]);
/** Leads to Undo of the last notice. */
const noticesKey = 'F8';
/** Milliseconds. */
const shownFor = 8000;
/** Of more, the oldest go: they cover what is below them. */
const maxShown = 4;
let last = 0;

export function toast(text: string, undo?: () => Promise<unknown>): void {
  last += 1;
  shown.value = [...shown.value, { id: last, text, undo }].slice(-maxShown);
  look();
}

/** How often something was given back: what is shown is then read again. */
export const givenBack = signal(0);

export async function giveBack(undo: () => Promise<unknown>): Promise<void> {
  await undo();
  givenBack.value += 1;
}

export function failed(error: unknown): void {
  toast(sentenceOf(error));
}

function dismiss(id: number): void {
  shown.value = shown.value.filter((one) => one.id !== id);
  if (shown.value.length === 0) held.value = false;
}

/** All notices. It moves into the dialog that is open, since what is outside of that can neither be pressed nor heard. */
const region = document.createElement('div');
region.className = 'toasts';
region.setAttribute('role', 'status');
/** Where it may stand, the present place last. */
const places: Element[] = [document.body];
document.body.append(region);

/** Notices stand in a dialog until the returned function is called. */
export function standIn(dialog: Element): () => void {
  places.push(dialog);
  dialog.append(region);
  return () => {
    places.splice(places.indexOf(dialog), 1);
    places.at(-1)?.append(region);
  };
}

/** Whether the pointer or the focus is on them, or nobody looks. */
const held = signal(false);
/** What had the focus before they had it. */
let from: HTMLElement | undefined;
const isHeld = () => document.hidden || region.matches(':hover') || region.contains(document.activeElement);
const look = () =>
  queueMicrotask(() => {
    held.value = shown.value.length > 0 && isHeld();
  });
for (const name of ['pointerenter', 'pointerleave', 'focusout']) region.addEventListener(name, look);
document.addEventListener('visibilitychange', look);
region.addEventListener('focusin', ({ relatedTarget }) => {
  held.value = true;
  const isOutside = !(relatedTarget instanceof Node && region.contains(relatedTarget));
  if (isOutside) from = relatedTarget instanceof HTMLElement ? relatedTarget : undefined;
});
addEventListener('keydown', ({ key }) => {
  if (key === noticesKey) [...region.querySelectorAll<HTMLElement>('[aria-keyshortcuts]')].at(-1)?.focus();
});

export function Toasts() {
  return createPortal(
    shown.value.map((one) => <Notice key={one.id} {...one} />),
    region,
  );
}

function Notice({ id, text, undo }: Toast) {
  const stays = held.value;
  useEffect(() => {
    if (stays) return;
    const timer = setTimeout(() => dismiss(id), shownFor);
    return () => clearTimeout(timer);
  }, [stays]);
  const end = () => {
    if (region.contains(document.activeElement)) from?.focus();
    dismiss(id);
  };
  return (
    <div class="toast">
      <span>{text}</span>
      {undo && (
        <Button
          label={texts.undo}
          aria-keyshortcuts={noticesKey}
          onClick={() => {
            end();
            giveBack(undo).catch(failed);
          }}
        />
      )}
      <Button label={<Icon name="close" />} class="plain" aria-label={texts.dismiss} onClick={end} />
    </div>
  );
}
