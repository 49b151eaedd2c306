/**
 * The two pages that emails link to, choose a password and confirm an email address, and the one that labels lead to: claim
 * a unit. Plain HTML and a script each, without anything from elsewhere; an operator whose app has pages of its own names
 * them with SLIPWAY_PUBLIC_URL and SLIPWAY_CLAIM_URL instead.
 */
import type { App } from '../app.ts';
import { makeConstant, sendConstant } from './constants.ts';

const style = `
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 24rem; margin: 15vh auto; padding: 0 1rem; color: #222 }
  label, input, button { display: block; width: 100%; box-sizing: border-box; font: inherit }
  input, button { margin: .5rem 0; padding: .6rem }
  [hidden] { display: none !important }
  [role=status] { min-height: 3rem }`;

function page(title: string, script: string, form: string): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">
<title>${title}</title><style>${style}</style><script src="${script}" defer></script></head>
<body><h1>${title}</h1>${form}<p role="status"></p></body>
</html>
`;
}

const pages: Readonly<Record<string, string>> = {
  '/set-password': page(
    'Choose a password',
    '/token-page.js',
    `<form><label>New password <input name="password" type="password" minlength="8" maxlength="256" autocomplete="new-password" required></label>
     <button>Set password</button></form>`,
  ),
  '/confirm-email': page('Confirm your email address', '/token-page.js', '<form><button>Confirm</button></form>'),
  '/claim': page(
    'Claim a device',
    '/claim.js',
    `<form><label>Code on the label <input name="code" maxlength="100" autocomplete="off" required></label>
     <label>Email <input name="email" type="email" maxlength="254" autocomplete="username" required></label>
     <label>Password <input name="password" type="password" maxlength="256" autocomplete="current-password" required></label>
     <label hidden>Second factor <input name="second" maxlength="20" autocomplete="one-time-code"></label>
     <label hidden>Organization <select name="organization"></select></label>
     <button>Claim</button></form>`,
  ),
};

// The token is behind the #, which no server sees; it leaves the address bar before anything else happens.
const tokenPageScript = `'use strict';
const given = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, '', location.pathname);
const form = document.querySelector('form');
const status = document.querySelector('[role=status]');
const token = given.get('token');
const isPassword = location.pathname.endsWith('/set-password');
if (!token) status.textContent = 'This page is opened by the link in an email.';
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  status.textContent = '';
  const [path, body] = isPassword
    ? ['users/' + encodeURIComponent(given.get('userId')) + '/change-password-with-token',
       { newPassword: form.elements.password.value, passwordResetToken: token }]
    : ['auth/confirm-email', { token }];
  try {
    const answer = await fetch('/api/v1/' + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const said = await answer.json();
    if (answer.ok) form.remove();
    status.textContent = answer.ok
      ? 'Done. You can close this page and log in.'
      : said.message;
  } catch {
    status.textContent = 'The service could not be reached. Try again.';
  }
});
`;

/** Logs the person in, moves the device into an organization of theirs, and logs them out again. */
const claimScript = (headerPrefix: string) => `'use strict';
const given = new URLSearchParams(location.search);
const accountId = given.get('account');
const form = document.querySelector('form');
const status = document.querySelector('[role=status]');
const { code, email, password, second, organization } = form.elements;
code.value = given.get('code') ?? '';
let jwt, factor;
if (!accountId) status.textContent = 'This page is opened by the QR code on a label.';

async function call(method, path, body, headers) {
  const answer = await fetch('/api/v1/' + path, {
    method,
    headers: {
      ...(body && { 'content-type': 'application/json' }),
      ...(jwt && { authorization: 'Bearer ' + jwt }),
      ...headers,
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  const said = await answer.json();
  if (answer.ok) return said;
  const { message, details = [] } = said.error?.details ? said.error : { message: answer.status === 401 ? said.attributes.error : said.message };
  throw new Error([message, ...details.map((detail) => detail.path + ' ' + detail.message + '.')].join(' '));
}

function ask(field) {
  field.parentElement.hidden = false;
  field.required = true;
}

/** Undefined when there is more to say first. */
async function login() {
  if (factor) {
    const body = { mfaMethod: factor.method, code: second.value };
    return (await call('POST', 'auth/mfa-login-user', body, { '${headerPrefix}-mfa-token': factor.token })).jwt;
  }
  const person = { emailAddress: email.value, password: password.value, accountId, renewalType: 'short' };
  const said = await call('POST', 'auth/login-user', person);
  if (!said.mfaRequired) return said.jwt;
  const method = said.mfaMethods.includes('totp') ? 'totp' : 'sms';
  factor = { method, token: said.mfaToken };
  if (method === 'sms')
    await call('POST', 'auth/mfa-trigger-auth', { mfaMethod: 'sms' }, { '${headerPrefix}-mfa-token': said.mfaToken });
  ask(second);
  status.textContent = 'Enter the code of your second factor.';
}

/** Undefined when there is more to say first. */
async function place() {
  if (organization.value) return organization.value;
  const query = 'organizations?pageSize=1000&accountId=' + encodeURIComponent(accountId);
  const { results } = (await call('GET', query)).organizations;
  if (results.length === 0) throw new Error('You have no organization yet.');
  if (results.length === 1) return results[0].id;
  for (const { id, name } of results) organization.add(new Option(name, id));
  ask(organization);
  status.textContent = 'Choose where it belongs, and claim it.';
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  status.textContent = '';
  try {
    jwt ??= await login();
    const organizationId = jwt && (await place());
    if (!organizationId) return;
    await call('POST', 'association/start-association-with-code', { associationCode: code.value, organizationId });
    form.remove();
    status.textContent = 'Done. The device is yours.';
    await call('POST', 'sessions/logout').catch(() => {});
  } catch (error) {
    status.textContent = error instanceof TypeError ? 'The service could not be reached. Try again.' : error.message;
  }
});
`;

export function pageRoutes(app: App): void {
  const scripts = { '/token-page.js': tokenPageScript, '/claim.js': claimScript(app.headerPrefix) };
  const all = [
    ...Object.entries(pages).map((one) => [...one, 'text/html; charset=utf-8'] as const),
    ...Object.entries(scripts).map((one) => [...one, 'text/javascript; charset=utf-8'] as const),
  ];
  for (const [path, text, type] of all) {
    const constant = makeConstant(text);
    app.get(path, { schema: { hide: true } }, (_, reply) => sendConstant(reply, type, constant));
  }
}
