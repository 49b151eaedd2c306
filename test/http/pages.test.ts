/** The pages that emails lead to, read and used as a browser would. */
import vm from 'node:vm';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { claimsOf, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
let service: Service;
t.before(async () => {
  service = await startService(t, { mail: mailbox, env: { SLIPWAY_PUBLIC_URL: 'https://things.example.com' } });
});

/** Opens a link as a browser does: the page, its script, and what happens when its form is sent. */
async function open(link: string, from = service) {
  const { pathname, hash } = new URL(link);
  const page = await from.http('GET', pathname, { token: null });
  const source = /<script src="([^"]+)"/.exec(page.text)?.[1] ?? 'nothing';
  const { text } = await from.http('GET', source, { token: null });
  const shown = { textContent: '' };
  const address = { pathname, hash };
  let submit = async (_: object) => {};
  const paste = { hidden: true };
  const form = {
    elements: { password: { value: '' }, pasted: { value: '' }, emailAddress: { value: '' } },
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
    document: {
      querySelector: (selector: string) => (selector === 'form' ? form : selector === '#paste' ? paste : shown),
    },
    fetch: (path: string, options: RequestInit) => fetch(from.server.url + path, options),
  });
  return {
    page,
    address,
    shown,
    paste,
    async send(password = '', pasted = '') {
      form.elements.password.value = password;
      form.elements.pasted.value = pasted;
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
  t.ok(opened.paste.hidden, 'there is nothing to paste');
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

t.test('an email without a link says at which page to paste what, and the page takes it', async (t) => {
  const own = new Mailbox();
  const without = await startService(t, { mail: own });
  const email = 'pasting@example.com';
  await without.create('/account-users', 'accountUser', { createIdmUser: true, idmUserEmail: email });
  const { text } = own.to(email)[0] ?? { text: '' };
  const [, path = '', pasted = ''] =
    /Open the page (\S+) of the service, and paste this there:\n(.*\n.*)\n/.exec(text) ?? [];
  const opened = await open(`https://things.example.com${path}`, without);
  t.notOk(opened.paste.hidden);
  t.match(opened.page.text, /<label id="paste" hidden>What the email says <textarea name="pasted"/);
  t.match(opened.shown.textContent, /paste what the email says/);
  t.match(await opened.send('a long enough secret', 'something else'), /Paste the lines of the email/);
  t.match(await opened.send('a long enough secret', ` ${pasted.replace('\n', '\r\n')} `), /^Done/);
  await without.loginAs(email, 'a long enough secret');
  const admin = { userId: claimsOf(without.admin).userId, newEmailAddress: 'later@example.com' };
  await without.ok('POST', '/api/v1/profile/update-email-address', { body: admin });
  const [told] = own.to('later@example.com');
  t.match(told?.text, /Open the page \/confirm-email of the service/);
  const confirming = await open('https://things.example.com/confirm-email', without);
  t.match(await confirming.send('', told?.text), /^Done/, 'the whole email will do');
});

t.end();
