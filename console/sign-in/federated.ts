/** Single sign-on: the provider sends the browser back with the answer in the fragment. */
import { signal } from '@preact/signals';
import { keepCsrfToken } from '../app/acting.ts';
import { tabStore } from '../app/stores.ts';

export const federatedError = signal('');
/** Whether a provider has sent the browser here with a login. */
export let isFederated = false;
export const federatedSecondStep = signal<{ mfaToken: string; mfaMethods: string[] } | undefined>(undefined);

const claimKey = 'slipway-claim';

/** Providers send browsers back to the console alone: it knows by this that they came from a claim, and leads there. */
export function keepClaim(account: string, code: string): void {
  tabStore.set(claimKey, `?${new URLSearchParams({ account, code })}`);
}

const leftKey = 'slipway-left';

/** This tab goes to a provider: only then is an answer believed, since anybody can make a link with one. */
export function noteLeaving(): void {
  tabStore.set(leftKey, 'yes');
}

/** Takes the answer out of the address, before anything else can read it. */
export function takeFederatedLogin(): void {
  const given = new URLSearchParams(location.hash.slice(1));
  const [csrfToken, mfaToken, error] = [given.get('csrfToken'), given.get('mfaToken'), given.get('error')];
  if (csrfToken === null && mfaToken === null && error === null) return;
  if (tabStore.get(leftKey) === null) {
    history.replaceState(null, '', location.pathname + location.search);
    return;
  }
  const claim = tabStore.get(claimKey);
  tabStore.remove(claimKey);
  if (claim !== null) {
    location.replace(`/claim${claim}${location.hash}`);
    return;
  }
  tabStore.remove(leftKey);
  history.replaceState(null, '', location.pathname + location.search);
  isFederated = csrfToken !== null;
  if (csrfToken !== null) keepCsrfToken(csrfToken);
  if (mfaToken !== null)
    federatedSecondStep.value = { mfaToken, mfaMethods: (given.get('mfaMethods') ?? 'totp').split(',') };
  federatedError.value = given.get('message') ?? error ?? '';
}
