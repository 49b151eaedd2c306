/** Starts the console: who is signed in decides what is shown. */
import { Suspense } from 'preact/compat';
import { Link, Router, useRoute } from 'wouter-preact';
import { useSearch } from 'wouter-preact/use-browser-location';
import { useLanguage } from '../parts/page/language.ts';
import { Loading } from '../parts/page/page.tsx';
import { SignInAgain } from '../sign-in/again.tsx';
import { takeFederatedLogin } from '../sign-in/federated.ts';
import { SignIn } from '../sign-in/sign-in.tsx';
import { texts } from '../texts.ts';
import { browserLanguage } from '../words.ts';
import { mount } from './mount.tsx';
import { Starting } from './offline.tsx';
import { place } from './place.ts';
import { me, state } from './session.ts';
import { Shell } from './shell.tsx';

const Station = place(async () => (await import('../station/station.tsx')).Station);

/** The router decodes the query before it is parsed: a percent sign that somebody has typed would begin an escape sequence. */
const useQuery = () => useSearch().replaceAll('%25', '%2525');

function App() {
  if (state.value === 'starting') return <Starting />;
  return (
    <Router base="/console" searchHook={useQuery}>
      <Inside />
    </Router>
  );
}

function Inside() {
  const [isStationPage] = useRoute('/station');
  const isStation = isStationPage || me.value?.kind === 'station';
  // The console speaks English; who signs in may be a customer.
  const isSpoken = useLanguage(isStation || state.value === 'in' ? 'en' : browserLanguage());
  if (isStation)
    return (
      <Suspense fallback={<Loading />}>
        <Station />
      </Suspense>
    );
  if (!isSpoken) return <Loading />;
  if (state.value !== 'in')
    return (
      <SignIn>
        <p>
          <Link href="/station">{texts.station.signInAs}</Link>
        </p>
      </SignIn>
    );
  return (
    <>
      <Shell />
      <SignInAgain />
    </>
  );
}

takeFederatedLogin();
mount(<App />);
