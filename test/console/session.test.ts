/** Sessions in a browser: what ends one, what only looks like it, and who acts in a page. Typed text outlives all of it. */
import type { Browser, Page } from 'playwright-core';
import { register, startProvider } from '../support/oidc.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';
import { openPage, settled, signIn } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  browser = await openBrowser();
});

/** A dialog on the page of devices, with a serial number typed. */
async function typed(page: Page, serialNumber: string) {
  await settled(page);
  await page.getByRole('button', { name: 'New device', exact: true }).click();
  const field = page.getByRole('dialog', { name: 'New device', exact: true }).getByLabel('Serial number');
  await field.fill(serialNumber);
  // The page may ask for a login first, by what it reads meanwhile: a real click would wait for that.
  const create = () => page.getByRole('button', { name: 'Create', includeHidden: true }).dispatchEvent('click');
  const isMade = async () => {
    await page.getByText(`${serialNumber} was created.`).waitFor();
    return count(serialNumber);
  };
  return { field, create, isMade };
}

const count = async (serialNumber: string) =>
  (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=${serialNumber}&results=false`))
    .devices.meta.count;

const login = (page: Page) => page.getByRole('dialog', { name: 'Sign in', exact: true });

async function signInOver(page: Page, password = adminPassword, email?: string) {
  if (email !== undefined) await login(page).getByLabel('Email address').fill(email);
  await login(page).getByLabel('Password', { exact: true }).fill(password);
  await login(page).getByRole('button', { name: 'Sign in', exact: true }).click();
}

t.test('when the session ends, the login comes over the page, and the form is as it was', async (t) => {
  const { page, errors } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/devices');
  const { field, create, isMade } = await typed(page, 'TYPED-1');
  await page.context().clearCookies();
  await create();
  await login(page).getByText('Your session has ended.').waitFor();
  t.equal(await login(page).getByLabel('Email address').inputValue(), adminEmail, 'the same person');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await signInOver(page);
  await login(page).waitFor({ state: 'detached' });
  t.equal(await field.inputValue(), 'TYPED-1');
  await create();
  t.equal(await isMade(), 1);
  t.strictSame(errors, []);
});

t.test('another person who signs in over a page starts afresh', async (t) => {
  const person = await service.endUser((await service.organization()).id);
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/devices');
  const { create } = await typed(page, 'TYPED-2');
  await page.context().clearCookies();
  await create();
  await login(page).waitFor();
  await signInOver(page, person.password, person.email);
  await page.getByRole('heading', { name: 'My devices', level: 1 }).waitFor();
  t.equal(await page.getByRole('dialog').count(), 0);
  t.match(await page.locator('.who').textContent(), person.email);
});

t.test('429, 500, 503, and what a proxy says for a service that starts, are no end of the session', async (t) => {
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/devices');
  const { field, create, isMade } = await typed(page, 'TYPED-3');
  const refused = page.getByRole('dialog').getByRole('alert');
  const fails = (status: number) => page.route('**/api/v1/**', (route) => route.fulfill({ status, body: '<html>' }));
  for (const status of [429, 500, 503]) {
    await fails(status);
    await create();
    await refused.waitFor();
    // The page asks by itself who is signed in.
    if (status === 503) await page.waitForResponse(/profile\/me/);
    t.equal(await login(page).count(), 0, `${status}`);
    await page.unrouteAll();
  }
  t.match(await refused.textContent(), 'The service cannot be reached. Your work is not lost.');
  await page.getByText('The connection to the service is lost.').waitFor({ state: 'detached' });

  // The token has expired, and the session cannot be renewed now.
  await page.route('**/api/v1/devices', (route) => route.fulfill({ status: 401, json: { error: { code: 31 } } }));
  await page.route('**/renew-session', (route) => route.fulfill({ status: 500, json: { message: 'Not now.' } }));
  await create();
  await refused.getByText('Not now.').waitFor();
  t.equal(await login(page).count(), 0);
  await page.unrouteAll();
  t.equal(await field.inputValue(), 'TYPED-3');
  await create();
  t.equal(await isMade(), 1);
});

t.test('a page that cannot tell who is signed in says so, and tries again', async (t) => {
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/products');
  await page.route('**/profile/me', (route) => route.fulfill({ status: 429, json: { message: 'Too many requests.' } }));
  await page.reload();
  await page.getByRole('alert').getByText('Too many requests.').waitFor();
  t.equal(await page.getByLabel('Email address').count(), 0);
  await page.unrouteAll();
  await page.getByRole('button', { name: 'Try again', exact: true }).click();
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
});

t.test('a page acts only as the person that it shows, also after another person signs in in another tab', async (t) => {
  const person = await service.endUser((await service.organization()).id);
  const { page, errors } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/devices');
  const { field, create, isMade } = await typed(page, 'TYPED-4');
  const logIn = (emailAddress: string, password: string) =>
    page.context().request.post('/api/v1/auth/login-user', {
      data: { emailAddress, password, accountId: service.accountId },
    });
  await logIn(person.email, person.password);
  await create();
  await login(page).getByText(`${person.email} has signed in in another tab.`).waitFor();
  t.equal(await count('TYPED-4'), 0);
  await signInOver(page);
  await login(page).waitFor({ state: 'detached' });
  t.equal(await field.inputValue(), 'TYPED-4');

  // Another login of the same person changes nothing, and leaves its CSRF token to all tabs.
  const { csrfToken } = await (await logIn(adminEmail, adminPassword)).json();
  await page.evaluate((token) => localStorage.setItem('slipway-csrf', token), csrfToken);
  await create();
  t.equal(await isMade(), 1);
  t.equal(await login(page).count(), 0);
  t.strictSame(errors, []);
});

t.test('a page that Back brings from the memory of the browser is hidden from who is signed in by then', async (t) => {
  const person = await service.endUser((await service.organization()).id);
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/products');
  await settled(page);
  // What the browser tells a page that it keeps. Playwright has switched off that memory itself.
  const tell = (event: string) =>
    page.evaluate(`void dispatchEvent(new PageTransitionEvent('${event}', { persisted: true }))`);
  const asked = page.waitForResponse(/profile\/me/);
  await tell('pagehide');
  await tell('pageshow');
  t.equal((await asked).status(), 200);
  t.equal(await login(page).count(), 0, 'the same login');

  await tell('pagehide');
  await page.context().clearCookies();
  await page.evaluate(`localStorage.removeItem('slipway-csrf')`);
  await page.route('**/profile/me', (route) => route.fulfill({ status: 500, json: { message: 'Not now.' } }));
  await tell('pageshow');
  await login(page).getByText('Your session has ended.').waitFor();
  await page.unrouteAll();
  await signInOver(page);
  await login(page).waitFor({ state: 'detached' });

  await tell('pagehide');
  const answer = await page.context().request.post('/api/v1/auth/login-user', {
    data: { emailAddress: person.email, password: person.password, accountId: service.accountId },
  });
  const { csrfToken } = await answer.json();
  await page.evaluate(`localStorage.setItem('slipway-csrf', ${JSON.stringify(csrfToken)})`);
  await tell('pageshow');
  await login(page).getByText(`${person.email} has signed in in another tab.`).waitFor();
});

t.test('a tab hears at once of a login and of a logout in another tab, and may go on as who is in', async (t) => {
  const person = await service.endUser((await service.organization()).id);
  const { page: first } = await openPage(t, browser, service);
  await signIn(first, undefined, undefined, '/console/products');
  const second = await first.context().newPage();
  await second.goto('/console/products');
  await second.getByRole('button', { name: 'Sign out', exact: true }).click();
  await login(first).getByText('Your session has ended.').waitFor();
  await signIn(second, person.email, person.password);
  await login(first)
    .getByRole('button', { name: `Go on as ${person.email}`, exact: true })
    .click();
  await first.getByRole('heading', { name: 'My devices', level: 1 }).waitFor();
  t.match(await first.locator('.who').textContent(), person.email);
});

t.test('a logout whose request fails says so, and the person is still there', async (t) => {
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/products');
  await page.route('**/sessions/logout', (route) => route.abort());
  await page.getByRole('button', { name: 'Sign out', exact: true }).click();
  await page.getByText('You are still signed in. The service cannot be reached.').waitFor();
  await page.unrouteAll();
  await page.getByText('The connection to the service is lost.').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Sign out', exact: true }).click();
  await page.getByLabel('Email address').waitFor();
  t.equal((await page.context().cookies()).length, 0);
});

t.test('with an identity provider one goes on too: it opens in a tab of its own', async (t) => {
  const provider = await startProvider(t, service);
  const redirectUris = [`${service.server.url}/console/`];
  const { id } = await register(service, provider, { name: 'Company', redirectUris });
  t.teardown(() => service.http('DELETE', `/api/v1/identity-providers/${id}`));
  const { email, password } = await service.endUser((await service.organization()).id);
  provider.logsIn({ sub: 'somebody', email, email_verified: true });
  const { page } = await openPage(t, browser, service, { bypassCSP: true });
  await signIn(page, email, password, '/console/devices');
  await settled(page);
  await page.evaluate('stayed = true');
  await page.context().clearCookies();
  await page.getByRole('link', { name: 'Organizations', exact: true }).dispatchEvent('click');
  await login(page).getByRole('link', { name: 'Sign in with Company', exact: true }).click();
  await login(page).waitFor({ state: 'detached' });
  await page.getByRole('heading', { name: 'Organizations', level: 1 }).waitFor();
  t.ok(await page.evaluate('stayed'));
});

t.test('a station whose session ends goes on with its token, and the serial number is as it was typed', async (t) => {
  const { id: deviceTemplateId } = await service.template({ name: 'Thermometer' });
  const station = await service.create('/applications', 'application', {
    name: 'Line 1',
    kind: 'station',
    deviceTemplateId,
    maxDevices: 2,
    expiresAt: new Date(Date.now() + 86_400_000).toISOString(),
  });
  const { page } = await openPage(t, browser, service);
  await page.goto(`/console/station?app=${station.id}&account=${service.accountId}`);
  await page.getByLabel('Token').fill(station.appToken);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByText('0 of 2 made').waitFor();
  await page.context().clearCookies();
  const field = page.getByLabel('Serial number');
  await field.fill('TH-TYPED');
  await field.press('Enter');
  await login(page).getByLabel('Token').fill(station.appToken);
  await login(page).getByRole('button', { name: 'Sign in', exact: true }).click();
  await login(page).waitFor({ state: 'detached' });
  t.equal(await field.inputValue(), 'TH-TYPED');
  await field.press('Enter');
  await page.getByText('1 of 2 made').waitFor();
});

/** As after an upgrade, or where a proxy keeps a file back; some answer with a page of their own instead. */
const gone = { status: 404, body: 'gone' };
const without = (page: Page, file: string, answer: { status: number; body: string } = gone) =>
  page.route(`**/console/files/${file}-*.js`, (route) => route.fulfill({ ...answer, contentType: 'text/html' }));

t.test('a file of a place that cannot be had gives a sentence and a button, and the other places stay', async (t) => {
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/organizations');
  await page.getByRole('heading', { name: 'Organizations', level: 1 }).waitFor();
  await without(page, 'products');
  await page.getByRole('link', { name: 'Products', exact: true }).click();
  const told = page.getByRole('alert').filter({ hasText: 'A file of this page could not be loaded.' });
  await told.waitFor();
  await page.getByRole('link', { name: 'Organizations', exact: true }).click();
  await page.getByRole('heading', { name: 'Organizations', level: 1 }).waitFor();
  t.equal(await told.count(), 0);
  await page.unrouteAll();
  await without(page, 'products', { status: 200, body: '<!doctype html><h1>Another page</h1>' });
  await page.getByRole('link', { name: 'Products', exact: true }).click();
  await told.waitFor();
  await page.unrouteAll();
  await told.getByRole('button', { name: 'Load the page again', exact: true }).click();
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
});

t.test('a file of a part of a page that cannot be had is told in its place', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId, latitude: 50, longitude: 10 });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'readings'), ',temperature,21,', { qos: 1 });
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/account');
  for (const file of ['uPlot.esm', 'outline']) await without(page, file);
  const told = page.getByRole('alert').filter({ hasText: 'A file of this page could not be loaded.' });
  for (const [place, beside] of [
    ['', 'Position'],
    ['/series', 'Zoom in'],
  ] as const) {
    await page.goto(`/console/devices/${device.id}${place}`);
    await told.waitFor();
    await page.getByText(beside).waitFor();
  }
  await page.unrouteAll();
  await told.getByRole('button').click();
  await page.locator('.u-over').waitFor();
});

t.test('a page whose script does not come says so, and has a link', async (t) => {
  for (const address of ['/console/devices?q=kept', '/claim?code=kept']) {
    const { page } = await openPage(t, browser, service);
    await without(page, 'main');
    await page.goto(address);
    const link = page.getByRole('link', { name: 'load it again', exact: true });
    await link.waitFor();
    await page.unrouteAll();
    await link.click();
    await page.getByRole('heading', { level: 1 }).waitFor();
    t.match(page.url(), address, 'the address is the same');
  }
});

/** Answers of a login that the browser keeps no cookie of, as where cookies are blocked. */
async function dropCookies(page: Page) {
  await page.route('**/auth/login-user', async (route) => {
    const response = await route.fetch();
    await page.context().clearCookies();
    const headers = Object.fromEntries(
      Object.entries(response.headers()).filter(([name]) => name.toLowerCase() !== 'set-cookie'),
    );
    await route.fulfill({ response, headers });
  });
}

const fillIn = async (page: Page) => {
  await page.getByLabel('Email address').fill(adminEmail);
  await page.getByLabel('Password', { exact: true }).fill(adminPassword);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
};

t.test('where the browser keeps no cookie, a login says what is needed, again and again', async (t) => {
  const { page, errors } = await openPage(t, browser, service);
  await dropCookies(page);
  await page.goto('/console/devices');
  for (const _ of [1, 2]) {
    await fillIn(page);
    await page.getByRole('alert').getByText('Allow cookies for this site').waitFor();
  }
  await page.unrouteAll();
  await fillIn(page);
  await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor();
  // The session ends, by what is under way or by the link, and the login over the page is not kept either.
  await dropCookies(page);
  await page.context().clearCookies();
  await page.getByRole('link', { name: 'Products', exact: true }).dispatchEvent('click');
  await signInOver(page);
  await login(page).getByRole('alert').getByText('Allow cookies for this site').waitFor();
  t.strictSame(errors, []);
});

t.test('a login at a provider whose cookie the browser has not kept says what is needed', async (t) => {
  const { page } = await openPage(t, browser, service);
  await page.addInitScript("sessionStorage['slipway-left'] = 'yes'");
  await page.goto('/console/devices#csrfToken=abc');
  await page.getByText('Allow cookies for this site').waitFor();
});

t.test('where the browser refuses to keep anything, no page is blank: each says what is needed', async (t) => {
  const { page, errors } = await openPage(t, browser, service);
  await page.addInitScript(`for (const name of ['localStorage', 'sessionStorage'])
    Object.defineProperty(window, name, { get() { throw new DOMException('Access is denied', 'SecurityError'); } });
    Object.defineProperty(navigator, 'cookieEnabled', { get: () => window.allowed === true });`);
  for (const place of ['/console/', '/console/devices', '/console/station', '/claim?code=AAAA', '/claim'])
    await t.test(place, async () => {
      await page.goto(place);
      await page.getByText(`This browser keeps no cookies and no data for ${new URL(page.url()).host}.`).waitFor();
    });
  // One that keeps cookies alone works as long as the page is open.
  await page.goto('/console/products');
  await fillIn(page);
  await page.getByRole('button', { name: 'New product', exact: true }).click();
  await page.getByLabel('Name').fill('Made without storage');
  await page.getByRole('dialog').getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('row', { name: /Made without storage/ }).waitFor();
  await page.reload();
  await page.getByLabel('Email address').waitFor();
  t.strictSame(errors, []);
});

t.test(
  'Escape, a link, Back and a reload ask before they lose a form that was changed, and none that was not',
  async (t) => {
    const { device } = await service.device({ serialNumber: 'SN-UNSAVED' });
    const { page, errors } = await openPage(t, browser, service);
    await signIn(page, undefined, undefined, '/console/products');
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    const asks = page.getByRole('dialog', { name: 'Leave without saving?', exact: true });
    const answer = async (name: 'Keep editing' | 'Discard changes') => {
      await asks.getByRole('button', { name, exact: true }).click();
      await asks.waitFor({ state: 'detached' });
    };
    const dialog = page.getByRole('dialog', { name: 'New device', exact: true });
    const open = () => page.getByRole('button', { name: 'New device', exact: true }).click();
    await open();
    await dialog.getByRole('combobox').first().focus();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await open();
    const field = dialog.getByLabel('Serial number');
    await field.fill('TYPED-5');
    for (const _ of [1, 2]) {
      await page.keyboard.press('Escape');
      await asks.waitFor();
      await page.keyboard.press('Escape');
      await asks.waitFor({ state: 'detached' });
      t.equal(await field.inputValue(), 'TYPED-5');
      t.equal(await field.and(page.locator(':focus')).count(), 1, 'the focus is where it was');
    }
    await page.goBack();
    await answer('Keep editing');
    t.match(page.url(), /devices$/);
    await page.mouse.click(2, 2);
    t.equal(await field.inputValue(), 'TYPED-5', 'a click beside the dialog does nothing');
    // What is as it was is no change.
    await field.fill('');
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await open();
    await field.fill('TYPED-6');
    await page.keyboard.press('Escape');
    await answer('Discard changes');
    await dialog.waitFor({ state: 'detached' });

    await page.goto(`/console/devices/${device.id}/fields`);
    await settled(page);
    const version = page.getByLabel('Firmware version');
    await page.getByRole('link', { name: 'Log', exact: true }).click();
    await page.waitForURL(/log$/);
    await page.getByRole('link', { name: 'Settings', exact: true }).click();
    await version.fill('9.9');
    const leaves = [
      () => page.getByRole('link', { name: 'Log', exact: true }).click(),
      () => page.getByRole('link', { name: 'Products', exact: true }).click(),
      () => page.goBack(),
      () => page.getByRole('button', { name: 'Sign out', exact: true }).click(),
      async () => {
        await page.keyboard.press('Control+K');
        await page.keyboard.type('Trash');
        await page.keyboard.press('Enter');
      },
    ];
    for (const leave of leaves) {
      await leave();
      await answer('Keep editing');
      t.match(page.url(), /fields$/);
      t.equal(await version.inputValue(), '9.9');
    }
    const warned = page.waitForEvent('dialog');
    // Not page.reload(), which would wait for what is prevented.
    await page.evaluate('setTimeout(() => location.reload())');
    const warning = await warned;
    t.equal(warning.type(), 'beforeunload');
    await warning.dismiss();
    t.equal(await version.inputValue(), '9.9');
    // What is saved is not asked about.
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('Saved.').waitFor();
    await page.getByRole('link', { name: 'Log', exact: true }).click();
    await page.waitForURL(/log$/);
    await page.getByRole('link', { name: 'Settings', exact: true }).click();
    await version.fill('9.10');
    await page.goBack();
    await answer('Discard changes');
    await page.waitForURL(/log$/);
    t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.firmwareVersion, '9.9');
    t.strictSame(errors, []);
  },
);

t.end();
