/** A text to copy. */
import { useRef, useState } from 'preact/hooks';
import { texts } from '../texts.ts';

export function Code({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const pre = useRef<HTMLPreElement>(null);
  const copy = async () => {
    if (!(await copyText(text, pre.current))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <section class="code" aria-label={label}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to by keyboard */}
      <pre tabIndex={0} ref={pre}>
        {text}
      </pre>
      <button type="button" aria-label={copied ? undefined : texts.copyOf(label)} onClick={copy}>
        {copied ? texts.copied : texts.copy}
      </button>
    </section>
  );
}

/** Without TLS a browser has no clipboard for scripts: the text is selected then, and copied as by the keyboard if it may be. */
async function copyText(text: string, shown: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    if (shown) getSelection()?.selectAllChildren(shown);
    return document.execCommand('copy');
  }
}
