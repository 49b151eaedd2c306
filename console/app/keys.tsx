/** Keys that work everywhere: `/` and Ctrl+K find anything, `?` lists the keys. Those of one character can be switched off. */
import { signal } from '@preact/signals';
import { flushSync } from 'preact/compat';
import { useLayoutEffect, useState } from 'preact/hooks';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { Facts } from '../parts/page/shown.tsx';
import { texts } from '../texts.ts';
import type { ConsolePlace } from './offers.ts';
import { Palette } from './palette.tsx';
import { browserStore } from './stores.ts';

const singleKey = 'slipway-single-keys';
/** Who speaks to the computer, or presses keys by accident, switches them off; this browser keeps it. */
const hasSingle = signal(browserStore.get(singleKey) !== 'off');

function switchSingle(isOn: boolean): void {
  hasSingle.value = isOn;
  if (isOn) browserStore.remove(singleKey);
  else browserStore.set(singleKey, 'off');
}

/** The button that searches everything, and the keys. */
export function Keys({ places }: { places: readonly ConsolePlace[] }) {
  const [shown, setShown] = useState<{ what: 'keys' | 'palette'; turn: number }>();
  // Drawn before the next key, which belongs to it.
  const open = (what: 'keys' | 'palette') =>
    flushSync(() => setShown((before) => ({ what, turn: (before?.turn ?? 0) + 1 })));
  // A dialog says that it is closed a little later: by then a key may have opened the next.
  const close = () => setShown((now) => (now?.turn === shown?.turn ? undefined : now));
  // As soon as the page is there: nobody waits for the frame after.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const { key, code, ctrlKey, metaKey, altKey } = event;
      // Where letters are not Latin, the place of the key counts.
      const isK = key.toLowerCase() === 'k' || (code === 'KeyK' && !/\p{Script=Latin}/u.test(key));
      const isCombined = (ctrlKey || metaKey) && !altKey && isK;
      const isTyping = (event.target as HTMLElement).matches('input, select, textarea');
      const isSingle = hasSingle.value && !isTyping && !ctrlKey && !metaKey && !altKey;
      if (document.querySelector('dialog[open]') || !(isCombined || isSingle)) return;
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
      <button
        type="button"
        class="find"
        aria-keyshortcuts={hasSingle.value ? 'Control+K /' : 'Control+K'}
        onClick={() => open('palette')}
      >
        <Icon name="search" /> <span>{texts.palette.title}</span> <kbd>Ctrl K</kbd>
      </button>
      {shown?.what === 'palette' && (
        <Palette key={shown.turn} places={places} onKeys={() => open('keys')} onClose={close} />
      )}
      {shown?.what === 'keys' && <KeyList key={shown.turn} onClose={close} />}
    </>
  );
}

function KeyList({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={texts.keys.title} onClose={onClose}>
      <Facts of={texts.keys.list.map(([key, does]) => [<kbd>{key}</kbd>, does])} />
      <label class="check">
        <input
          type="checkbox"
          checked={hasSingle.value}
          onChange={({ currentTarget }) => switchSingle(currentTarget.checked)}
        />
        {texts.keys.single}
      </label>
      <CloseButton onClose={onClose} />
    </Dialog>
  );
}
