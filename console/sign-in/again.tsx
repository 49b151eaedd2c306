/** The login over a page whose session is not the person's any more. What is typed on the page stays; nothing of it is shown. */
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { another } from '../app/acting.ts';
import { accountId, lapse, me, startAfresh, state } from '../app/session.ts';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { Button } from '../parts/forms/form.tsx';
import { texts } from '../words.ts';
import { Password, Providers, SecondFactor } from './sign-in.tsx';

const words = texts.signIn;

/** `children` are the form of a login that is no person's. */
export function SignInAgain({ children }: { children?: ComponentChildren }) {
  if (state.value !== 'in' || lapse.value === undefined) return null;
  return <Over>{children ?? <AsPerson />}</Over>;
}

function Over({ children }: { children: ComponentChildren }) {
  useLayoutEffect(() => {
    const before = document.activeElement;
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const other = another.value ?? '';
  const who = me.value?.emailAddress ?? me.value?.name ?? '';
  const stay = () => {
    lapse.value = undefined;
  };
  return (
    <Dialog title={words.title} over onClose={lapse.value === 'ending' ? stay : undefined}>
      <p role="status">
        {lapse.value === 'another' ? words.another(other, who) : words.lapsed[lapse.value ?? 'ended']}
      </p>
      {children}
      {lapse.value === 'another' && (
        <p>
          <Button label={words.goOnAs(other)} onClick={startAfresh} />
        </p>
      )}
    </Dialog>
  );
}

function AsPerson() {
  const [second, setSecond] = useState<{ mfaToken: string; mfaMethods: string[] }>();
  if (second) return <SecondFactor {...second} />;
  return (
    <>
      <Password account={accountId.value} email={me.value?.emailAddress ?? ''} onSecond={setSecond} />
      <Providers account={accountId.value} apart />
    </>
  );
}
