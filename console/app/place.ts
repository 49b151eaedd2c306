/** Places of the console, each a file that is loaded with its first visit. */
import { lazy } from 'preact/compat';
import { FileError } from '../parts/page/boundary.tsx';
import { online } from './api.ts';
import { keepsNothing, tabStore } from './stores.ts';

const reloadedKey = 'slipway-reloaded';

/**
 * Loads a place with its first visit. If its file is gone, the service was upgraded: the page is loaded again, once. Without a
 * connection that would end in an error of the browser, so it waits until the service answers.
 */
export function place<P>(load: () => Promise<P>) {
  return lazy(async () => {
    try {
      const component = await load();
      tabStore.remove(reloadedKey);
      return component;
    } catch (error) {
      if (await isReachable()) {
        // Where nothing is kept it would be loaded again and again.
        if (tabStore.get(reloadedKey) !== null || keepsNothing()) throw new FileError(undefined, { cause: error });
        tabStore.set(reloadedKey, '1');
      } else {
        online.value = false;
        await new Promise<void>((resolve) => online.subscribe((isOnline) => isOnline && resolve()));
      }
      location.reload();
      return new Promise<P>(() => {});
    }
  });
}

const isReachable = () =>
  fetch('/health/live').then(
    ({ ok }) => ok,
    () => false,
  );
