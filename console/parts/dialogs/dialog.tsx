/** Dialogs: the browser's own, so that focus stays inside and returns, and Escape closes. None takes a changed form with it unasked. */
import type { ComponentChildren, RefObject } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { texts } from '../../words.ts';
import { Button, Field, Form, type Values } from '../forms/form.tsx';
import { leave, question } from '../forms/unsaved.ts';
import { standIn } from './toast.tsx';

/** Shows a dialog as long as it is there. Notices stand in it, unless it hides the page. */
export function useModal(over = false): RefObject<HTMLDialogElement> {
  const ref = useRef<HTMLDialogElement>(null);
  // Before the next key: people type at once.
  useLayoutEffect(() => {
    const shown = ref.current;
    shown?.showModal();
    const goBack = shown && !over ? standIn(shown) : () => {};
    return () => {
      goBack();
      // Only a dialog that is closed gives the focus back.
      shown?.close();
    };
  }, []);
  return ref;
}

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
  const ref = useModal(over);
  const id = useId();
  /** Browsers let a page prevent this once, and close the dialog at the second time: then it is shown again. */
  const ask = (event: Event) => {
    const shown = event.currentTarget as HTMLDialogElement;
    if (event.target !== shown || !shown.isConnected) return;
    event.preventDefault();
    if (!shown.open) shown.showModal();
    if (onClose) leave(onClose, shown);
  };
  return (
    <dialog
      ref={ref}
      class={over ? 'over' : wide ? 'wide' : undefined}
      aria-labelledby={id}
      closedby={onClose ? 'closerequest' : 'none'}
      onCancel={ask}
      onClose={ask}
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
      <button
        type="button"
        class={primary ? 'primary' : undefined}
        onClick={({ currentTarget }) => leave(onClose, currentTarget.closest('dialog') ?? document)}
      >
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
      <Form save={save} verb={verb} danger light onCancel={onClose}>
        {typed !== undefined && <Field label={texts.typeToConfirm(typed)} name="typed" required autoComplete="off" />}
      </Form>
    </Dialog>
  );
}

/** The question before something typed is lost. */
export function Question() {
  const go = question.value;
  if (!go) return null;
  const stay = () => {
    question.value = undefined;
  };
  return (
    <Dialog title={texts.unsaved.title} onClose={stay}>
      <p>{texts.unsaved.says}</p>
      <div class="row end">
        <Button label={texts.unsaved.stay} class="primary" onClick={stay} />
        <Button
          label={texts.unsaved.leave}
          class="danger"
          onClick={() => {
            stay();
            go();
          }}
        />
      </div>
    </Dialog>
  );
}
