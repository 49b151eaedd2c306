/** What can be done with something: at once, after a question, or by a form. What follows is the same everywhere. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import type { Undo } from '../../app/entities.ts';
import { texts } from '../../words.ts';
import { Code } from '../codes/code.tsx';
import { Confirm, Dialog } from '../dialogs/dialog.tsx';
import { failed, giveBack, toast } from '../dialogs/toast.tsx';
import { Fields, type FieldsOf } from '../forms/fields.tsx';
import { ActionButton, Button, Form, type Values } from '../forms/form.tsx';
import type { Items } from './menu.tsx';

/** What has come of it. */
export interface Outcome {
  /** The notice instead of "Saved."; empty for none. */
  said?: string;
  undo?: Undo | undefined;
  /** Where there is no trash, Undo stays on the page. `of` names what it takes back. */
  stays?: { of: string };
  /** Shown until the page is left or something takes its place; null takes it away. */
  note?: ComponentChildren;
  /** Where one goes on. */
  to?: string | undefined;
  /** What is asked or shown next. */
  next?: Verb | undefined;
}
type Work = Promise<Outcome | undefined> | Promise<void>;

export interface Verb {
  text: string;
  kind?: 'primary' | 'danger';
  /** Done at once, or after the question. */
  run?: () => Work;
  /** Its `verb` is on the button, where that differs. */
  ask?: { title: string; says: string; typed?: string; verb?: string };
  form?: {
    title: string;
    /** On its button; "Save" if there is none. */
    verb?: string;
    fields: FieldsOf;
    /** What it is opened with. */
    values?: object;
    wide?: boolean;
    save: (values: Values, form: HTMLFormElement) => Work;
  };
  /** A dialog of its own. */
  dialog?: (finish: (outcome?: Outcome) => void, close: () => void) => ComponentChildren;
}
/** What is false is left out, so that conditions are written into the list. */
export type Verbs = readonly (Verb | false | undefined)[];

/** Runs verbs. `again` reads anew what they have changed; `dialog` and `notes` are shown by the page. */
export function useVerbs(again: () => void) {
  const [open, setOpen] = useState<Verb>();
  const [note, setNote] = useState<ComponentChildren>(null);
  const [kept, setKept] = useState<readonly { said: string; of: string; undo: Undo }[]>([]);
  const [, go] = useLocation();
  const close = () => setOpen((now) => (now === open ? undefined : now));
  const keep = (said: string, of: string, undo: Undo): Undo => {
    const back = () => {
      setKept((before) => before.filter((one) => one.undo !== back));
      return undo();
    };
    setKept((before) => [...before, { said, of, undo: back }]);
    return back;
  };
  const finish = ({ said = texts.saved, undo, stays, note, to, next }: Outcome = {}) => {
    setOpen(next);
    if (note !== undefined) setNote(note);
    const back = stays && undo ? keep(said, stays.of, undo) : undo;
    if (said !== '') toast(said, back);
    if (to === undefined) again();
    else go(to);
  };
  const run = async (verb: Verb) => finish((await verb.run?.()) ?? undefined);
  const start: Start = (verb) => {
    const isAsked = verb.ask ?? verb.form ?? verb.dialog;
    if (!isAsked) return run(verb);
    setOpen(verb);
    return Promise.resolve();
  };
  const notes = (
    <>
      {note}
      {kept.map(({ said, of, undo }) => (
        <p class="note row" key={of}>
          {said} <ActionButton label={texts.undo} of={of} act={() => giveBack(undo)} onError={failed} />
        </p>
      ))}
    </>
  );
  const dialog = open && (
    <>
      {open.ask && <Confirm verb={open.text} {...open.ask} run={() => run(open)} onClose={close} />}
      {open.form && <FormDialog {...open.form} finish={finish} close={close} />}
      {open.dialog?.(finish, close)}
    </>
  );
  return { start, finish, dialog, notes };
}

function FormDialog({
  title,
  verb = texts.save,
  fields,
  values,
  wide,
  save,
  finish,
  close,
}: NonNullable<Verb['form']> & { finish: (outcome?: Outcome) => void; close: () => void }) {
  return (
    <Dialog title={title} onClose={close} wide={wide}>
      <Form save={async (given, form) => finish((await save(given, form)) ?? undefined)} verb={verb} onCancel={close}>
        <Fields of={fields} values={values} />
      </Form>
    </Dialog>
  );
}

export type Start = (verb: Verb) => Promise<void>;

/** Verbs as a menu. */
export const itemsOf = (verbs: Verbs, start: Start): Items =>
  verbs.map(
    (verb) => verb && { text: verb.text, danger: verb.kind === 'danger', run: () => void start(verb).catch(failed) },
  );

/** Verbs as buttons. */
export function VerbButtons({ verbs, start }: { verbs: Verbs; start: Start }) {
  return verbs.map((verb) =>
    !verb ? null : verb.ask || verb.form || verb.dialog ? (
      <Button label={verb.text} key={verb.text} class={verb.kind} onClick={() => start(verb)} />
    ) : (
      <ActionButton key={verb.text} label={verb.text} kind={verb.kind} act={() => start(verb)} onError={failed} />
    ),
  );
}

/** Makes one: the same words are on the button and above the form. */
export const creating = (text: string, form: Omit<NonNullable<Verb['form']>, 'title'>): Verb => ({
  text,
  kind: 'primary',
  form: { title: text, verb: texts.create, ...form },
});

/** What is shown only now. */
export function Once({
  says,
  label,
  text,
  children,
}: {
  says: string;
  label: string;
  text: string;
  children?: ComponentChildren;
}) {
  return (
    <div class="note warn">
      <p>{says}</p>
      {children}
      <Code label={label} text={text} />
    </div>
  );
}
