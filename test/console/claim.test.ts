/** From a label to the first value, and from a serial number to a verdict: the claim page, and a station in the browser. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import type { Test } from 'tap';
import { labelPng } from '../../src/factory/results/labels.ts';
import { Mailbox } from '../support/mailbox.ts';
import { register, startProvider } from '../support/oidc.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { newWindow, openAs, openPage, settled, titled } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const phone = { viewport: { width: 360, height: 740 } };
const mailbox = new Mailbox();
let service: Service;
let browser: Browser;
let deviceTemplateId: string;
t.before(async () => {
  service = await startService(t, { mail: mailbox, env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  browser = await openBrowser();
  const categories = [{ name: 'temperature', label: 'Air', unit: '°C', kind: 'number' }];
  const channel = { name: 'readings', persistenceType: 'timeSeries', categories };
  deviceTemplateId = (await service.template({ name: 'Thermometer', channels: [channel] })).id;
});

/** A device with what its label says. */
async function labelled(body: object = {}) {
  const { device, secret } = await service.device({ deviceTemplateId, ...body });
  const made = await service.ok('POST', '/api/v1/association/create-association-code', {
    body: { deviceId: device.id },
  });
  const { associationCode: code } = made;
  return { device, secret, code, link: `/claim?code=${code}&account=${service.accountId}` };
}
async function publish({ device, secret }: Awaited<ReturnType<typeof labelled>>, payload: string): Promise<void> {
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'readings'), payload, { qos: 1 });
}
const place = async (id: string) => (await service.ok('GET', `/api/v1/devices/${id}`)).device.organizationId;

/** Nothing serious for axe-core in either scheme, and no wider than the window. Returns how many milliseconds the look took. */
async function looksRight(t: Test, page: Page, name: string): Promise<number> {
  const from = performance.now();
  await page.evaluate(axe);
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const faults: string[] = await page.evaluate(
      `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).join(' | ')))`,
    );
    t.strictSame(faults, [], `${name}, ${colorScheme}`);
    if (process.env.PICTURES)
      await page.screenshot({ path: `${process.env.PICTURES}/${name}-${colorScheme}.png`, fullPage: true });
  }
  const more = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
  t.ok(Number(more) <= 0, `${name} is ${more} pixels too wide`);
  return performance.now() - from;
}

const logo = `data:image/svg+xml;base64,${Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path fill="#0a7d55" d="M12 2l10 9h-3v11h-5v-7h-4v7H5V11H2z"/></svg>').toString('base64')}`;

t.test('on a phone: from the label by a new login to the first value', async (t) => {
  await service.ok('PUT', '/api/v1/account/branding', { body: { name: 'Hearth', color: '#0a7d55', logo } });
  const unit = await labelled();
  const { page, errors, foreign } = await openPage(t, browser, service, { ...phone, bypassCSP: true });
  let since = performance.now();
  await page.goto(unit.link);
  await page.getByText(unit.device.serialNumber).waitFor();
  await page.getByText('Thermometer').waitFor();
  await page.getByRole('img', { name: 'Hearth' }).waitFor();
  await titled(page, 'Claim a device · Hearth');
  since += await looksRight(t, page, 'claim-sign-up');
  // Colours change over a moment.
  await until(
    () => page.evaluate('getComputedStyle(document.querySelector("button.primary")).backgroundColor'),
    (colour) => colour === 'rgb(10, 125, 85)',
  );
  await page.getByLabel('Email address').fill('ada@example.com');
  await page.getByLabel('Password', { exact: true }).fill('a long secret of hers');
  await page.getByRole('button', { name: 'Create login and claim', exact: true }).click();
  await page.getByText('This device is yours now.').waitFor();
  await page.getByText('Waiting for its first value').waitFor();
  since += await looksRight(t, page, 'claim-waiting');
  await publish(unit, ',temperature,21.5,');
  const values = page.getByRole('region', { name: 'Latest values' });
  await values.getByText('21.5').waitFor();
  t.match(await values.textContent(), /^Air21\.5 °C/, 'as the product says');
  const time = performance.now() - since;
  t.ok(time < 60_000, `${time} ms, without the looks of this test`);
  await looksRight(t, page, 'claim-value');
  // Of each category the newest is shown, once: none of another year, and none of before.
  const at = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();
  const rows = [`${at(400)},temperature,99,`, `${at(-1)},temperature,88,`, ',temperature,22.5,', ',humidity,40,'];
  await publish(unit, rows.join('\n'));
  await values.getByText('40', { exact: true }).waitFor();
  t.strictSame(await values.locator('dd b').allTextContents(), ['22.5', '40']);
  t.ok(await place(unit.device.id));
  await mailbox.nextTokenTo('ada@example.com');

  // A second device: by typing, with the login that there is, and once the address is confirmed.
  const second = await labelled();
  await page.getByRole('button', { name: 'Claim another', exact: true }).click();
  await page.getByLabel('Code on the label').fill(second.code.toLowerCase());
  await page.getByRole('button', { name: 'Continue', exact: true }).click();
  await page.getByText(second.device.serialNumber).waitFor();
  await page.getByRole('button', { name: 'Claim this Thermometer', exact: true }).click();
  await page.getByText('Confirm your email address before').waitFor();
  await looksRight(t, page, 'claim-unconfirmed');
  const before = mailbox.to('ada@example.com').length;
  await page.getByRole('button', { name: 'Send the email again', exact: true }).click();
  await until(
    () => mailbox.to('ada@example.com').length,
    (now) => now > before,
  );
  const body = { token: mailbox.tokenTo('ada@example.com') };
  await service.ok('POST', '/api/v1/auth/confirm-email', { token: null, body });
  await page.getByRole('button', { name: 'Claim this Thermometer', exact: true }).click();
  await page.getByText('This device is yours now.').waitFor();
  await page.getByRole('link', { name: 'Open the device', exact: true }).click();
  await page.getByRole('heading', { name: second.device.serialNumber, level: 1 }).waitFor();
  await page.goto('/console/my');
  await page.getByRole('link', { name: 'Claim a device', exact: true }).click();
  await page.getByRole('heading', { name: 'Claim a device', exact: true }).waitFor();
  t.strictSame([errors, foreign], [[], []]);
});

t.test('who has a login signs in, and chooses among several organizations', async (t) => {
  const top = await service.organization({ name: 'House' });
  const below = await service.organization({ name: 'Cellar', parentId: top.id });
  const { email, password } = await service.endUser(top.id);
  const unit = await labelled();
  await publish(unit, '{"state":"on"}');
  const { page, errors } = await openPage(t, browser, service);
  await page.goto(unit.link);
  await page.getByRole('button', { name: 'I have a login already', exact: true }).click();
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password', { exact: true }).fill('a wrong password');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByLabel('Organization').selectOption({ label: 'Cellar' });
  await page.getByRole('button', { name: 'Claim this Thermometer', exact: true }).click();
  await page.getByText('This device is yours now.').waitFor();
  t.equal(await place(unit.device.id), below.id);
  await page.getByText('on', { exact: true }).waitFor();
  t.strictSame(errors, []);
});

t.test('who signs in with an identity provider comes back to the device', async (t) => {
  const provider = await startProvider(t, service);
  const redirectUris = [`${service.server.url}/console/`];
  const { id } = await register(service, provider, { name: 'Company', redirectUris });
  t.teardown(() => service.http('DELETE', `/api/v1/identity-providers/${id}`));
  const { id: organizationId } = await service.organization();
  const { email } = await service.endUser(organizationId);
  const unit = await labelled();
  const { page, errors } = await openPage(t, browser, service, { ...phone, bypassCSP: true });
  await page.goto(unit.link);
  provider.logsIn({ sub: 'unknown', email: 'nobody@example.com', email_verified: true });
  const button = page.getByRole('link', { name: 'Sign in with Company', exact: true });
  await button.waitFor();
  await looksRight(t, page, 'claim-providers');
  await button.click();
  await page.locator('.note.bad').waitFor();
  await page.getByText(unit.device.serialNumber).waitFor();
  await page.context().clearCookies();
  provider.logsIn({ sub: 'somebody', email, email_verified: true });
  await button.click();
  await page.getByRole('button', { name: 'Claim this Thermometer', exact: true }).click();
  await page.getByText('This device is yours now.').waitFor();
  t.equal(await place(unit.device.id), organizationId);
  t.strictSame(errors, []);
});

t.test('a label of a device that belongs to somebody says so; its owner gives it away', async (t) => {
  const [home, away] = [await service.organization(), await service.organization()];
  const [owner, buyer] = [await service.endUser(home.id), await service.endUser(away.id)];
  const unit = await labelled({ organizationId: home.id });
  const { page, errors } = await openPage(t, browser, service, { ...phone, bypassCSP: true });
  const taken = page.getByText('It belongs to somebody. Ask them to give it away.');
  await page.goto(unit.link);
  await taken.waitFor();
  t.equal(await page.getByText('Only people who have a login').count(), 0);
  t.equal(await page.getByLabel('Email address').count(), 0);
  await looksRight(t, page, 'claim-taken');
  await page.getByRole('button', { name: 'It is mine: sign in', exact: true }).click();
  await page.getByLabel('Email address').fill(buyer.email);
  await page.getByLabel('Password', { exact: true }).fill(buyer.password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('button', { name: 'Claim this Thermometer', exact: true }).click();
  await page.getByRole('alert').getByText('It belongs to somebody. Ask them to give it away.').waitFor();
  const body = { deviceId: unit.device.id };
  const { claimUrl } = await service.ok('POST', '/api/v1/association/give-away', { body, token: owner.token });
  const { pathname, search } = new URL(claimUrl);
  await page.goto(pathname + search);
  await page.getByRole('button', { name: 'Claim this Thermometer', exact: true }).click();
  await page.getByText('This device is yours now.').waitFor();
  t.equal(await taken.count(), 0);
  t.equal(await place(unit.device.id), away.id);
  t.strictSame(
    errors.filter((error) => !error.includes('422')),
    [],
  );
});

t.test('the camera reads the code of a label, also where the browser reads none by itself', async (t) => {
  const unit = await labelled();
  const { page, errors } = await openPage(t, browser, service, phone);
  const claimUrl = `${service.server.url}${unit.link}`;
  const { serialNumber } = unit.device;
  const label = labelPng({ claimUrl, serialNumber, deviceId: unit.device.id, associationCode: '' });
  const picture = `data:image/png;base64,${label.toString('base64')}`;
  // Stands for the camera: a label that it sees after a while.
  await page.addInitScript(`
    Object.defineProperty(navigator.mediaDevices, 'getUserMedia', { value: async () => {
      const canvas = document.createElement('canvas');
      canvas.width = 640;
      canvas.height = 480;
      const drawing = canvas.getContext('2d');
      const label = new Image();
      label.src = ${JSON.stringify(picture)};
      setInterval(() => {
        drawing.fillStyle = '#ddd';
        drawing.fillRect(0, 0, 640, 480);
        drawing.drawImage(label, 80, 20, 440, 440);
      }, 50);
      return canvas.captureStream(20);
    } });`);
  await page.goto('/claim');
  await page.getByRole('button', { name: 'Scan the QR code', exact: true }).click();
  await page.getByText(unit.device.serialNumber).waitFor();
  t.strictSame(errors, []);
});

t.test('a wrong code is said, and an account that lets nobody sign up asks for a login', async (t) => {
  const { page } = await openPage(t, browser, service, { ...phone, bypassCSP: true });
  await page.goto(`/claim?code=AAAA-AAAA-AAAA&account=${service.accountId}`);
  await page.getByText('is mistyped').waitFor();
  await looksRight(t, page, 'claim-wrong-code');
  await service.ok('PUT', '/api/v1/account/claiming', { body: { signUp: false } });
  const unit = await labelled();
  await page.getByLabel('Code on the label').fill(unit.code);
  await page.getByRole('button', { name: 'Continue', exact: true }).click();
  await page.getByText('Only people who have a login').waitFor();
  t.equal(await page.getByRole('button', { name: 'I am new here', exact: true }).count(), 0);
  await service.ok('PUT', '/api/v1/account/claiming', { body: { signUp: true } });
});

t.test('an admin gives the claim page a name, a colour and a logo, and switches signing up off', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'account/branding');
  await page.getByLabel('Name').fill('Harbour');
  await page.getByLabel('Colour').fill('#aa3300');
  await page.getByLabel('Logo').setInputFiles({
    ...{ name: 'logo.svg', mimeType: 'image/svg+xml' },
    buffer: Buffer.from(
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><script>1</script><path d="M0 0h8v8z"/></svg>',
    ),
  });
  await page.getByRole('img', { name: 'Harbour' }).waitFor();
  if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/branding.png`, fullPage: true });
  await page.getByRole('button', { name: 'Save', exact: true }).first().click();
  await page.getByText('Saved.').waitFor();
  const { branding } = await service.ok('GET', `/api/v1/account/branding?accountId=${service.accountId}`);
  t.match(branding, { name: 'Harbour', color: '#aa3300' });
  t.notMatch(Buffer.from(String(branding.logo).replace(/^.*,/, ''), 'base64').toString(), 'script');
  await page.getByLabel('People may create a login').uncheck();
  await page.getByRole('button', { name: 'Save' }).last().click();
  // The notice of the first may still be there, or be gone.
  const claiming = async () => (await service.ok('GET', '/api/v1/account/claiming')).claiming;
  t.strictSame(await until(claiming, ({ signUp }) => !signUp), { signUp: false, customersMayRemove: true });
  await service.ok('PUT', '/api/v1/account/claiming', { body: { signUp: true } });
  t.strictSame(errors, []);
});

t.test('"Make a code" says that the printed label ends; a serial number that exists is said before', async (t) => {
  const unit = await labelled();
  const { page } = await openAs(t, browser, service, `devices/${unit.device.id}/access`);
  await page.getByRole('button', { name: 'Make a code', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('printed before ends at once').waitFor();
  await dialog.getByRole('button', { name: 'Make a code', exact: true }).click();
  await page.getByText(/^[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}$/).waitFor();
  await page.goto('/console/devices');
  await settled(page);
  await page.getByRole('button', { name: 'New device', exact: true }).click();
  await dialog.getByLabel('Serial number').fill(unit.device.serialNumber);
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await dialog.getByText(`There is a device with the serial number ${unit.device.serialNumber} already.`).waitFor();
  const count = async () =>
    (
      await service.ok(
        'GET',
        `/api/v1/devices?accountId=${service.accountId}&serialNumber=${encodeURIComponent(unit.device.serialNumber)}`,
      )
    ).devices.meta?.count;
  t.equal(await count(), 1);
  await dialog.getByRole('button', { name: 'Make another one', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  t.equal(await count(), 2);
});

t.test('a station in the browser: make, print, flash, verify, and go on after a reload', async (t) => {
  const station = await service.create('/applications', 'application', {
    ...{ name: 'Line 1', kind: 'station', deviceTemplateId, maxDevices: 2, expiresAt: '2999-01-01T00:00:00Z' },
  });
  const { page, errors, foreign } = await openPage(t, browser, service, { bypassCSP: true });
  await page.goto('/console/');
  await page.getByRole('link', { name: 'Sign in as a station', exact: true }).click();
  await page.getByLabel('Station id').fill(station.id);
  await page.getByLabel('Token of the station').fill('wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  const lines = [
    'SLIPWAY_ACCOUNT_ID',
    service.accountId,
    'SLIPWAY_APP_ID',
    station.id,
    'SLIPWAY_TOKEN',
    station.appToken,
  ];
  const pasted = [0, 2, 4].map((at) => `export ${lines[at]}=${lines[at + 1]}`).join('');
  await page.getByLabel('Token of the station').fill(pasted);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Thermometer', exact: true }).waitFor();
  await page.getByText('0 of 2 made').waitFor();
  await looksRight(t, page, 'station-empty');

  // A scanner types into the field that has the focus.
  await page.keyboard.type('TH-0001');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'TH-0001', exact: true }).waitFor();
  await page.getByText('1 of 2 made').waitFor();
  await page.getByRole('img', { name: 'Label of TH-0001' }).waitFor();
  await page.evaluate('print = () => { printed = true }');
  await page.getByRole('button', { name: 'Print the label', exact: true }).click();
  t.ok(await page.evaluate('printed'));
  await page.getByLabel('Format').selectOption('json');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download TH-0001.json', exact: true }).click(),
  ]);
  const file = JSON.parse(readFileSync(await download.path(), 'utf8'));
  t.match(file, { serialNumber: 'TH-0001', username: String, password: String });
  await looksRight(t, page, 'station-unit');
  await page.reload();
  await page.getByRole('heading', { name: 'TH-0001', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Download TH-0001.json', exact: true }).waitFor();

  const client = await service.connect({ deviceId: file.username, secret: file.password });
  await client.publishAsync(file.topics.readings, ',temperature,20,', { qos: 1 });
  await page.getByRole('button', { name: 'Verify the unit', exact: true }).click();
  await page.getByText('PASS', { exact: true }).waitFor();
  await looksRight(t, page, 'station-pass');
  await page.setViewportSize(phone.viewport);
  await looksRight(t, page, 'station-pass-phone');
  await page.setViewportSize({ width: 1280, height: 860 });
  const field = page.getByLabel('Serial number');
  await page.getByRole('button', { name: 'Next unit', exact: true }).waitFor();
  const focused = await page.evaluate(`
    [...document.querySelectorAll('button')].find(({ textContent }) => textContent === 'Next unit').click();
    Promise.resolve().then(() => document.activeElement.name)`);
  t.equal(focused, 'serialNumber', 'the next key goes there, before a frame is drawn');
  await page.getByRole('listitem').filter({ hasText: 'TH-0001' }).getByText('PASS').waitFor();

  // The same serial number comes up again, one of somebody else is refused, and the count has an end.
  await field.fill('TH-0001');
  await field.press('Enter');
  await page.getByRole('heading', { name: 'TH-0001', exact: true }).waitFor();
  t.equal(
    (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=TH-0001`)).devices.meta
      ?.count,
    1,
  );
  await page.getByRole('button', { name: 'Next unit', exact: true }).click();
  await service.device({ serialNumber: 'TH-0777', deviceTemplateId });
  await field.fill('TH-0777');
  await field.press('Enter');
  await page.getByText('TH-0777 exists already').waitFor();
  await field.fill('TH-0002');
  await field.press('Enter');
  await page.getByText('2 of 2 made').waitFor();
  await page.getByRole('button', { name: 'Next unit', exact: true }).click();
  await page.getByText('This station has made all devices').waitFor();
  const applications = await page.request.get(`/api/v1/applications?accountId=${service.accountId}`);
  t.equal(applications.status(), 403, 'it has no other right');
  await page.goto('/console/devices');
  await page.getByRole('heading', { name: 'Thermometer', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Sign out', exact: true }).click();
  await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
  t.strictSame([errors, foreign], [[], []]);
});

t.test('a unit that does not connect fails, with the reason', async (t) => {
  const station = await service.create('/applications', 'application', {
    ...{ name: 'Line 2', kind: 'station', deviceTemplateId, maxDevices: 2, expiresAt: '2999-01-01T00:00:00Z' },
  });
  const { page } = await openPage(t, browser, service, { ...phone, bypassCSP: true });
  await page.route('**/provisioning/verify', (route) => {
    const body = JSON.parse(route.request().postData() ?? '{}');
    return route.continue({ postData: JSON.stringify({ ...body, timeoutSeconds: 0 }) });
  });
  await page.goto(`/console/station?account=${service.accountId}&app=${station.id}`);
  await page.getByLabel('Token of the station').fill(station.appToken);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByLabel('Serial number').fill('TH-1001');
  await page.getByRole('button', { name: 'Make the unit', exact: true }).click();
  await page.getByRole('button', { name: 'Verify the unit', exact: true }).click();
  await page.getByText('FAIL', { exact: true }).waitFor();
  await page.getByText('It has not connected.').waitFor();
  await looksRight(t, page, 'station-fail-phone');
});

t.test('a link with the answer of a provider is not believed by a tab that has gone to none', async (t) => {
  for (const place of ['/console/', '/claim']) {
    const window = await newWindow(browser);
    t.teardown(() => window.close());
    const page = await window.newPage();
    await page.goto(`${service.server.url}${place}#error=1&message=Call+us&csrfToken=x&mfaToken=y`);
    await page.locator('h1').first().waitFor();
    t.notOk((await page.content()).includes('Call us'), place);
    t.notOk(page.url().includes('#'), place);
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
    t.notOk(kept.includes('"x"'), place);
  }
});

t.end();
