/** The signed-in person, their permissions, and the end of the session. */
import { computed, signal } from '@preact/signals';
import { ApiError, api, done, keepCsrfToken, sessionEnded } from './api.ts';

const accountKey = 'slipway-account';
export type Me = Awaited<ReturnType<typeof readMe>>;

export const me = signal<Me | undefined>(undefined);
export const state = signal<'starting' | 'out' | 'in'>('starting');
/** Whether the person was signed in before, so that the page says why it asks again. */
export const hasEnded = signal(false);
export const accountId = computed(() => me.value?.accountId ?? '');

const readMe = () => done(api.GET('/api/v1/profile/me'));

/** Whether the API allows the caller to do this at all. */
export function can(action: 'create' | 'read' | 'update' | 'delete' | 'publish' | 'subscribe', kind: string): boolean {
  return me.value?.rights[kind]?.includes(action) ?? false;
}

export async function resume(): Promise<void> {
  try {
    me.value = await readMe();
    localStorage.setItem(accountKey, me.value.accountId);
    hasEnded.value = false;
    state.value = 'in';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    state.value = 'out';
  }
}

sessionEnded.subscribe((times) => {
  if (times === 0 || state.value !== 'in') return;
  hasEnded.value = true;
  state.value = 'out';
  me.value = undefined;
  keepCsrfToken(undefined);
});

export async function begin(csrfToken: string): Promise<void> {
  keepCsrfToken(csrfToken);
  await resume();
}

export async function signOut(): Promise<void> {
  await done(api.POST('/api/v1/sessions/logout')).catch(() => {});
  keepCsrfToken(undefined);
  me.value = undefined;
  state.value = 'out';
}

/** The account of the link, of the last visit, or the only one there is; empty when the page has to ask. */
export async function findAccount(): Promise<string> {
  const linked = new URLSearchParams(location.search).get('account') ?? localStorage.getItem(accountKey);
  if (linked) return linked;
  const answer = await api.GET('/api/v1/auth/default-account');
  return answer.data?.accountId ?? '';
}

/** Whether somebody has been signed in here before. */
export const hasAccount = (): boolean => localStorage.getItem(accountKey) !== null;
