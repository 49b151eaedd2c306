/**
 * The two pages that emails link to: choose a password, and confirm an email address. Plain HTML and a script, without
 * anything from elsewhere; an operator whose app has pages of its own names them with SLIPWAY_PUBLIC_URL instead.
 */
import type { App } from '../app.ts';
import { makeConstant, sendConstant } from './constants.ts';

const style = `
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 24rem; margin: 15vh auto; padding: 0 1rem; color: #222 }
  label, input, textarea, button { display: block; width: 100%; box-sizing: border-box; font: inherit }
  input, textarea, button { margin: .5rem 0; padding: .6rem }
  [hidden] { display: none }
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

/** Shown to who comes without a token: an email of a service that does not know its address says what to paste. */
const paste = `<label id="paste" hidden>What the email says <textarea name="pasted" rows="3" spellcheck="false"></textarea></label>`;

const pages: Readonly<Record<string, string>> = {
  '/set-password': page(
    'Choose a password',
    '/token-page.js',
    `<form>${paste}<label>Email address <input name="emailAddress" type="email" autocomplete="username"></label>
     <label>New password <input name="password" type="password" minlength="8" maxlength="256" autocomplete="new-password" required></label>
     <button>Set password</button></form>`,
  ),
  '/confirm-email': page(
    'Confirm your email address',
    '/token-page.js',
    `<form>${paste}<button>Confirm</button></form>`,
  ),
};

// The token is behind the #, which no server sees; it leaves the address bar before anything else happens.
const tokenPageScript = `'use strict';
const given = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, '', location.pathname);
const form = document.querySelector('form');
const status = document.querySelector('[role=status]');
const isPassword = location.pathname.endsWith('/set-password');
const hasToken = given.has('token');
if (!hasToken) {
  document.querySelector('#paste').hidden = false;
  status.textContent = 'This page is opened by the link in an email. Without a link, paste what the email says.';
}
// Nothing of it is sent: it tells a password manager whose the password is.
if (isPassword && given.has('emailAddress')) {
  form.elements.emailAddress.value = given.get('emailAddress');
  form.elements.emailAddress.readOnly = true;
}
const inEmail = { userId: /^\\s*userId:\\s*(\\S+)/m, token: /^\\s*token:\\s*(\\S+)/m };
const read = (name) => hasToken ? given.get(name) : inEmail[name].exec(form.elements.pasted.value)?.[1];
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  status.textContent = '';
  const token = read('token');
  const userId = read('userId');
  if (!token || (isPassword && !userId)) {
    status.textContent = 'Paste the lines of the email that begin with ' + (isPassword ? 'userId and ' : '') + 'token.';
    return;
  }
  const [path, body] = isPassword
    ? ['users/' + encodeURIComponent(userId) + '/change-password-with-token',
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

export function pageRoutes(app: App): void {
  const scripts = { '/token-page.js': tokenPageScript };
  const all = [
    ...Object.entries(pages).map((one) => [...one, 'text/html; charset=utf-8'] as const),
    ...Object.entries(scripts).map((one) => [...one, 'text/javascript; charset=utf-8'] as const),
  ];
  for (const [path, text, type] of all) {
    const constant = makeConstant(text);
    app.get(path, { schema: { hide: true } }, (_, reply) => sendConstant(reply, type, constant));
  }
}
