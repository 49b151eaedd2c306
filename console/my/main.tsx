/** My devices, `/console/my`: the home of customers. It bears the name, colour and logo of the account, and speaks their language. */
import { Suspense } from 'preact/compat';
import { Router } from 'wouter-preact';
import { mount } from '../app/mount.tsx';
import { Starting } from '../app/offline.tsx';
import { place } from '../app/place.ts';
import { lapse, state } from '../app/session.ts';
import { useLanguage } from '../parts/page/language.ts';
import { Loading } from '../parts/page/shown.tsx';
import { browserLanguage } from '../words.ts';
import { Frame } from './frame.tsx';
import { words } from './words.ts';

// Who is signed in needs neither.
const SignIn = place(async () => (await import('../sign-in/sign-in.tsx')).SignIn);
const SignInAgain = place(async () => (await import('../sign-in/again.tsx')).SignInAgain);

function My() {
  const isSpoken = useLanguage(browserLanguage());
  if (!isSpoken) return <Loading />;
  if (state.value === 'starting') return <Starting />;
  if (state.value !== 'in')
    return (
      <Suspense fallback={<Loading />}>
        <SignIn hint={words.signInHint} />
      </Suspense>
    );
  return (
    <Router base="/console/my">
      <Frame />
      {lapse.value !== undefined && (
        <Suspense fallback={null}>
          <SignInAgain />
        </Suspense>
      )}
    </Router>
  );
}

mount(<My />);
