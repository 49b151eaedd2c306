/** A search that waits until nobody has typed for a moment. What is typed later ends the request before. */
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Field } from '../form.tsx';

/** Milliseconds. */
const typingPause = 40;

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
  useLayoutEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      onText(text);
    }, typingPause);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    // The address has changed by a link or by Back.
    if (value === sent.current) return;
    sent.current = value;
    setText(value);
  }, [value]);
  return <Field label={label} type="search" wide value={text} onText={setText} placeholder={hint} />;
}
