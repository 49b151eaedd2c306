/**
 * The two pages that letters link to: choose a password, confirm an e-mail address. Plain HTML and one script, without
 * anything from elsewhere; an operator whose app has pages of its own serves them at SLIPWAY_PUBLIC_URL instead.
 */
import type { App } from './http.js';

const style = `
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 24rem; margin: 15vh auto; padding: 0 1rem; color: #222 }
  label, input, button { display: block; width: 100%; box-sizing: border-box; font: inherit }
  input, button { margin: .5rem 0; padding: .6rem }
  [role=status] { min-height: 3rem }`;

function page(title: string, form: string): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">
<title>${title}</title><style>${style}</style><script src="/letters.js" defer></script></head>
<body><h1>${title}</h1>${form}<p role="status"></p></body>
</html>
`;
}

const pages: Readonly<Record<string, string>> = {
  '/set-password': page(
    'Choose a password',
    `<form><label>New password <input name="password" type="password" minlength="8" maxlength="256" autocomplete="new-password" required></label>
     <button>Set password</button></form>`,
  ),
  '/confirm-email': page('Confirm your e-mail address', '<form><button>Confirm</button></form>'),
};

// The token stands behind the #, which no server sees; it leaves the address bar before anything else happens.
const script = `'use strict';
const given = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, '', location.pathname);
const form = document.querySelector('form');
const status = document.querySelector('[role=status]');
const token = given.get('token');
const isPassword = location.pathname.endsWith('/set-password');
if (!token) status.textContent = 'This page is opened by the link in a letter.';
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
      : [said.message, ...said.attributes.details.map(({ message }) => 'The password ' + message + '.')].join(' ');
  } catch {
    status.textContent = 'The service could not be reached. Try again.';
  }
});
`;

export function pageRoutes(app: App): void {
  for (const [path, html] of Object.entries(pages))
    app.get(path, { schema: { hide: true } }, (_, reply) =>
      reply.type('text/html; charset=utf-8').header('cache-control', 'no-store').send(html),
    );
  app.get('/letters.js', { schema: { hide: true } }, (_, reply) =>
    reply.type('text/javascript; charset=utf-8').send(script),
  );
}
