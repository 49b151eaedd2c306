/** The pages that emails and labels lead to, read and used as a browser would. */
import vm from 'node:vm';
import { Secret, TOTP } from 'otpauth';
import { withCode } from '../../src/factory/claim-url.ts';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

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

/** The page of a label's QR code, with as much of a browser as its script uses. */
async function openClaim(link: string) {
  const { pathname, search } = new URL(link);
  const page = await service.http('GET', pathname, { token: null });
  const { text } = await service.http('GET', /<script src="([^"]+)"/.exec(page.text)?.[1] ?? 'nothing', {
    token: null,
  });
  const field = () => ({ value: '', required: false, parentElement: { hidden: true } });
  const names = [...page.text.matchAll(/ name="(\w+)"/g)].map(([, name = '']) => name);
  const elements: Record<string, ReturnType<typeof field>> = Object.fromEntries(names.map((name) => [name, field()]));
  const options: Array<[name: string, id: string]> = [];
  Object.assign(elements.organization ?? {}, { add: (option: (typeof options)[number]) => options.push(option) });
  const shown = { textContent: '' };
  let submit = async (_: object) => {};
  const form = {
    elements,
    remove: () => {},
    addEventListener: (_: string, listener: typeof submit) => {
      submit = listener;
    },
  };
  vm.runInNewContext(text, {
    URLSearchParams,
    Option: function option(name: string, id: string) {
      return [name, id];
    },
    location: { search },
    document: { querySelector: (selector: string) => (selector === 'form' ? form : shown) },
    fetch: (path: string, request: RequestInit) => fetch(service.server.url + path, request),
  });
  return {
    page,
    elements,
    options,
    shown,
    async send(values: Record<string, string>) {
      for (const [name, value] of Object.entries(values)) if (elements[name]) elements[name].value = value;
      await submit({ preventDefault: () => {} });
      return shown.textContent;
    },
  };
}

/** A device with the claim address of its label. */
async function labelled() {
  const { device } = await service.device();
  const body = { deviceId: device.id };
  const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', { body });
  const { claimUrl } = (await service.ok('GET', '/api/v1/provisioning/addresses')).provisioning;
  const place = async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.organizationId;
  return { link: withCode(claimUrl, associationCode, service.accountId), place };
}

t.test('a label leads to a page that claims its unit for who logs in', async (t) => {
  const { id: organizationId } = await service.organization();
  const { endUser, email, password } = await service.endUser(organizationId);
  const { link, place } = await labelled();
  const opened = await openClaim(link);
  t.match(opened.page.headers.get('content-security-policy'), /script-src 'self'/);
  t.match(opened.page.text, /<label hidden>/);
  t.match(opened.page.text, /\[hidden\] { display: none !important }/, 'stronger than the display of every label');
  t.match(await opened.send({ email, password: 'a wrong password' }), /wrong|credentials/i);
  t.equal(await place(), null);
  t.match(await opened.send({ code: 'AAAA-AAAA-AAAA', email, password }), /associationCode is mistyped/);
  const code = new URL(link).searchParams.get('code') ?? '';
  t.equal(await opened.send({ code }), 'Done. The device is yours.');
  t.equal(await place(), organizationId);
  const ended = countStored(service, 'sessions', '"userId" = ? AND "ended" IS NOT NULL', [endUser.userId]);
  t.equal(ended, 1, 'the session of the page is over');
});

t.test('who has several organizations chooses, and who has a second factor gives its code', async (t) => {
  const top = await service.organization();
  const below = await service.organization({ parentId: top.id });
  const { email, password, token, endUser } = await service.endUser(top.id);
  const path = `/api/v1/users/${endUser.userId}/mfa/totp`;
  const { secret } = await service.ok('POST', path, { token });
  const totp = new TOTP({ secret: Secret.fromBase32(secret) });
  await service.ok('POST', `${path}/confirm`, { token, body: { code: totp.generate() } });
  const { link, place } = await labelled();
  const opened = await openClaim(link);
  t.match(await opened.send({ email, password }), /second factor/);
  t.notOk(opened.elements.second?.parentElement.hidden);
  // A code works once: the next is that of the next half minute.
  const next = totp.generate({ timestamp: Date.now() + 30_000 });
  t.match(await opened.send({ second: next }), /Choose/);
  t.same(opened.options.map(([, id]) => id).sort(), [top.id, below.id].sort());
  t.equal(await opened.send({ organization: below.id }), 'Done. The device is yours.');
  t.equal(await place(), below.id);
});

t.end();
