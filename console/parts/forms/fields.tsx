/** Fields of a form from their descriptions. Which there are may depend on what is chosen in others. */
import { Fragment, isValidElement, type VNode } from 'preact';
import { useState } from 'preact/hooks';
import { Check, Field, type InputProps, Select, TextArea, type Values } from './form.tsx';
import { Picker, type PickerProps } from './picker.tsx';

interface Named {
  name: string;
  label: string;
  hint?: string;
}
/** What a control with choices gets: its value, and what is told when another is chosen. */
export interface Chosen {
  name: string;
  value: string | undefined;
  onText: (text: string) => void;
}

/** An input, unless it says otherwise. A text is a sentence; an element is shown as it is. */
export type FieldOf =
  | (InputProps & Named)
  | (Named & { options: readonly (readonly [value: string, label: string])[]; busy?: boolean })
  | (Named & { pick: PickerProps['kind']; none?: string })
  | (Named & { isLong: true; required?: boolean })
  | (Named & { tick: string })
  | { name: string; choice: (chosen: Chosen) => VNode }
  | VNode
  | string
  | false
  | undefined;

/** `values` are what is chosen so far, and what the form was opened with. */
export type FieldsOf = (values: Values) => readonly FieldOf[];

/** Those of an entity that a field can show. */
function textsOf(values: object): Values {
  const set = Object.entries(values).filter(
    ([, value]) => value !== null && !['object', 'undefined'].includes(typeof value),
  );
  return Object.fromEntries(set.map(([name, value]) => [name, String(value)]));
}

/** `values` count as they are when the form is opened: a later read must not replace what is typed. */
export function Fields({ of, values = {} }: { of: FieldsOf; values?: object | undefined }) {
  const [given, setGiven] = useState(() => textsOf(values));
  const show = (field: FieldOf) => {
    if (!field || isValidElement(field)) return field;
    if (typeof field === 'string') return <p>{field}</p>;
    const { name } = field as Named;
    const onText = (text: string) => setGiven((before) => ({ ...before, [name]: text }));
    const chosen = { name, value: given[name], onText };
    if ('choice' in field) return field.choice(chosen);
    if ('options' in field) return <Select key={String(field.busy)} {...field} {...chosen} />;
    if ('pick' in field) return <Picker kind={field.pick} label={field.label} none={field.none} {...chosen} />;
    if ('isLong' in field) return <TextArea {...field} value={given[name] ?? ''} />;
    if ('tick' in field) return <Check {...field} value={field.tick} checked={given[name] === field.tick} />;
    return <Field defaultValue={given[name] ?? ''} {...(field as InputProps & Named)} />;
  };
  return of(given).map((field, at) => (
    <Fragment key={field && typeof field === 'object' && 'name' in field ? field.name : at}>{show(field)}</Fragment>
  ));
}
