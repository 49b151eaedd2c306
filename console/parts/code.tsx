/** A text to copy. */
import { useState } from 'preact/hooks';
import { texts } from '../texts.js';

export function Code({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <section class="code" aria-label={label}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keyboard */}
      <pre tabIndex={0}>{text}</pre>
      <button type="button" onClick={copy}>
        {copied ? texts.copied : texts.copy}
      </button>
    </section>
  );
}
