/** What is shown while the service does not answer: it is said and tried again, and nothing is thrown away. */
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { Button, ErrorNote } from '../parts/forms/form.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { Loading } from '../parts/page/shown.tsx';
import { texts } from '../words.ts';
import { online } from './api.ts';
import { resume } from './session.ts';

/** Before it is known who is signed in. */
export function Starting() {
  const [error, setError] = useState<unknown>();
  const start = () => resume().catch(setError);
  useLayoutEffect(() => {
    start();
  }, []);
  if (!error) return <Loading />;
  return (
    <main class="door">
      {!online.value && <Offline />}
      <div class="panel">
        <h1 class="brand">
          <Icon name="slipway" /> Slipway
        </h1>
        <ErrorNote error={error} />
        <Button label={texts.tryAgain} class="primary" onClick={start} />
      </div>
    </main>
  );
}

/** A lost connection shows itself, and is tried again until it is back. */
export function Offline() {
  useEffect(() => {
    const retry = () => resume().catch(() => {});
    const timer = setInterval(retry, 3000);
    addEventListener('online', retry);
    return () => {
      clearInterval(timer);
      removeEventListener('online', retry);
    };
  }, []);
  return (
    <div class="offline" role="status">
      {texts.offline}
    </div>
  );
}
