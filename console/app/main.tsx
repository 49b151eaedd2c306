/** Starts the console: who is signed in decides what is shown. */
import { render } from 'preact';
import { Suspense } from 'preact/compat';
import { Router, useRoute } from 'wouter-preact';
import { Boundary } from '../parts/boundary.tsx';
import { Uncopied } from '../parts/copy.tsx';
import { Question } from '../parts/dialog.tsx';
import { keepFocus } from '../parts/focus.ts';
import { Loading } from '../parts/page.tsx';
import { Toasts } from '../parts/toast.tsx';
import { guardPage } from '../parts/unsaved.ts';
import { SignInAgain } from '../sign-in/again.tsx';
import { takeFederatedLogin } from '../sign-in/federated.ts';
import { SignIn } from '../sign-in/sign-in.tsx';
import { Starting } from './offline.tsx';
import { place } from './place.ts';
import { me, state } from './session.ts';
import { Shell } from './shell.tsx';

const Station = place(async () => (await import('../station/station.tsx')).Station);

function App() {
  if (state.value === 'starting') return <Starting />;
  return (
    <Router base="/console">
      <Inside />
      <Question />
      <Uncopied />
      <Toasts />
    </Router>
  );
}

function Inside() {
  const [isStation] = useRoute('/station');
  if (isStation || me.value?.kind === 'station')
    return (
      <Suspense fallback={<Loading />}>
        <Station />
      </Suspense>
    );
  if (state.value !== 'in') return <SignIn />;
  return (
    <>
      <Shell />
      <SignInAgain />
    </>
  );
}

takeFederatedLogin();
guardPage();
keepFocus();
const root = document.getElementById('app');
if (root)
  render(
    <Boundary>
      <App />
    </Boundary>,
    root,
  );
