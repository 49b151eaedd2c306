/** Forms: fields with labels, buttons that wait, errors with the sentence of the API. */
import type { ComponentChildren, JSX } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError, sentenceOf } from '../../app/errors.ts';
import { texts } from '../../words.ts';
import { watchForm } from './unsaved.ts';

export function ErrorNote({ error }: { error: unknown }) {
  if (!error) return null;
  const said = sentenceOf(error);
  return (
    <div class="note bad" role="alert">
      <p>{said}</p>
      {error instanceof ApiError && (
        <>
          {texts.language !== 'en' && (
            <p class="small" lang="en">
              {error.message}
            </p>
          )}
          {error.more.map(({ path, message }) => (
            <p class="small" key={`${path}${message}`}>
              {path ? `${path}: ` : ''}
              {message}
            </p>
          ))}
          <p class="small">
            {texts.requestId} <code>{error.requestId}</code>
          </p>
        </>
      )}
    </div>
  );
}

const Hint = ({ id, says }: { id: string; says: string | undefined }) =>
  says ? (
    <p class="hint" id={`${id}-hint`}>
      {says}
    </p>
  ) : null;

export type InputProps = Omit<JSX.IntrinsicElements['input'], 'label' | 'ref' | 'onInput' | 'onWheel'>;

/** The wheel scrolls the page. Browsers count the number in focus up or down by it, unless it is read-only when they look. */
function keepNumber({ currentTarget: input }: JSX.TargetedWheelEvent<HTMLInputElement>): void {
  if (input.readOnly) return;
  input.readOnly = true;
  requestAnimationFrame(() => {
    input.readOnly = false;
  });
}

export function Field({
  label,
  hint,
  wide,
  onText,
  ...input
}: InputProps & { label: string; hint?: string; wide?: boolean; onText?: (text: string) => void }) {
  const id = useId();
  return (
    <div class={wide ? 'field wide' : 'field'}>
      <label for={id}>{label}</label>
      <input
        {...input}
        id={id}
        aria-describedby={hint && `${id}-hint`}
        onInput={onText && ((event) => onText(event.currentTarget.value))}
        onWheel={input.type === 'number' ? keepNumber : undefined}
      />
      <Hint id={id} says={hint} />
    </div>
  );
}

export function Select({
  label,
  name,
  value,
  options,
  hint,
  required,
  busy,
  onText,
}: {
  label: string;
  name?: string;
  value?: string | undefined;
  hint?: string;
  required?: boolean;
  options: readonly (readonly [value: string, label: string])[];
  /** Whether options are still to come. */
  busy?: boolean;
  onText?: (text: string) => void;
}) {
  const id = useId();
  // Without `onText` it is what is chosen at first: a value of the whole would be set again each time that the page is drawn.
  const begins = onText ? undefined : value;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        name={name}
        required={required}
        value={onText && value}
        aria-busy={busy || undefined}
        aria-describedby={hint && `${id}-hint`}
        onChange={onText && ((event) => onText(event.currentTarget.value))}
      >
        {options.map(([value, label]) => (
          <option key={value} value={value} selected={begins === undefined ? undefined : value === begins}>
            {label}
          </option>
        ))}
      </select>
      <Hint id={id} says={hint} />
    </div>
  );
}

export function TextArea({
  label,
  name,
  value,
  hint,
  required,
  selected,
}: {
  label: string;
  name: string;
  value?: string;
  hint?: string;
  required?: boolean;
  /** It is there to be copied. */
  selected?: boolean;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        name={name}
        required={required}
        spellcheck={false}
        readOnly={selected}
        aria-describedby={hint && `${id}-hint`}
        onFocus={selected ? ({ currentTarget }) => currentTarget.select() : undefined}
      >
        {value}
      </textarea>
      <Hint id={id} says={hint} />
    </div>
  );
}

export function Check({
  label,
  name,
  value,
  checked,
  hint,
  isSwitch,
}: {
  label: string;
  name: string;
  value?: string;
  checked?: boolean;
  hint?: string;
  isSwitch?: boolean;
}) {
  const id = useId();
  const role = isSwitch ? 'switch' : undefined;
  const box = (
    <label class="check">
      <input
        {...{ role, name, value }}
        type="checkbox"
        defaultChecked={checked}
        aria-describedby={hint && `${id}-hint`}
      />
      {label}
    </label>
  );
  if (!hint && !isSwitch) return box;
  return (
    <div class="field">
      {box}
      <Hint id={id} says={hint} />
    </div>
  );
}

/** The values of a form; empty fields are left out. */
export type Values = Record<string, string>;

export const valuesOf = (form: HTMLFormElement): Values =>
  Object.fromEntries(
    [...new FormData(form)].flatMap(([name, value]) =>
      typeof value === 'string' && value !== '' ? [[name, value] as const] : [],
    ),
  );

/**
 * `save` gets the values. While it works the button waits; what it throws is shown above the buttons. The focus stays where it
 * is. Who leaves the page or the dialog is asked before what was changed is lost.
 */
export function Form({
  children,
  save,
  verb,
  of,
  danger,
  fixed,
  light,
  begun = false,
  onCancel,
}: {
  children?: ComponentChildren;
  save: (values: Values, form: HTMLFormElement) => Promise<unknown>;
  verb: string;
  /** What it saves, where a page has several. */
  of?: string;
  danger?: boolean;
  /** Who sees it may change nothing. */
  fixed?: boolean;
  /** Nobody minds if what is typed is lost. */
  light?: boolean;
  /** With it something is lost that was typed before. */
  begun?: boolean;
  onCancel?: () => void;
}) {
  const ref = useRef<HTMLFormElement>(null);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => (ref.current && !light ? watchForm(ref.current, begun) : undefined), [light, begun]);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget as HTMLFormElement;
    setBusy(true);
    setError(undefined);
    try {
      await save(valuesOf(form), form);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form ref={ref} onSubmit={submit}>
      {fixed ? (
        <fieldset class="bare" disabled>
          {children}
        </fieldset>
      ) : (
        children
      )}
      <ErrorNote error={error} />
      <div class="row end">
        {onCancel && <Button label={texts.cancel} onClick={onCancel} />}
        {!fixed && (
          <button
            type="submit"
            class={danger ? 'danger' : 'primary'}
            aria-label={of && !busy ? texts.verbOf(verb, of) : undefined}
            aria-disabled={busy || undefined}
          >
            {busy ? texts.working : verb}
          </button>
        )}
      </div>
    </form>
  );
}

type ButtonProps = Omit<JSX.IntrinsicElements['button'], 'ref' | 'type' | 'label' | 'disabled' | 'onClick'>;

/** While it is idle it does nothing, and keeps the focus. */
export function Button({
  label,
  idle = false,
  onClick,
  ...button
}: ButtonProps & { label: ComponentChildren; idle?: boolean; onClick: () => void }) {
  return (
    <button {...button} type="button" aria-disabled={idle || undefined} onClick={() => idle || onClick()}>
      {label}
    </button>
  );
}

/** A button that does one thing; what goes wrong is told by `onError`. `of` names the row that it belongs to. */
export function ActionButton({
  label,
  of,
  act,
  kind,
  onError,
}: {
  label: string;
  of?: string | undefined;
  act: () => Promise<unknown>;
  kind?: 'primary' | 'danger' | 'plain';
  onError: (error: unknown) => void;
}) {
  const [busy, setBusy] = useState(false);
  const run = () => {
    setBusy(true);
    act()
      .catch(onError)
      .finally(() => setBusy(false));
  };
  return <Button label={label} class={kind} aria-label={of && texts.verbOf(label, of)} idle={busy} onClick={run} />;
}
