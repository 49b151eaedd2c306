/** A search that asks while somebody types. What is typed later ends the request before. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Field } from '../forms/form.tsx';
import { useTyped } from '../forms/typed.ts';

export function SearchField({
  label,
  hint,
  value,
  onText,
}: {
  label: string;
  hint: string;
  value: string;
  onText: (text: string) => void;
}) {
  const [text, setText] = useState(value);
  const sent = useRef(value);
  const asked = useTyped(text);
  useLayoutEffect(() => {
    if (asked !== text || asked === sent.current) return;
    sent.current = asked;
    onText(asked);
  }, [asked, text]);
  useLayoutEffect(() => {
    // The address has changed by a link or by Back.
    if (value === sent.current) return;
    sent.current = value;
    setText(value);
  }, [value]);
  return <Field label={label} type="search" wide value={text} onText={setText} placeholder={hint} />;
}
