/** The page that labels lead to, `/claim`: it bears the name, colour and logo of the account, and claims one device after another. */
import { useEffect, useState } from 'preact/hooks';
import { csrfToken } from '../app/acting.ts';
import { mount } from '../app/mount.tsx';
import { Starting } from '../app/offline.tsx';
import { findAccount, hasAccount, state } from '../app/session.ts';
import { ErrorNote, Field, Form } from '../parts/forms/form.tsx';
import { useLanguage } from '../parts/page/language.ts';
import { Loading } from '../parts/page/shown.tsx';
import { SignInAgain } from '../sign-in/again.tsx';
import { takeFederatedLogin } from '../sign-in/federated.ts';
import { CookieNote } from '../sign-in/sign-in.tsx';
import { browserLanguage, texts } from '../words.ts';
import { BrandMark, useBranding } from './brand.tsx';
import { Claim } from './claim.tsx';
import { readLabel } from './label.ts';

const words = texts.claim;
const given = readLabel(location.href);

function ClaimPage() {
  const [account, setAccount] = useState(given.account);
  useEffect(() => {
    if (account === undefined) findAccount().then(setAccount, () => setAccount(''));
  }, []);
  const isSpoken = useLanguage(browserLanguage());
  if (!isSpoken) return <Loading />;
  if (state.value === 'starting') return <Starting />;
  if (account === undefined) return <Loading />;
  return (
    <main class="door claim">
      <CookieNote />
      {account === '' ? <NoAccount onAccount={setAccount} /> : <OfAccount account={account} onAccount={setAccount} />}
    </main>
  );
}

function OfAccount({ account, onAccount }: { account: string; onAccount: (account: string) => void }) {
  const { branding, error } = useBranding(account);
  useEffect(() => {
    document.title = branding ? words.titleOf(branding.name) : words.title;
  }, [branding]);
  if (!branding) return error ? <ErrorNote error={error} /> : <Loading />;
  return (
    <div class="panel">
      <BrandMark branding={branding} />
      <h1>{words.title}</h1>
      <Claim key={account} account={account} code={given.code} onAccount={onAccount} />
    </div>
  );
}

/** Without a label, on a service of several accounts. */
function NoAccount({ onAccount }: { onAccount: (account: string) => void }) {
  return (
    <div class="panel">
      <h1>{words.title}</h1>
      <p>{words.noAccount}</p>
      <Form light save={async ({ accountId = '' }) => onAccount(accountId)} verb={words.next}>
        <Field label={texts.signIn.account} name="accountId" required />
      </Form>
    </div>
  );
}

takeFederatedLogin();
// Nobody who opens a label for the first time has a session: asking for it would be refused.
if (!hasAccount() && csrfToken() === '') state.value = 'out';
mount(
  <>
    <ClaimPage />
    <SignInAgain />
  </>,
);
