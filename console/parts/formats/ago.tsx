/** How long ago something was, in words that keep up with the clock. */
import { computed, signal, useComputed } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { spoken, texts } from '../../words.ts';

const now = signal(Date.now());
let shown = 0;
let timer: ReturnType<typeof setInterval> | undefined;

const words = computed(() => new Intl.RelativeTimeFormat(spoken.value, { numeric: 'always' }));
const minute = 60_000;
/** From so many milliseconds on, a time is told in this unit. */
const units = [
  [365 * 24 * 60 * minute, 'year'],
  [30 * 24 * 60 * minute, 'month'],
  [24 * 60 * minute, 'day'],
  [60 * minute, 'hour'],
  [minute, 'minute'],
  [1000, 'second'],
] as const;
/** Milliseconds that nobody counts. */
const justNow = 5000;

function agoText(time: number, at = Date.now()): string {
  const passed = at - time;
  if (Math.abs(passed) < justNow) return texts.justNow;
  const [length, unit] = units.find(([from]) => Math.abs(passed) >= from) ?? [1000, 'second'];
  return words.value.format(-Math.trunc(passed / length), unit);
}

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'medium' });

/** "3 minutes ago", with the exact time for the pointer. One clock ticks for all of them. */
export function Ago({ iso }: { iso: string | null | undefined }) {
  const time = Date.parse(iso ?? '');
  const text = useComputed(() => agoText(time, now.value));
  useEffect(() => {
    shown += 1;
    timer ??= setInterval(() => {
      if (!document.hidden) now.value = Date.now();
    }, 1000);
    return () => {
      shown -= 1;
      if (shown > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, []);
  if (!iso) return <span class="soft">{texts.never}</span>;
  return (
    <time dateTime={iso} title={exact.format(new Date(time))}>
      {text}
    </time>
  );
}
