/** What could not be read again, while what was read before is still shown. The page says so, once for all its parts. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { sentenceOf } from '../../app/errors.ts';
import { texts } from '../../words.ts';
import { clockTime } from '../formats/times.ts';
import { Button } from '../forms/form.tsx';

interface Failed {
  /** Milliseconds since 1970: when it was read last. */
  since: number;
  error: unknown;
  again: () => void;
}
const failures = signal<readonly Failed[]>([]);

/** Tells of something that is shown as it was at `since`, because of the error that reading it has met; 0 is never. */
export function useStale(error: unknown, since: number, again: () => void): void {
  const isStale = error !== undefined && since > 0;
  useEffect(() => {
    if (!isStale) return;
    const one = { since, error, again };
    failures.value = [...failures.value, one];
    return () => {
      failures.value = failures.value.filter((other) => other !== one);
    };
  }, [isStale, error, since, again]);
}

export function Stale() {
  const [oldest] = [...failures.value].sort((a, b) => a.since - b.since);
  if (!oldest) return null;
  return (
    <div class="note warn row" role="status">
      <span class="grow">
        {texts.notReadSince(clockTime(oldest.since))} {sentenceOf(oldest.error)}
      </span>
      <Button
        label={texts.tryAgain}
        onClick={() => {
          for (const { again } of failures.value) again();
        }}
      />
    </div>
  );
}
