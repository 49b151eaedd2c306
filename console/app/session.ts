/** The signed-in person, their permissions, and the end of the session. */
import { computed, signal } from '@preact/signals';
import { toast } from '../parts/dialogs/toast.tsx';
import { forgetForms } from '../parts/forms/unsaved.ts';
import { federatedError, isFederated } from '../sign-in/federated.ts';
import { texts } from '../words.ts';
import { actAs, another, csrfToken, keepCsrfToken, onBack, onOtherTab } from './acting.ts';
import { ApiError, api, sessionEnded, unwrap } from './api.ts';
import { forgetPages } from './recent.ts';
import { browserStore } from './stores.ts';

const accountKey = 'slipway-account';
export type Me = Awaited<ReturnType<typeof readMe>>;

export const me = signal<Me | undefined>(undefined);
export const state = signal<'starting' | 'out' | 'in'>('starting');
/** Why the page asks for a login, over what it shows: its session has ended, ends soon, or the browser has another person's. */
export const lapse = signal<'ended' | 'ending' | 'another' | undefined>(undefined);
/** How often the person has signed in again: what could not be read meanwhile is read then. */
export const returned = signal(0);
/** Whether somebody looks at the page: what changes by itself is read for them alone. */
export const isWatched = (): boolean => !document.hidden && lapse.value === undefined;
export const accountId = computed(() => me.value?.accountId ?? '');

const readMe = () => unwrap(api.GET('/api/v1/profile/me'));

/** Whether the API allows the caller to do this at all. */
export function can(action: 'create' | 'read' | 'update' | 'delete' | 'publish' | 'subscribe', kind: string): boolean {
  return me.value?.rights[kind]?.includes(action) ?? false;
}

/** Whether the person is an end-user, whose home is My devices. */
export const isCustomer = (): boolean => me.value?.kind === 'endUser';

/**
 * Reads who is signed in, and resolves to whether somebody is. The page stays as it is while that cannot be told.
 *
 * @throws Error if it cannot.
 */
export async function resume(): Promise<boolean> {
  try {
    const now = await readMe();
    // A browser that has not kept the token of the login lets this page read, and change nothing.
    if (state.value === 'starting' && csrfToken() === '') {
      state.value = 'out';
      return false;
    }
    actAs(now);
    me.value = now;
    browserStore.set(accountKey, now.accountId);
    state.value = 'in';
    if (lapse.value !== undefined) returned.value += 1;
    lapse.value = undefined;
    return true;
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    if (state.value === 'starting') {
      state.value = 'out';
      if (isFederated) federatedError.value = noCookie();
    }
    return false;
  }
}

sessionEnded.subscribe((times) => {
  if (times === 0 || state.value !== 'in') return;
  another.value = undefined;
  lapse.value = 'ended';
});
another.subscribe((email) => {
  if (email !== undefined) lapse.value = 'another';
});
onOtherTab(() => {
  if (state.value === 'in') resume().catch(() => {});
});
onBack((isSameLogin) => {
  if (state.value !== 'in') return;
  // Who is in now sees nothing of it before that is known.
  if (!isSameLogin) lapse.value = 'ended';
  resume().catch(() => {});
});

const noCookie = () => texts.signIn.noCookie(location.host, location.protocol === 'https:');

/** Goes on where the page was; another person starts afresh. @throws Error if the browser has not kept the login. */
export async function begin(csrfToken: string): Promise<void> {
  keepCsrfToken(csrfToken);
  const isIn = await resume().catch((error) => (lapse.value === 'another' ? startAfresh() : Promise.reject(error)));
  if (!isIn) throw new Error(noCookie());
}

/** Leaves this page with all that it holds; it is not left before the next one is there. */
export function startAfresh(): Promise<never> {
  forgetForms();
  location.replace(location.pathname === '/claim' ? location.href : '/console/');
  return new Promise(() => {});
}

/** Ends the session. If that fails, the person stays signed in and is told. */
export async function signOut(): Promise<void> {
  try {
    await unwrap(api.POST('/api/v1/sessions/logout'));
  } catch (error) {
    if (lapse.value === 'another') return;
    if (!(error instanceof ApiError && error.status === 401))
      return toast(texts.stillSignedIn((error as Error).message));
  }
  forgetPages();
  keepCsrfToken(undefined);
  actAs(undefined);
  lapse.value = undefined;
  me.value = undefined;
  state.value = 'out';
}

/** The account of the link, of the last visit, or the only one there is; empty when the page has to ask. */
export async function findAccount(): Promise<string> {
  const linked = new URLSearchParams(location.search).get('account') ?? browserStore.get(accountKey);
  if (linked) return linked;
  const answer = await api.GET('/api/v1/auth/default-account');
  return answer.data?.accountId ?? '';
}

/** Whether somebody has been signed in here before. */
export const hasAccount = (): boolean => browserStore.get(accountKey) !== null;
