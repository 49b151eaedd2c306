/** The title of the document: what is shown, and of which account. Tabs and bookmarks are told apart by it. */
import { useEffect } from 'preact/hooks';
import { me } from '../app/session.ts';

export function useTitle(shown: string): void {
  const account = me.value?.accountName;
  useEffect(() => {
    document.title = [shown, account, 'Slipway'].filter(Boolean).join(' · ');
  }, [shown, account]);
}
