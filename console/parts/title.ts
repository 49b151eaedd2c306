/** The title of the document: what is shown, and of which account. Tabs and bookmarks are told apart by it. */
import { useEffect } from 'preact/hooks';
import { isCustomer, me } from '../app/session.ts';
import { isolated } from '../isolated.ts';

export function useTitle(shown: string): void {
  const account = me.value?.accountName;
  useEffect(() => {
    const parts = [shown, account ?? '', isCustomer() ? '' : 'Slipway'].filter((one) => one !== '');
    document.title = parts.map(isolated).join(' · ');
  }, [shown, account]);
}
