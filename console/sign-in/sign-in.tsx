/** Sign in: password, second factor, recovery code, single sign-on, forgotten password. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { headerPrefix } from '../app/acting.ts';
import { ApiError, api, unwrap } from '../app/api.ts';
import { begin, findAccount } from '../app/session.ts';
import { keepsNothing } from '../app/stores.ts';
import { BrandMark, useBranding } from '../claim/brand.tsx';
import { useLoad } from '../parts/data/load.ts';
import { Button, Field, Form, Select, type Values } from '../parts/forms/form.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { useTitle } from '../parts/page/title.ts';
import { texts } from '../words.ts';
import { federatedError, federatedSecondStep, noteLeaving } from './federated.ts';

const words = texts.signIn;

/** It bears the name and the colour that the account has chosen. `children` are other ways in. */
export function SignIn({ hint = words.hint, children }: { hint?: string; children?: ComponentChildren }) {
  const [account, setAccount] = useState<string>();
  const [second, setSecond] = useState(federatedSecondStep.value);
  const [forgotten, setForgotten] = useState(false);
  const { branding } = useBranding(account ?? '');
  useTitle(words.title);
  useEffect(() => {
    findAccount()
      .then(setAccount)
      .catch(() => setAccount(''));
  }, []);
  return (
    <main class="door branded">
      <div class="panel">
        {branding && (branding.logo ?? branding.color) ? (
          <BrandMark branding={branding} />
        ) : (
          <span class="brand">
            <Icon name="slipway" /> Slipway
          </span>
        )}
        <h1>{forgotten ? words.forgotten : words.title}</h1>
        <p class="soft">{hint}</p>
        <CookieNote />
        {federatedError.value && <p class="note bad">{federatedError.value}</p>}
        {second ? (
          <SecondFactor {...second} />
        ) : forgotten ? (
          <Forgotten account={account ?? ''} back={() => setForgotten(false)} />
        ) : (
          account !== undefined && (
            <>
              <Password account={account} onSecond={setSecond} />
              <p>
                <Button label={words.forgot} class="link" onClick={() => setForgotten(true)} />
              </p>
              {account && <Providers account={account} />}
              {children}
            </>
          )
        )}
      </div>
    </main>
  );
}

/** What is needed before anybody can sign in. */
export function CookieNote() {
  return keepsNothing() ? (
    <p class="note bad" role="alert">
      {words.keepsNothing(location.host)}
    </p>
  ) : null;
}

function AccountField({ account }: { account: string }) {
  if (account) return <input type="hidden" name="accountId" value={account} />;
  return <Field label={words.account} name="accountId" required hint={words.accountHint} />;
}

/** Says what was typed wrong, where the API says no more than that it refuses it. */
function tell(error: unknown, status: number, said: string): never {
  if (error instanceof ApiError && error.status === status && error.details.length === 0) error.said = said;
  throw error;
}

export function Password({
  account,
  email,
  onSecond,
}: {
  account: string;
  /** Of the person who goes on. */
  email?: string;
  onSecond: (second: { mfaToken: string; mfaMethods: string[] }) => void;
}) {
  const save = async ({ emailAddress = '', password = '', accountId = '' }: Values) => {
    const body = { emailAddress, password, accountId };
    const answer = await unwrap(api.POST('/api/v1/auth/login-user', { body })).catch((error) =>
      tell(error, 401, words.wrong),
    );
    if ('mfaRequired' in answer) onSecond(answer);
    else await begin(answer.csrfToken);
  };
  return (
    <Form light save={save} verb={words.verb}>
      <AccountField account={account} />
      <Field
        label={words.email}
        name="emailAddress"
        type="email"
        defaultValue={email}
        autoComplete="username"
        required
      />
      <Field
        label={words.password}
        name="password"
        type="password"
        autoFocus={email !== undefined}
        autoComplete="current-password"
        required
      />
    </Form>
  );
}

export function SecondFactor({ mfaToken, mfaMethods }: { mfaToken: string; mfaMethods: string[] }) {
  // The name of this header is a setting of the service, so the document has the usual one.
  const headers = { [`${headerPrefix}-mfa-token`]: mfaToken };
  const params = { header: { 'platform-mfa-token': mfaToken } };
  const [method, setMethod] = useState(mfaMethods[0] ?? 'totp');
  const [sent, setSent] = useState(false);
  const save = async ({ code = '' }: Values) => {
    const body = { mfaMethod: method as 'totp', code };
    const answer = await unwrap(api.POST('/api/v1/auth/mfa-login-user', { params, headers, body })).catch((error) =>
      tell(error, 400, words.wrongCode),
    );
    federatedSecondStep.value = undefined;
    await begin(answer.csrfToken);
  };
  const text = async () => {
    await unwrap(api.POST('/api/v1/auth/mfa-trigger-auth', { params, headers, body: { mfaMethod: 'sms' } }));
    setSent(true);
  };
  const options = [...mfaMethods, 'recovery'].map((one) => [one, words.methods[one] ?? one] as const);
  return (
    <Form light save={save} verb={words.verb}>
      <Select label={words.second} value={method} options={options} onText={setMethod} />
      {method === 'sms' && (
        <p>
          <Button label={sent ? words.codeSent : words.sendCode} onClick={text} />
        </p>
      )}
      <Field label={words.code} name="code" autoComplete="one-time-code" required />
    </Form>
  );
}

function Forgotten({ account, back }: { account: string; back: () => void }) {
  const [sent, setSent] = useState(false);
  const save = async ({ emailAddress = '', accountId = '' }: Values) => {
    await unwrap(api.POST('/api/v1/auth/forgot-password', { body: { accountId, emailAddress } }));
    setSent(true);
  };
  return (
    <>
      {sent ? (
        <p class="note good" role="status">
          {words.sent}
        </p>
      ) : (
        <Form light save={save} verb={words.send}>
          <AccountField account={account} />
          <Field label={words.email} name="emailAddress" type="email" autoComplete="username" required />
        </Form>
      )}
      <Button label={words.back} class="link" onClick={back} />
    </>
  );
}

/**
 * Buttons of single sign-on. `onLeave` hears that the browser goes to a provider; `apart` goes there in a tab of its own, which
 * has to know that it was sent, so that this page stays.
 */
export function Providers({ account, onLeave, apart }: { account: string; onLeave?: () => void; apart?: boolean }) {
  const { data } = useLoad(
    () => unwrap(api.GET('/api/v1/auth/login-providers', { params: { query: { accountId: account } } })),
    [account],
  );
  const page = `${location.origin}/console/`;
  return (
    <div class="stack">
      {data?.identityProviders.map(({ id, name }) => (
        <a
          key={id}
          class="button"
          {...(apart && { target: '_blank', rel: 'opener' })}
          onClick={() => {
            noteLeaving();
            onLeave?.();
          }}
          href={`/api/v1/oauth2/authorize?providerId=${id}&redirectUri=${encodeURIComponent(page)}`}
        >
          {words.with(name)}
        </a>
      ))}
    </div>
  );
}
