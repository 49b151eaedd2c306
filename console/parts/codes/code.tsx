/** A text to copy. */
import { useState } from 'preact/hooks';
import { texts } from '../../words.ts';
import { copy } from './copy.tsx';

export function Code({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const press = async () => {
    if (!(await copy(text))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <section class="code" aria-label={label}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keyboard */}
      <pre tabIndex={0}>{text}</pre>
      <button type="button" aria-label={copied ? undefined : texts.copyOf(label)} onClick={press}>
        {copied ? texts.copied : texts.copy}
      </button>
    </section>
  );
}
