/** The title of the document: what is shown, and of which account. Tabs and bookmarks are told apart by it. */
import { useEffect } from 'preact/hooks';
import { isCustomer, me } from '../../app/session.ts';
import { isolated } from '../../isolated.ts';

/** `whose` is the account, unless it is that of the person. */
export function useTitle(shown: string, whose = me.value?.accountName ?? ''): void {
  useEffect(() => {
    const parts = [shown, whose, isCustomer() ? '' : 'Slipway'].filter((one) => one !== '');
    document.title = parts.map(isolated).join(' · ');
  }, [shown, whose]);
}
