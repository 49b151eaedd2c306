/** The notice before a session ends. */
import { useEffect, useState } from 'preact/hooks';
import { texts } from '../words.ts';
import { lapse, me } from './session.ts';

const noticeBefore = 5 * 60_000;

/** Says five minutes before that the session ends. Only a login begins a new one; it leads back to this page. */
export function Ending() {
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
      <button
        type="button"
        onClick={() => {
          lapse.value = 'ending';
        }}
      >
        {texts.signInAgain}
      </button>
    </div>
  );
}
