/** The pages that emails lead to, read and used as a browser would. */
import vm from 'node:vm';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
let service: Service;
t.before(async () => {
  service = await startService(t, { mail: mailbox, env: { SLIPWAY_PUBLIC_URL: 'https://things.example.com' } });
});

/** Opens a link as a browser does: the page, its script, and what happens when its form is sent. */
async function open(link: string) {
  const { pathname, hash } = new URL(link);
  const page = await service.http('GET', pathname, { token: null });
  const source = /<script src="([^"]+)"/.exec(page.text)?.[1] ?? 'nothing';
  const { text } = await service.http('GET', source, { token: null });
  const shown = { textContent: '' };
  const address = { pathname, hash };
  let submit = async (_: object) => {};
  const form = {
    elements: { password: { value: '' } },
    remove: () => {},
    addEventListener: (_: string, listener: typeof submit) => {
      submit = listener;
    },
  };
  vm.runInNewContext(text, {
    URLSearchParams,
    location: address,
    history: {
      replaceState: (_: unknown, __: string, path: string) => Object.assign(address, { pathname: path, hash: '' }),
    },
    document: { querySelector: (selector: string) => (selector === 'form' ? form : shown) },
    fetch: (path: string, options: RequestInit) => fetch(service.server.url + path, options),
  });
  return {
    page,
    address,
    shown,
    async send(password = '') {
      form.elements.password.value = password;
      await submit({ preventDefault: () => {} });
      return shown.textContent;
    },
  };
}

const linkTo = (address: string) => /https:\S+/.exec(mailbox.to(address).at(-1)?.text ?? '')?.[0] ?? 'no link';

t.test('the link of an invitation sets the first password, once', async (t) => {
  const { id: organizationId } = await service.organization();
  const email = 'invited@example.com';
  await service.create('/end-users', 'endUser', { organizationId, createIdmUser: true, idmUserEmail: email });
  const opened = await open(linkTo(email));
  t.match(opened.page.headers.get('content-type'), /^text\/html/);
  t.match(opened.page.headers.get('content-security-policy'), /script-src 'self'/);
  t.equal(opened.address.hash, '', 'the token has left the address bar');
  t.equal(await opened.send('short'), 'The password is not valid. It must have 8 to 256 characters.');
  t.match(await opened.send('a long enough secret'), /^Done/);
  await service.loginAs(email, 'a long enough secret');
  t.match(await opened.send('another long secret'), /The token is wrong, used or too old/);
});

t.test('the link to a new address confirms it', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  const body = { userId: endUser.userId, newEmailAddress: 'moved@example.com' };
  await service.ok('POST', '/api/v1/profile/update-email-address', { token, body });
  t.match(await (await open(linkTo('moved@example.com'))).send(), /^Done/);
  const profile = await service.ok('GET', `/api/v1/profile/${endUser.userId}`);
  t.match(JSON.stringify(profile), /"emailAddress":"moved@example.com"/);
});

t.test('a page without a token says what it is for', async (t) => {
  t.match((await open('https://things.example.com/set-password')).shown.textContent, /opened by the link in an email/);
});

t.end();
