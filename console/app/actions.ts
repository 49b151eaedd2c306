/** Actions that begin on another page. The page that does the action is told at once, or when it opens. */
import { signal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';

/** An address stands for making one in the list that is there. */
export type Action = 'newDevice' | 'importDevices' | 'newOrganization' | `/${string}`;

const begun = signal<Action | undefined>(undefined);

export function begin(action: Action): void {
  begun.value = action;
}

/** Does it when somebody has begun it. */
export function useAction(action: Action | undefined, run: () => void): void {
  const isBegun = action !== undefined && begun.value === action;
  // Before the next key: what it opens takes it.
  useLayoutEffect(() => {
    if (!isBegun) return;
    begun.value = undefined;
    run();
  }, [isBegun]);
}
