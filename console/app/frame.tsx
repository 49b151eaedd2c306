/** What every page has around what it shows: the way past the menu, what is wrong with the connection, and the end of the session. */
import type { ComponentChildren } from 'preact';
import { Suspense } from 'preact/compat';
import { useEffect, useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { isIncomplete } from '../parts/data/load.ts';
import { Button } from '../parts/forms/form.tsx';
import { Boundary } from '../parts/page/boundary.tsx';
import { Loading } from '../parts/page/shown.tsx';
import { texts } from '../words.ts';
import { online } from './api.ts';
import { Offline } from './offline.tsx';
import { lapse, me } from './session.ts';

const noticeBefore = 5 * 60_000;

/** Stands at the beginning of a page. */
export function Above() {
  return (
    <>
      <a class="skip" href="#main">
        {texts.skip}
      </a>
      {!online.value && <Offline />}
      <Ending />
    </>
  );
}

/** What an address shows. What fails there takes nothing else along. */
export function Main({ children }: { children: ComponentChildren }) {
  const [path] = useLocation();
  return (
    <main id="main" tabIndex={-1} aria-busy={isIncomplete}>
      <Boundary of={path}>
        <Suspense fallback={<Loading />}>{children}</Suspense>
      </Boundary>
    </main>
  );
}

/** Says five minutes before that the session ends. Only a login begins a new one; it leads back to this page. */
function Ending() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 15_000);
    return () => clearInterval(timer);
  }, []);
  const left = Date.parse(me.value?.sessionExpires ?? '') - now;
  if (!(left < noticeBefore)) return null;
  return (
    <div class="offline" role="status">
      {texts.ending(Math.max(1, Math.ceil(left / 60_000)))}{' '}
      <Button
        label={texts.signInAgain}
        onClick={() => {
          lapse.value = 'ending';
        }}
      />
    </div>
  );
}
