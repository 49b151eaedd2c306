/** Starts the console: who is signed in decides what is shown. */
import { render } from 'preact';
import { Router } from 'wouter-preact';
import { Toasts } from '../parts/toast.tsx';
import { takeFederatedLogin } from '../sign-in/federated.ts';
import { SignIn } from '../sign-in/sign-in.tsx';
import { texts } from '../texts.ts';
import { resume, state } from './session.ts';
import { Shell } from './shell.tsx';

function App() {
  if (state.value === 'starting') return <p class="empty">{texts.loading}</p>;
  return (
    <Router base="/console">
      {state.value === 'in' ? <Shell /> : <SignIn />}
      <Toasts />
    </Router>
  );
}

const root = document.getElementById('app');
if (root) render(<App />, root);
takeFederatedLogin();
resume().catch(() => {
  state.value = 'out';
});
