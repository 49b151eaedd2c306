import mqtt from 'mqtt';
import type { Browser, Page } from 'playwright-core';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { patience } from '../support/until.ts';
import { holdRequest, openAs, openPage, signIn } from './browser.ts';
import { makeDevices, makeOrganizations } from './many.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

/** Makes a device of a new product on the page, and reads in its lines as whom it publishes, and where. */
async function makeFirst(page: Page, product: string, serialNumber: string) {
  await page.getByLabel('Name of the product').fill(product);
  await page.getByLabel('Serial number').fill(serialNumber);
  await page.getByRole('button', { name: 'Make the device', exact: true }).click();
  const lines = (await page.getByRole('region', { name: 'Run these lines' }).locator('pre').textContent()) ?? '';
  const [, username = '', password = '', topic = ''] = /-u (\S+) -P (\S+) -q 1 -t (\S+)/.exec(lines) ?? [];
  return { username, password, topic };
}

t.test('a new account makes its first device, and the page hears the first message', async (t) => {
  const { page, errors, foreign } = await openPage(t, browser, service);
  await signIn(page);
  await page.getByRole('heading', { name: 'First device', level: 1 }).waitFor();
  const { username, password, topic } = await makeFirst(page, 'Thermometer', 'SN-FIRST');
  const secret = (await page.getByRole('region', { name: 'Secret' }).locator('pre').textContent())?.trim() ?? '';
  await page.getByText('Waiting for the first message').waitFor();
  t.equal(password, secret, 'the lines hold the secret');

  const wrong = mqtt.connect(`mqtt://127.0.0.1:${service.server.mqttPort}`, {
    username,
    password: 'wrong',
    reconnectPeriod: 0,
  });
  wrong.on('error', () => {});
  await page.getByText('Something was refused:').waitFor();
  wrong.end(true);

  const device = await service.connect({ deviceId: username, secret });
  await device.publishAsync(topic, ',temperature,21.5,', { qos: 1 });
  await page.getByText('The first message has arrived.').waitFor();
  t.match(await page.locator('[aria-current=step]').allTextContents(), ['3. See its first message']);
  await page.getByRole('link', { name: 'Open the device', exact: true }).click();
  await page.getByRole('heading', { name: 'SN-FIRST', level: 1 }).waitFor();
  t.strictSame([errors, foreign], [[], []], 'no error, and no request to another host');
});

t.test('a message that was published before the page of the first device listened is shown', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'first-device');
  const stream = await holdRequest(page, '**/api/v1/stream?*');
  const { username, password, topic } = await makeFirst(page, 'Barometer', 'SN-EARLY');
  const route = await stream.asked;
  await page.getByText('Connecting', { exact: true }).waitFor();
  const device = await service.connect({ deviceId: username, secret: password });
  await device.publishAsync(topic, ',pressure,1013,', { qos: 1 });
  await route.continue();
  await page.getByText('The first message has arrived.').waitFor();
  await page.getByRole('region', { name: 'Message', exact: true }).getByText(',pressure,1013,').waitFor();
  t.strictSame(errors, []);
});

t.test('a wrong password is refused with the sentence of the API', async (t) => {
  const { page } = await openPage(t, browser, service);
  await page.goto('/console/');
  await page.getByLabel('Email address').fill('admin@example.com');
  await page.getByLabel('Password', { exact: true }).fill('not the password');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  t.match(await page.getByRole('alert').textContent(), /Request id/);
});

t.test('a device that somebody else has changed shows both versions', async (t) => {
  const { device } = await service.device({ serialNumber: 'SN-CONFLICT' });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/fields`);
  const field = page.getByLabel('Firmware version');
  await field.fill('mine');
  const { device: now } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  await service.ok('PUT', `/api/v1/devices/${device.id}`, {
    body: { firmwareVersion: 'theirs' },
    headers: { etag: now.version },
  });
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: 'Somebody else changed this device', exact: true });
  await dialog.getByRole('cell', { name: 'theirs' }).waitFor();
  await dialog.getByRole('button', { name: 'Save mine', exact: true }).click();
  await page.getByText('Saved.').waitFor();
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.firmwareVersion, 'mine');
  t.strictSame(errors, []);
});

t.test('a deleted device is in the trash and is recovered from there', async (t) => {
  const { device } = await service.device({ serialNumber: 'SN-TRASH' });
  const { page } = await openAs(t, browser, service, `devices/${device.id}`);
  await page.getByRole('button', { name: 'More', exact: true }).click();
  await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor();
  t.equal((await service.http('GET', `/api/v1/devices/${device.id}`)).status, 410);
  await page.goto('/console/trash');
  await page
    .getByRole('row', { name: /SN-TRASH/ })
    .getByRole('button', { name: 'Recover' })
    .click();
  await page.getByText('SN-TRASH was recovered.').waitFor();
  t.equal((await service.http('GET', `/api/v1/devices/${device.id}`)).status, 200);
});

t.test('a deleted person without a name is in the trash by the email address', async (t) => {
  const { id: organizationId } = await service.organization();
  const { endUser, email } = await service.endUser(organizationId);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  const { page } = await openAs(t, browser, service, 'trash/people');
  await page
    .getByRole('row', { name: email })
    .getByRole('button', { name: `Recover ${email}`, exact: true })
    .click();
  await page.getByText(`${email} was recovered.`).waitFor();
  t.equal((await service.http('GET', `/api/v1/end-users/${endUser.id}`)).status, 200);
});

t.test('an end-user sees its own devices and no place of admins', async (t) => {
  const organization = await service.organization();
  const person = await service.endUser(organization.id);
  await service.device({ serialNumber: 'SN-OWN', organizationId: organization.id });
  await service.device({ serialNumber: 'SN-OTHER' });
  const { page, errors } = await openPage(t, browser, service);
  await signIn(page, person.email, person.password);
  await page.getByRole('heading', { name: 'My devices', level: 1 }).waitFor();
  await page.getByRole('link', { name: 'SN-OWN', exact: true }).waitFor();
  t.equal(await page.getByRole('link', { name: 'SN-OTHER', exact: true }).count(), 0);
  await page.goto('/console/devices');
  await page.getByRole('link', { name: 'SN-OWN', exact: true }).waitFor();
  t.equal(await page.getByRole('link', { name: 'SN-OTHER', exact: true }).count(), 0);
  t.strictSame(
    await page
      .getByRole('navigation', { name: 'Menu', exact: true })
      .getByRole('link')
      .allTextContents()
      .then((all) => all.map((one) => one.trim())),
    ['My devices', 'Devices', 'Fleets', 'Organizations', 'People', 'Account'],
  );
  t.equal(await page.getByRole('button', { name: 'New device', exact: true }).count(), 0);
  t.strictSame(errors, []);
});

t.test('when the session ends, the page asks for a login and goes on where one was', async (t) => {
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/organizations');
  // Nothing may be under way: its refusal would end the session before the click.
  await page.locator('.tree').waitFor();
  await page.context().clearCookies();
  await page.getByRole('link', { name: 'Products', exact: true }).click();
  await page.getByText('Your session has ended.').waitFor();
  await page.getByLabel('Email address').fill('admin@example.com');
  await page.getByLabel('Password', { exact: true }).fill('correct horse battery');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
});

t.test('after a long rest the page renews its session by itself, and what one did is done', async (t) => {
  const time = { now: Date.now() };
  const resting = await startService(t, { clock: { now: () => time.now } });
  const { page, errors } = await openPage(t, browser, resting);
  let refused = 0;
  page.on('response', (response) => {
    if (response.status() === 401) refused += 1;
  });
  const loaded = (path: string) =>
    page.waitForResponse((response) => response.ok() && new URL(response.url()).pathname === `/api/v1/${path}`);
  await Promise.all([loaded('organizations'), signIn(page, undefined, undefined, '/console/organizations')]);
  await page.getByText('There are no organizations yet.').waitFor();
  refused = 0;

  time.now += 8 * 3_600_000;
  await Promise.all([loaded('devices/templates'), page.getByRole('link', { name: 'Products', exact: true }).click()]);
  await Promise.all([loaded('organizations'), page.getByRole('link', { name: 'Organizations', exact: true }).click()]);
  await page.getByRole('button', { name: 'New organization', exact: true }).click();
  await page.getByLabel('Name', { exact: true }).fill('Made after a rest');
  await page.getByRole('option', { name: 'At the top', exact: true }).waitFor({ state: 'attached' });
  time.now += 8 * 3_600_000;
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('link', { name: 'Made after a rest', exact: true }).waitFor();
  t.ok(refused >= 2, 'the token was refused both times');
  t.strictSame(errors, []);
});

t.test('1,200 selected by filter are moved by a job, after a dry run that says how many', async (t) => {
  const target = await service.organization({ name: 'Target' });
  const query = `accountId=${service.accountId}`;
  await makeDevices(service, 1200, 'BULK-');
  const { page, errors } = await openAs(t, browser, service, 'devices?q=BULK-');
  await page.getByText('1,200 match the filters').waitFor();
  await page.getByRole('button', { name: 'Move to …', exact: true }).click();
  await page.getByRole('dialog').getByLabel('Organization').selectOption({ label: 'Target' });
  await page.getByRole('button', { name: 'Count first', exact: true }).click();
  await page.getByText('This concerns 1,200 devices.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Move to …', exact: true }).click();
  await page.getByText('1,200 done, 0 failed.').waitFor({ timeout: 3000 * patience });
  const { devices } = await service.ok('GET', `/api/v1/devices?${query}&organizationId=${target.id}&results=false`);
  t.equal(devices.meta.count, 1200);

  await page.goto('/console/devices?q=BULK-&size=1000');
  const first = page.getByRole('link', { name: 'BULK-0', exact: true });
  await first.focus();
  const drawn = () => page.locator('tbody tr[aria-rowindex]').count();
  t.ok((await drawn()) < 200, 'of a thousand rows those near the visible part are drawn');
  // Serial numbers are sorted as texts: the page ends in the middle of them.
  await page.keyboard.press('End');
  const last = page.locator('tbody tr[aria-rowindex="1001"]');
  await last.getByRole('link').waitFor();
  t.ok((await drawn()) < 200, 'at the end too');
  t.equal(await page.evaluate('document.activeElement.textContent'), 'BULK-0', 'the focus is not lost');
  t.strictSame(errors, []);
});

t.test('an organization is moved by dragging it onto another', async (t) => {
  const [parent, child] = [
    await service.organization({ name: 'Above' }),
    await service.organization({ name: 'Dragged' }),
  ];
  const { page } = await openAs(t, browser, service, 'organizations');
  await page.getByText('Dragged', { exact: true }).dragTo(page.getByText('Above', { exact: true }));
  await page.getByText('Dragged was moved.').waitFor();
  t.equal((await service.ok('GET', `/api/v1/organizations/${child.id}`)).organization.parentId, parent.id);
});

t.test(
  'of many organizations the tree shows the first, says how many are missing, shows more, and finds by name',
  async (t) => {
    const top = await service.organization({ name: 'Top of many' });
    const { count } = (await service.ok('GET', `/api/v1/organizations?accountId=${service.accountId}`)).organizations
      .meta;
    await makeOrganizations(service, 1010, 'Many ', top.id);
    const last = await service.organization({ name: 'Last of many', parentId: top.id });
    const { page, errors } = await openAs(t, browser, service, 'organizations');
    const leaf = (name: string) => page.locator('.tree .name').getByText(name, { exact: true });
    await leaf('Many 1').waitFor();
    t.equal(await leaf('Last of many').count(), 0);
    await page.getByText(`${count + 1011 - 1000} more organizations are not shown.`).waitFor();
    await page.getByLabel('Search').fill('st of man');
    await leaf('Last of many').waitFor();
    t.strictSame(
      await page.locator('.tree .name').allTextContents(),
      ['Top of many', 'Last of many'],
      'with those above',
    );
    t.match(page.url(), /q=st\+of\+man/);
    await page.getByLabel('Search').fill('');
    await leaf('Many 1').waitFor();
    await page.getByRole('button', { name: /^Show .* more$/ }).click();
    await leaf('Last of many').click();
    await page.getByRole('heading', { name: 'Last of many', level: 1 }).waitFor();
    t.match(page.url(), last.id);
    t.strictSame(errors, []);
  },
);

t.test('five minutes before the session ends the page says so, and a login leads back to what was typed', async (t) => {
  const { device } = await service.device({ serialNumber: 'SN-ENDING' });
  const { page } = await openPage(t, browser, service);
  const left = 14 * 24 * 60 - 4;
  await page.clock.install();
  await signIn(page, undefined, undefined, `/console/devices/${device.id}/fields`);
  await page.getByLabel('Firmware version').fill('typed');
  t.equal(await page.getByText('Your session ends').count(), 0);
  await page.clock.fastForward(left * 60_000);
  await page.getByText(/Your session ends in [34] minutes/).waitFor();
  await page.getByRole('button', { name: 'Sign in again', exact: true }).click();
  await page.getByLabel('Email address').fill('admin@example.com');
  await page.getByLabel('Password', { exact: true }).fill('correct horse battery');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  t.equal(await page.getByLabel('Firmware version').inputValue(), 'typed');
  t.match(page.url(), /fields$/);
});

t.test('"Show the call" shows what was asked, without secrets', async (t) => {
  const { page } = await openAs(t, browser, service, 'devices');
  await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor();
  await page.getByRole('button', { name: 'Show the call', exact: true }).click();
  const text = (await page.getByRole('dialog').textContent()) ?? '';
  t.match(text, /curl -sS -X GET .*\/api\/v1\/devices/);
  t.notMatch(text, /correct horse battery/);
});

t.test('a page is busy until each of its parts has something to show', async (t) => {
  const { device } = await service.device();
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/log`);
  const product = await holdRequest(page, `**/api/v1/devices/${device.id}?expand=device-template`);
  await page.getByRole('link', { name: 'Commands', exact: true }).click();
  const held = await product.asked;
  await page.locator('main[aria-busy=true]').waitFor();
  await held.continue();
  await page.locator('main[aria-busy=false]').waitFor();
  t.equal(await page.getByRole('button', { name: 'Send', exact: true }).count(), 1);
  t.same(errors, []);
});

t.test('what somebody has opened of the calls stays open while the page reads again', async (t) => {
  const { device } = await service.device();
  const { page } = await openAs(t, browser, service, `devices/${device.id}/commands`);
  await page.getByRole('button', { name: 'Show the call', exact: true }).click();
  const shown = page.getByRole('dialog').locator('details');
  await shown.nth(1).locator('summary').click();
  const said = await shown.allTextContents();
  // The page reads its commands each second.
  for (let count = 0; count < 2; count += 1) await page.waitForResponse(/\/commands\?/);
  t.strictSame(await shown.allTextContents(), said);
  t.strictSame(await page.getByRole('dialog').locator('details[open]').allTextContents(), said.slice(0, 2));
});

t.end();
