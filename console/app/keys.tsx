/** Keys that work everywhere: `/` and Ctrl+K find anything, `?` lists the keys. */
import { flushSync } from 'preact/compat';
import { useLayoutEffect, useState } from 'preact/hooks';
import { CloseButton, Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { texts } from '../texts.ts';
import { Palette, type Place } from './palette.tsx';

/** The button that searches everything, and the keys. */
export function Keys({ places }: { places: readonly Place[] }) {
  const [shown, setShown] = useState<{ what: 'keys' | 'palette'; turn: number }>();
  // Drawn before the next key, which belongs to it.
  const open = (what: 'keys' | 'palette') =>
    flushSync(() => setShown((before) => ({ what, turn: (before?.turn ?? 0) + 1 })));
  // A dialog says that it is closed a little later: by then a key may have opened the next.
  const close = () => setShown((now) => (now?.turn === shown?.turn ? undefined : now));
  // As soon as the page is there: nobody waits for the frame after.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const { key, ctrlKey, metaKey, altKey } = event;
      const isCombined = (ctrlKey || metaKey) && !altKey && key.toLowerCase() === 'k';
      const isTyping = (event.target as HTMLElement).matches('input, select, textarea');
      if (document.querySelector('dialog[open]') || (!isCombined && (isTyping || ctrlKey || metaKey || altKey))) return;
      if (key === '?') open('keys');
      if (!isCombined && key !== '/') return;
      event.preventDefault();
      open('palette');
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  return (
    <>
      <button type="button" class="find" aria-keyshortcuts="Control+K /" onClick={() => open('palette')}>
        <Icon name="search" /> <span>{texts.palette.title}</span> <kbd>Ctrl K</kbd>
      </button>
      {shown?.what === 'palette' && <Palette key={shown.turn} places={places} onClose={close} />}
      {shown?.what === 'keys' && <KeyList key={shown.turn} onClose={close} />}
    </>
  );
}

function KeyList({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={texts.keys.title} onClose={onClose}>
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
      <CloseButton onClose={onClose} />
    </Dialog>
  );
}
