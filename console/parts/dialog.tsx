/** Dialogs: the browser's own, so that focus stays inside and returns, and Escape closes. */
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { texts } from '../texts.ts';
import { Field, Form, type Values } from './form.tsx';

/** A dialog that stays: newer browsers close it for no key, others ask first, and close it at the second time. */
const staying = {
  closedby: 'none' as const,
  onCancel: (event: Event) => event.preventDefault(),
  onClose: ({ currentTarget }: Event) => (currentTarget as HTMLDialogElement).showModal(),
};

export function Dialog({
  title,
  children,
  onClose,
  wide,
  over,
}: {
  title: string;
  children: ComponentChildren;
  /** Without it the dialog stays, whatever is pressed. */
  onClose?: (() => void) | undefined;
  wide?: boolean;
  /** It hides the page. */
  over?: boolean;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the next key: people type at once.
  useLayoutEffect(() => ref.current?.showModal(), []);
  return (
    <dialog
      ref={ref}
      class={over ? 'over' : wide ? 'wide' : undefined}
      aria-labelledby={id}
      {...(onClose ? { onClose } : staying)}
    >
      <div class="inside">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** The button at the end of a dialog that only shows something. */
export function CloseButton({ onClose, primary }: { onClose: () => void; primary?: boolean }) {
  return (
    <div class="row end">
      <button type="button" class={primary ? 'primary' : undefined} onClick={onClose}>
        {texts.close}
      </button>
    </div>
  );
}

/** Says what an action ends. Where it cannot be undone, `typed` has to be typed first. */
export function Confirm({
  title,
  says,
  verb,
  typed,
  run,
  onClose,
}: {
  title: string;
  says: ComponentChildren;
  verb: string;
  typed?: string;
  run: () => Promise<unknown>;
  onClose: () => void;
}) {
  const save = async (values: Values) => {
    if (typed !== undefined && values.typed !== typed) throw new Error(texts.typeExactly(typed));
    await run();
    onClose();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{says}</p>
      <Form save={save} verb={verb} danger onCancel={onClose}>
        {typed !== undefined && <Field label={texts.typeToConfirm(typed)} name="typed" required autoComplete="off" />}
      </Form>
    </Dialog>
  );
}
