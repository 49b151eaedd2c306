/** My devices: what customers see of their devices and do with them, in a browser. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import type { Test } from 'tap';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { countLoaded, holdRequest, openPage, settled, signIn, titled } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path d="M12 2l10 9H2z"/></svg>';
const logo = `data:image/svg+xml;base64,${Buffer.from(svg).toString('base64')}`;
const mailbox = new Mailbox();
let service: Service;
let browser: Browser;
let deviceTemplateId: string;
t.before(async () => {
  service = await startService(t, { mail: mailbox });
  browser = await openBrowser();
  const categories = [
    { name: 'temperature', label: 'Air', unit: '°C', kind: 'number' },
    { name: 'humidity', label: 'Humidity', unit: '%', kind: 'number' },
  ];
  const channel = { name: 'readings', persistenceType: 'timeSeries', categories };
  deviceTemplateId = (await service.template({ name: 'Thermometer', channels: [channel] })).id;
  await changeProduct({
    primary: { channel: 'readings', category: 'temperature' },
    commands: [
      { name: 'identify', title: 'Blink', forCustomers: true },
      { name: 'reset', title: 'Start afresh', forCustomers: true, confirm: true },
      {
        name: 'interval',
        title: 'Measure every …',
        forCustomers: true,
        parameters: {
          type: 'object',
          properties: { seconds: { type: 'integer', title: 'Seconds', minimum: 5, maximum: 3600, default: 60 } },
          required: ['seconds'],
        },
      },
      { name: 'factory-test', title: 'Factory test' },
    ],
  });
  await service.ok('PUT', '/api/v1/account/branding', { body: { name: 'Hearth', color: '#0a7d55', logo } });
});

async function changeProduct(body: object): Promise<void> {
  const { deviceTemplate } = await service.ok('GET', `/api/v1/devices/templates/${deviceTemplateId}`);
  const headers = { etag: deviceTemplate.version };
  await service.ok('PUT', `/api/v1/devices/templates/${deviceTemplateId}`, { headers, body });
}

/** A household with devices, and somebody of it. */
async function household(count = 1, roleId = 'organization:manager') {
  const organization = await service.organization({ name: service.unique('Home') });
  const person = await service.endUser(organization.id, { roleId });
  const devices: Awaited<ReturnType<Service['device']>>[] = [];
  for (let n = 0; n < count; n += 1)
    devices.push(
      await service.device({
        serialNumber: `${organization.name.replace(' ', '')}-${String(n).padStart(3, '0')}`,
        organizationId: organization.id,
        deviceTemplateId,
      }),
    );
  const [first] = devices;
  if (!first) throw new Error('no device');
  return {
    organization,
    person,
    devices,
    id: first.device.id,
    serial: first.device.serialNumber,
    secret: first.secret,
  };
}
type Household = Awaited<ReturnType<typeof household>>;

async function publish({ id, secret }: Household, payload: string): Promise<void> {
  const client = await service.connect({ deviceId: id, secret });
  await client.publishAsync(service.topic(id, 'readings'), payload, { qos: 1 });
}

/** A page of My devices of somebody who has signed in by the API. */
async function open(
  t: Test,
  { email, password }: { email: string; password: string },
  at = '',
  options: BrowserContextOptions = {},
) {
  const watched = await openPage(t, browser, service, { bypassCSP: true, ...options });
  const { page } = watched;
  const data = { emailAddress: email, password, accountId: service.accountId };
  const { csrfToken } = await (await page.context().request.post('/api/v1/auth/login-user', { data })).json();
  await page.addInitScript(`localStorage['slipway-csrf'] ??= ${JSON.stringify(csrfToken)}`);
  await page.goto(`/console/my${at}`);
  await page.locator('h1').waitFor();
  return watched;
}

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const deviceOf = async (id: string) => (await service.ok('GET', `/api/v1/devices/${id}`)).device;

/** Nothing serious for axe-core in either scheme, and no wider than the window. */
async function looksRight(t: Test, page: Page, name: string): Promise<void> {
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
}

/** Waits until the logo of the company is drawn there. */
async function logoIn(page: Page, where: string): Promise<void> {
  await page.locator(where).getByRole('img', { name: 'Hearth', exact: true }).waitFor();
  await until(() =>
    page.evaluate(`(({ complete, naturalWidth, clientHeight }) => complete && naturalWidth > 0 && clientHeight > 0)(
      document.querySelector('${where} img[alt=Hearth]'))`),
  );
}

t.test('a customer signs in, and is at its own devices, under the name and logo of the company', async (t) => {
  const { person, serial } = await household();
  const { page, errors, foreign } = await openPage(t, browser, service);
  await signIn(page, person.email, person.password);
  await page.getByRole('heading', { name: 'My devices', level: 1 }).waitFor();
  t.equal(new URL(page.url()).pathname, '/console/my');
  await page.getByRole('link', { name: serial }).waitFor();
  await titled(page, 'My devices · Hearth');
  await page.locator('header').getByText('Hearth', { exact: true }).waitFor();
  await logoIn(page, 'header');
  await press(page, 'Sign out');
  await page.getByText('Sign in to see your devices.').waitFor();
  await page.locator('.brandmark').getByText('Hearth').waitFor();
  await logoIn(page, '.brandmark');
  // Colours change over a moment.
  await until(
    () => page.evaluate('getComputedStyle(document.querySelector("button.primary")).backgroundColor'),
    (colour) => colour === 'rgb(10, 125, 85)',
  );
  t.strictSame([errors, foreign], [[], []]);
});

t.test('a card says the value that matters, and its device has no word of the API until Details', async (t) => {
  const home = await household(2);
  await publish(home, ',temperature,21.5,\n,humidity,40,');
  const { page, errors } = await open(t, home.person);
  const card = page.getByRole('listitem').filter({ hasText: home.serial });
  await card.getByText('21.5').waitFor();
  await card.getByText('°C').waitFor();
  t.match(await card.textContent(), /Thermometer.*21\.5 °C.*Air/);
  t.equal(await card.locator('.figure').textContent(), '21.5 °C', 'only the value that matters');
  t.notMatch(await card.textContent(), 'Humidity');
  await page.getByText('No value yet').waitFor();
  await looksRight(t, page, 'my');
  const stream = await holdRequest(page, '**/api/v1/stream?*');
  await card.getByRole('link').click();
  await page.getByRole('heading', { name: home.serial, level: 1 }).waitFor();
  const values = page.getByRole('region', { name: 'Latest values' });
  await values.getByText('40', { exact: true }).waitFor();
  // What is stored has been read, and the stream is not open yet.
  await publish(home, ',temperature,22.75,');
  await (await stream.asked).continue();
  await values.getByText('22.75').waitFor();
  await looksRight(t, page, 'my-device');
  const said = String(await page.locator('main').textContent());
  t.notMatch(said, /topic|channel|refus|Show the call|CSV|secret|MQTT|associated|activated|slipway\//i);
  // What it says comes by itself.
  await publish(home, ',temperature,23.25,');
  await page.getByText('23.25').waitFor();
  await page.getByRole('link', { name: 'Details', exact: true }).click();
  await page.getByRole('button', { name: 'Show the call', exact: true }).waitFor();
  t.equal(new URL(page.url()).pathname, `/console/devices/${home.id}`);
  // What would break the device is not offered there, unless somebody asks to set it up again.
  await page.goto(`/console/devices/${home.id}/access`);
  await settled(page);
  t.equal(await page.getByRole('button', { name: 'Make a new secret', exact: true }).count(), 0);
  await page.getByText('Set this device up again').click();
  await press(page, 'Make a new secret');
  await page.getByRole('dialog').getByText('It must be set up again').waitFor();
  t.strictSame(errors, []);
});

t.test(
  'who may manage finds Organizations and People, and comes back; who may only look is offered nothing else',
  async (t) => {
    const home = await household();
    const { page } = await open(t, home.person);
    await page.getByRole('link', { name: 'Organizations', exact: true }).click();
    await page.getByRole('heading', { name: 'Organizations', level: 1 }).waitFor();
    await page.getByRole('link', { name: 'People', exact: true }).click();
    await page.getByRole('heading', { name: 'People', level: 1 }).waitFor();
    await page.locator('.side').getByText('Hearth').waitFor();
    await logoIn(page, '.side');
    await page.getByRole('link', { name: 'My devices', exact: true }).click();
    await page.getByRole('link', { name: home.serial }).waitFor();
    const viewer = await service.endUser(home.organization.id, { roleId: 'organization:viewer' });
    const other = (await open(t, viewer, `/${home.id}`)).page;
    await other.getByRole('heading', { name: home.serial, level: 1 }).waitFor();
    await settled(other);
    t.strictSame(await other.locator('main button').allTextContents(), ['Support']);
    t.equal(await other.getByRole('link', { name: 'People', exact: true }).count(), 0);
  },
);

t.test('a customer names a device, and asks the maker for support', async (t) => {
  const home = await household();
  const { page, errors } = await open(t, home.person, `/${home.id}`);
  await press(page, 'Rename');
  await page.getByRole('dialog').getByLabel('Name').fill('Bedroom');
  await press(page, 'Save');
  await page.getByRole('heading', { name: 'Bedroom', level: 1 }).waitFor();
  t.match(await deviceOf(home.id), { name: 'Bedroom', serialNumber: home.serial });
  await press(page, 'Support');
  await page.getByLabel('What is wrong?').fill('It shows 99 °C.');
  await press(page, 'Send to the maker');
  await page.getByText('The maker has your message.').waitFor();
  const { supportRequests } = await service.ok('GET', `/api/v1/devices/${home.id}/support`);
  t.match(supportRequests.results, [{ message: 'It shows 99 °C.' }]);
  t.strictSame(errors, []);
});

t.test('a customer shares with others by their address, sees who has access, and takes it back', async (t) => {
  const home = await household();
  const { page, errors } = await open(t, home.person, `/${home.id}`);
  await press(page, 'Share');
  const dialog = page.getByRole('dialog');
  await dialog.getByText(`see all devices of ${home.organization.name}`).waitFor();
  await dialog.getByText(home.person.email).waitFor();
  for (const roleId of ['organization:viewer', 'organization:operator']) {
    const email = `${roleId.replace(':', '-')}@example.com`;
    await dialog.getByLabel('Email address').fill(email);
    await dialog.getByLabel('Role').selectOption(roleId);
    await dialog.getByRole('button', { name: 'Share', exact: true }).click();
    await dialog.getByRole('listitem').filter({ hasText: email }).waitFor();
    const { endUsers } = await service.ok(
      'GET',
      `/api/v1/end-users?accountId=${service.accountId}&organizationId=${home.organization.id}`,
    );
    t.ok(
      endUsers.results.some((one) => one.roleId === roleId),
      roleId,
    );
    t.equal(mailbox.to(email).length, 1, 'an invitation');
  }
  t.notMatch(await dialog.textContent(), /template/i);
  await dialog
    .getByText('Operator: sees values, controls devices, may give them away and remove them')
    .first()
    .waitFor({ state: 'attached' });
  const neighbour = await household();
  for (const { email } of [neighbour.person, home.person]) {
    await dialog.getByLabel('Email address').fill(email);
    await dialog.getByRole('button', { name: 'Share', exact: true }).click();
    await dialog.getByText(`${email} has a login already. Ask the maker to give it access`).waitFor();
  }
  await dialog.getByLabel('Email address').fill('');
  await looksRight(t, page, 'my-share');
  await dialog.getByRole('button', { name: 'Stop sharing organization-viewer@example.com', exact: true }).click();
  await dialog.getByRole('listitem').filter({ hasText: 'organization-viewer' }).waitFor({ state: 'detached' });
  const { endUsers } = await service.ok(
    'GET',
    `/api/v1/end-users?accountId=${service.accountId}&organizationId=${home.organization.id}`,
  );
  t.strictSame(
    endUsers.results.map(({ roleId }) => roleId).filter((roleId) => roleId !== 'organization:manager'),
    ['organization:operator'],
  );
  t.strictSame(errors, []);
});

t.test('a code gives the device to somebody else once it is used, and may be withdrawn until then', async (t) => {
  const [home, next] = [await household(), await household()];
  const { page, errors } = await open(t, home.person, `/${home.id}`);
  const code = page.getByRole('region', { name: 'Code' }).locator('pre');
  await press(page, 'Give away');
  await press(page, 'Make a code');
  const first = String(await code.textContent());
  t.match(first, /^\w{4}-\w{4}-\w{4}$/);
  await page.getByRole('img', { name: 'QR code of the link' }).waitFor();
  await looksRight(t, page, 'my-give-away');
  const look = (associationCode: string) =>
    service.http('POST', '/api/v1/association/look-up-code', {
      token: null,
      body: { accountId: service.accountId, associationCode },
    });
  t.equal((await look(first)).status, 200);
  await press(page, 'Withdraw the code');
  await page.getByText('The code does not work any more.').waitFor();
  t.equal((await look(first)).status, 404);
  await press(page, 'Make a code');
  const second = String(await code.textContent());
  await press(page, 'Close');
  await press(page, 'Give away');
  await page.getByText('A code that you made works until').waitFor();
  t.equal((await deviceOf(home.id)).organizationId, home.organization.id, 'nothing has changed');
  const link = `/claim?code=${second}&account=${service.accountId}`;
  const other = (await open(t, next.person)).page;
  await other.goto(link);
  await press(other, 'Claim this Thermometer');
  await other.getByText('This device is yours now.').waitFor();
  await other.getByRole('link', { name: 'Open the device', exact: true }).click();
  await other.getByRole('heading', { name: home.serial, level: 1 }).waitFor();
  t.equal(new URL(other.url()).pathname, `/console/my/${home.id}`);
  t.equal((await deviceOf(home.id)).organizationId, next.organization.id);
  t.strictSame(errors, []);
});

t.test('a customer removes a device, unless the account does not allow it', async (t) => {
  const home = await household(2);
  const claiming = (customersMayRemove: boolean) =>
    service.ok('PUT', '/api/v1/account/claiming', { body: { customersMayRemove } });
  const { page } = await open(t, home.person, `/${home.id}`);
  await claiming(false);
  await press(page, 'Remove');
  await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
  await page.getByRole('dialog').getByText('You can give this one away.').waitFor();
  t.equal((await deviceOf(home.id)).organizationId, home.organization.id);
  await claiming(true);
  await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
  await page.getByRole('heading', { name: 'My devices', level: 1 }).waitFor();
  await page.getByText(`${home.serial} is not among your devices any more.`).waitFor();
  t.equal((await deviceOf(home.id)).organizationId, null);
  t.equal(await page.getByRole('link', { name: home.serial }).count(), 0);
});

t.test(
  'the commands of a product that are for customers are buttons, with a question or a form where they want one',
  async (t) => {
    const home = await household();
    const { page, errors } = await open(t, home.person, `/${home.id}`);
    const sent = async () => {
      const { commands } = await service.ok('GET', `/api/v1/devices/${home.id}/commands`);
      return commands.results.map(({ name, payload }) => [name, payload]).reverse();
    };
    await press(page, 'Blink');
    await page.getByText('It is on its way to the device.').waitFor();
    await press(page, 'Start afresh');
    t.strictSame(await sent(), [['identify', null]], 'it asks first');
    await page.getByRole('dialog').getByRole('button', { name: 'Start afresh', exact: true }).click();
    await until(sent, (all) => all.length === 2);
    await press(page, 'Measure every …');
    t.equal(await page.getByLabel('Seconds').inputValue(), '60');
    await page.getByLabel('Seconds').fill('30');
    await looksRight(t, page, 'my-command');
    await press(page, 'Send');
    await until(sent, (all) => all.length === 3);
    t.strictSame((await sent()).at(-1), ['interval', { seconds: 30 }]);
    t.equal(await page.getByRole('button', { name: 'Factory test', exact: true }).count(), 0);
    t.strictSame(errors, []);
  },
);

t.test('somebody who scans the label of a device that belongs to somebody is told whom to ask', async (t) => {
  const home = await household();
  const body = { deviceId: home.id };
  const { associationCode: code } = await service.ok('POST', '/api/v1/association/create-association-code', { body });
  const link = `/claim?code=${code}&account=${service.accountId}`;
  const { page } = await openPage(t, browser, service);
  await page.goto(link);
  await page.getByText('It belongs to somebody. Ask them to give it away.').waitFor();
  t.equal(await page.getByText('Only people who have a login').count(), 0);
  const stranger = (await open(t, (await household()).person)).page;
  await stranger.goto(link);
  await press(stranger, 'Claim this Thermometer');
  await stranger.getByRole('alert').getByText('It belongs to somebody. Ask them to give it away.').waitFor();
});

t.test('My devices speaks the language of the browser, numbers and dates too', async (t) => {
  const home = await household();
  await publish(home, ',temperature,1234.5,');
  const { page, errors } = await open(t, home.person, '', { locale: 'de-DE', viewport: { width: 360, height: 740 } });
  await page.getByRole('heading', { name: 'Meine Geräte', level: 1 }).waitFor();
  t.equal(await page.locator('html').getAttribute('lang'), 'de');
  await page.getByText('1.234,5').waitFor();
  await page.getByText(/^vor \d+ (Sekunde|Minute)n?$|gerade eben/).waitFor();
  await looksRight(t, page, 'my-phone');
  await page.getByRole('link', { name: home.serial }).click();
  await page.getByRole('heading', { name: home.serial, level: 1 }).waitFor();
  await settled(page);
  await looksRight(t, page, 'my-device-phone');
  for (const name of ['Teilen', 'Weitergeben', 'Umbenennen', 'Hilfe anfordern', 'Entfernen'])
    t.equal(await page.getByRole('button', { name, exact: true }).count(), 1, name);
  // What the API refuses is said in the language, too.
  await page.route('**/api/v1/association/give-away', (route) =>
    route.fulfill({ status: 429, json: { error: { code: -199, message: 'Too many requests.', details: [] } } }),
  );
  await press(page, 'Weitergeben');
  await press(page, 'Code erstellen');
  await page.getByText('Zu viele Versuche.').waitFor();
  t.strictSame(errors, []);
});

t.test('with 200 devices the first view loads at most 60 KB, and shows the rest on request', async (t) => {
  const home = await household(200);
  for (const { device, secret } of home.devices.slice(0, 5))
    await publish({ ...home, id: device.id, secret }, ',temperature,20,');
  const first = await open(t, home.person);
  const storageState = await first.page.context().storageState();
  const { page } = await openPage(t, browser, service, { storageState });
  const loaded = await countLoaded(page);
  const since = Date.now();
  await page.goto('/console/my');
  await page.getByText('20 °C').first().waitFor();
  const time = Date.now() - since;
  await page.waitForLoadState('networkidle');
  const bytes = loaded();
  t.comment(`${Math.round(bytes / 1024)} KB, ${time} ms`);
  t.ok(bytes > 20 * 1024 && bytes <= 60 * 1024, `${Math.round(bytes / 1024)} KB`);
  await press(page, 'Show more');
  await until(
    () => page.locator('.value').count(),
    (count) => count === 200,
  );
  await page.getByLabel('Find a device').fill(String(home.devices[150]?.device.serialNumber));
  await until(
    () => page.locator('.value').count(),
    (count) => count === 1,
  );
});

t.end();
