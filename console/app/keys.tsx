/** Keys that work everywhere: `/` goes to the search, `?` lists the keys. */
import { useEffect, useState } from 'preact/hooks';
import { Dialog } from '../parts/dialog.tsx';
import { texts } from '../texts.ts';

export function Keys() {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const isTyping = (event.target as HTMLElement).matches('input, select, textarea');
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      if (event.key === '?') setShown(true);
      const search = event.key === '/' && document.querySelector<HTMLInputElement>('input[type=search]');
      if (!search) return;
      event.preventDefault();
      search.focus();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  if (!shown) return null;
  return (
    <Dialog title={texts.keys.title} onClose={() => setShown(false)}>
      <dl>
        {texts.keys.list.map(([key, does]) => (
          <>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </>
        ))}
      </dl>
      <div class="row end">
        <button type="button" onClick={() => setShown(false)}>
          {texts.close}
        </button>
      </div>
    </Dialog>
  );
}
