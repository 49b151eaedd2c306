/** What the browser keeps for the page. Where it refuses to, the page remembers it as long as it is open. */

interface Store {
  get: (key: string) => string | null;
  set: (key: string, value: string) => void;
  remove: (key: string) => void;
}

function storeOf(name: 'localStorage' | 'sessionStorage'): Store {
  const own = new Map<string, string>();
  return {
    get: (key) => own.get(key) ?? attempt(() => window[name].getItem(key)) ?? null,
    set: (key, value) => {
      own.delete(key);
      if (attempt(() => window[name].setItem(key, value) ?? true) === undefined) own.set(key, value);
    },
    remove: (key) => {
      own.delete(key);
      attempt(() => window[name].removeItem(key));
    },
  };
}

/** Browsers throw where cookies are blocked, or where there is no room. */
function attempt<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}

/** For all pages of this browser, also later ones. */
export const browserStore = storeOf('localStorage');
/** For this tab. */
export const tabStore = storeOf('sessionStorage');

/** Whether the browser says that it keeps neither cookies nor anything else for this site. */
export const keepsNothing = (): boolean =>
  !navigator.cookieEnabled || attempt(() => window.localStorage.length) === undefined;
