/** A station signs in with its id and its token; both can be pasted together, as the console and the command show them. */
import { useEffect, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { begin, findAccount } from '../app/session.ts';
import { Field, Form, type Values } from '../parts/forms/form.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { useTitle } from '../parts/page/title.ts';
import { CookieNote } from '../sign-in/sign-in.tsx';
import { texts } from '../texts.ts';

const words = texts.station;
/** A field of one line takes the ends of lines out of what is pasted: ids end after their 36 characters. */
const variables = {
  accountId: /SLIPWAY_ACCOUNT_ID=['"]?([0-9a-f-]{36})/,
  appId: /SLIPWAY_APP_ID=['"]?([0-9a-f-]{36})/,
  appToken: /SLIPWAY_TOKEN=['"]?([^\s'"]+?)(?:['"\s]|export |$)/,
} as const;

/** The values of lines such as SLIPWAY_TOKEN=…; what is no such line is a token. */
export function readLines(text: string): Partial<Record<keyof typeof variables, string>> {
  const found = Object.entries(variables).flatMap(([name, pattern]) => {
    const value = pattern.exec(text)?.[1];
    return value === undefined ? [] : [[name, value]];
  });
  return found.length > 0 ? Object.fromEntries(found) : { appToken: text.trim() };
}

export function StationSignIn() {
  useTitle(words.title);
  return (
    <main class="door">
      <div class="panel">
        <span class="brand">
          <Icon name="slipway" /> Slipway
        </span>
        <h1>{words.title}</h1>
        <StationForm />
        <p>
          <Link href="/">{texts.signIn.back}</Link>
        </p>
      </div>
    </main>
  );
}

/** `id` is that of the station which goes on. */
export function StationForm({ id = '' }: { id?: string }) {
  const [account, setAccount] = useState('');
  useEffect(() => {
    findAccount().then(setAccount, () => {});
  }, []);
  const save = async ({ accountId = '', appId = '', token = '' }: Values) => {
    const lines = readLines(token);
    const body = {
      accountId: lines.accountId ?? accountId,
      appId: lines.appId ?? appId,
      appToken: lines.appToken ?? '',
    };
    await begin((await unwrap(api.POST('/api/v1/auth/login-application', { body }))).csrfToken);
  };
  return (
    <>
      <p class="soft">{words.signInHint}</p>
      <CookieNote />
      <Form light save={save} verb={texts.signIn.verb}>
        <Field key={account} label={texts.signIn.account} name="accountId" defaultValue={account} />
        <Field
          label={words.id}
          name="appId"
          defaultValue={id || (new URLSearchParams(location.search).get('app') ?? '')}
          autoComplete="username"
        />
        <Field
          label={words.token}
          name="token"
          type="password"
          autoComplete="current-password"
          required
          hint={words.tokenHint}
        />
      </Form>
    </>
  );
}
