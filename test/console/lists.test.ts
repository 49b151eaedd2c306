/** Lists, in a real browser: live rows, columns of custom fields, menus of rows, cards on a phone. */
import type { Browser, Page } from 'playwright-core';
import { part } from '../support/part.ts';
import { accountUser, role } from '../support/roles.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { go, openAs, openPage, signIn } from './browser.ts';
import { makeDevices, makeOrganizations } from './many.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

const rowOf = (page: Page, name: string) => page.getByRole('row', { name: new RegExp(name) });
const top = async (page: Page, name: string) => (await rowOf(page, name).boundingBox())?.y;

t.test('a list shows who connects and what is new, and nothing moves', async (t) => {
  const { device, secret } = await service.device({ serialNumber: 'LIVE-5' });
  await service.device({ serialNumber: 'LIVE-6' });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=LIVE-');
  const before = await top(page, 'LIVE-5');
  const row = rowOf(page, 'LIVE-5');
  await row.getByText('Never').waitFor();
  const client = await service.connect({ deviceId: device.id, secret });
  await row.getByText('Online').waitFor();
  await row.getByText(/just now|seconds ago/).waitFor();
  // It belongs before the others, and comes after them.
  await service.create('/devices', 'device', { serialNumber: 'LIVE-1' });
  await rowOf(page, 'LIVE-1').getByText('New', { exact: true }).waitFor();
  t.equal(await top(page, 'LIVE-5'), before);
  t.strictSame(await page.locator('tbody a').allTextContents(), ['LIVE-5', 'LIVE-6', 'LIVE-1']);
  await client.endAsync();
  await row.getByText('Offline').waitFor();
  // In order when it is asked for anew.
  await page.reload();
  await rowOf(page, 'LIVE-6').waitFor();
  t.strictSame(await page.locator('tbody a').allTextContents(), ['LIVE-1', 'LIVE-5', 'LIVE-6']);
  t.strictSame(errors, []);
});

t.test('a link to the same list empties its search before a frame is drawn', async (t) => {
  await service.device({ serialNumber: 'FRAME-1' });
  const { page } = await openAs(t, browser, service, 'devices?q=FRAME-');
  t.equal(await page.getByLabel('Search').inputValue(), 'FRAME-');
  const shown = await page.evaluate(`(async () => {
    document.querySelector('.side nav a[href="/console/devices"]').click();
    for (let turn = 0; turn < 20; turn += 1) await null;
    return [location.search, document.querySelector('main input[type=search]').value];
  })()`);
  t.strictSame(shown, ['', '']);
});

t.test('what is searched for may have any characters, also after the page is loaded again', async (t) => {
  const { page } = await openAs(t, browser, service, 'devices');
  const serialNumber = 'a%41/b?c#d&e +f';
  await service.device({ serialNumber });
  await page.getByLabel('Search').fill(serialNumber);
  await page.waitForURL(/q=a%2541/);
  await page.reload();
  await page.getByRole('link', { name: serialNumber, exact: true }).waitFor();
  t.equal(await page.getByLabel('Search').inputValue(), serialNumber);
});

t.test('columns of names and custom fields can be chosen, and one that is gone does no harm', async (t) => {
  const template = await service.template({ name: 'With fields' });
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'shelf',
    fieldType: 'string',
  });
  await service.create('/devices', 'device', {
    serialNumber: 'COLUMN-1',
    name: 'Left one',
    deviceTemplateId: template.id,
    shelf: 'B 12',
  });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=COLUMN');
  await page.getByRole('button', { name: 'Columns', exact: true }).click();
  await page.getByRole('checkbox', { name: 'Name', exact: true }).check();
  await page.getByRole('checkbox', { name: 'shelf', exact: true }).check();
  await page.getByRole('button', { name: 'Close', exact: true }).click();
  await page.getByRole('row', { name: /COLUMN-1 Left one .*B 12/ }).waitFor();
  await service.ok('DELETE', `/api/v1/devices/custom-fields/${field.id}`, { headers: { etag: field.version } });
  await page.reload();
  await page.getByRole('row', { name: /COLUMN-1 Left one/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('what can be done with a row is in its menu, also by keyboard', async (t) => {
  const { device } = await service.device({ serialNumber: 'MENU-1' });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=MENU');
  const button = page.getByRole('button', { name: 'Actions of MENU-1', exact: true });
  await button.focus();
  await page.keyboard.press('Enter');
  const items = page.getByRole('menuitem');
  await items.first().waitFor();
  t.strictSame(await items.allTextContents(), [
    'Open',
    'Charts',
    'Copy the id',
    'Move to …',
    'Send a command',
    'New secret',
    'Delete',
  ]);
  await page.keyboard.press('Escape');
  await page.getByRole('menu').waitFor({ state: 'detached' });
  t.equal(await button.and(page.locator(':focus')).count(), 1, 'the focus is back');
  await button.click();
  await button.click();
  await page.getByRole('menu').waitFor({ state: 'detached' });
  await button.click();
  await items.first().waitFor();
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await page.getByText('This concerns 1 device.').waitFor();
  await page
    .getByRole('dialog')
    .getByRole('button', { name: /^Delete/ })
    .click();
  await rowOf(page, 'MENU-1').waitFor({ state: 'detached' });
  t.equal((await service.http('GET', `/api/v1/devices/${device.id}`)).status, 410);
  t.strictSame(errors, []);
});

t.test('Back finds the page of a list, the row, and where it stood, also in a long list and in a tree', async (t) => {
  await makeDevices(service, 160, 'BACK-');
  const { page, errors } = await openAs(t, browser, service, 'devices?q=BACK-');
  const topOf = async (name: string) => {
    const box = await page.getByRole('link', { name, exact: true }).boundingBox();
    return Math.round(box?.y ?? -1);
  };
  /** Opens a row at the middle of the window, goes back, and says what has the focus and where it stands. */
  const openAndReturn = async (name: string, open: () => Promise<unknown>) => {
    // Where it stands when it is pressed: a click may have to scroll first.
    await page.evaluate(`(() => {
      const find = () => [...document.querySelectorAll('main a')].find((link) => link.textContent === ${JSON.stringify(name)});
      const note = () => (window.stood = Math.round(find()?.getBoundingClientRect().top ?? window.stood));
      addEventListener('click', note, { capture: true });
      find().scrollIntoView({ block: 'center' });
    })()`);
    await open();
    await page.getByRole('heading', { name, level: 1 }).waitFor();
    await page.goBack();
    await page.locator('main :focus:not(h1)').waitFor();
    const [before, now] = [(await page.evaluate('stood')) as number, await topOf(name)];
    t.ok(Math.abs(now - before) < 40, `${name} was at ${before} and is at ${now}`);
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent");
  };
  await page.getByRole('button', { name: 'Next', exact: true }).click();
  await page.getByText('Page 2 of 4').waitFor();
  // Serial numbers are sorted as texts.
  const link = (name: string) => page.getByRole('link', { name, exact: true });
  await link('BACK-17').waitFor();
  t.equal(await openAndReturn('BACK-17', () => link('BACK-17').click()), 'BACK-17');
  t.match(page.url(), /page=2/);
  t.equal(await openAndReturn('BACK-27', () => link('BACK-27').press('Enter')), 'BACK-27', 'by keyboard');

  await page.goto('/console/devices?q=BACK-&size=250');
  await page.getByText('160 match the filters').waitFor();
  await page.keyboard.press('End');
  await link('BACK-90').waitFor();
  const open = async () => {
    await page.getByRole('button', { name: 'Actions of BACK-90', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Open', exact: true }).click();
  };
  t.equal(await openAndReturn('BACK-90', open), 'Actions of BACK-90');
  // Rows that are not drawn have the height of the first that is; some browsers do not hold the place when that changes.
  await page.evaluate(`
    const styles = new CSSStyleSheet();
    styles.replaceSync('html { overflow-anchor: none }');
    document.adoptedStyleSheets = [styles];`);
  t.equal(await openAndReturn('BACK-90', open), 'Actions of BACK-90', 'without help of the browser');

  // Of two lists on a page each has its own, and filters are found again too.
  const { id } = await service.template({ name: 'Back product', channels: ['back-channel'] });
  await page.goto(`/console/products/${id}?fields=2`);
  await page.getByRole('row', { name: /back-channel/ }).waitFor();
  await page.goto('/console/trash/fields');
  await page.getByLabel('Of', { exact: true }).selectOption({ label: 'Products' });
  await page
    .getByRole('navigation', { name: 'Menu', exact: true })
    .getByRole('link', { name: 'Products', exact: true })
    .click();
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'Trash', level: 1 }).waitFor();
  t.equal(await page.getByLabel('Of', { exact: true }).inputValue(), 'devices/templates');

  const top = await service.organization({ name: 'Back top' });
  await makeOrganizations(service, 40, 'Back ', top.id);
  await go(page, 'organizations');
  await link('Back 31').waitFor();
  t.equal(await openAndReturn('Back 31', () => link('Back 31').click()), 'Back 31');
  // A link to the same list begins at its top.
  await page
    .getByRole('navigation', { name: 'Menu', exact: true })
    .getByRole('link', { name: 'Products', exact: true })
    .click();
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
  await page
    .getByRole('navigation', { name: 'Menu', exact: true })
    .getByRole('link', { name: 'Organizations', exact: true })
    .click();
  await link('Back 31').waitFor();
  t.equal(await page.evaluate('scrollY'), 0);
  t.strictSame(errors, []);
});

t.test(
  'over plain HTTP an id is copied as by the keyboard, and where that is refused it is selected to be copied',
  async (t) => {
    const { device } = await service.device({ serialNumber: 'PLAIN-1' });
    // Browsers trust 127.0.0.1 without TLS, and no other address.
    const baseURL = service.server.url.replace('127.0.0.1', '0.0.0.0');
    const { page } = await openPage(t, browser, service, { baseURL });
    await signIn(page, undefined, undefined, '/console/devices?q=PLAIN-');
    t.strictSame(await page.evaluate('[isSecureContext, typeof navigator.clipboard]'), [false, 'undefined']);
    const copyId = async () => {
      await page.getByRole('button', { name: 'Actions of PLAIN-1', exact: true }).click();
      await page.getByRole('menuitem', { name: 'Copy the id', exact: true }).click();
    };
    await copyId();
    await page.getByText('The id was copied.').waitFor();
    await page.getByLabel('Search').press('ControlOrMeta+A');
    await page.keyboard.press('ControlOrMeta+V');
    t.equal(await page.getByLabel('Search').inputValue(), device.id);
    await page.getByText('No device matches these filters.').waitFor();

    await page.getByLabel('Search').fill('PLAIN-');
    await page.evaluate('document.execCommand = () => false');
    await copyId();
    const dialog = page.getByRole('dialog', { name: 'Copy it yourself', exact: true });
    await dialog.getByText('over plain HTTP').waitFor();
    t.equal(await page.evaluate('getSelection().toString()'), device.id);
    await dialog.getByRole('button', { name: 'Close', exact: true }).click();
    await dialog.waitFor({ state: 'detached' });
    t.equal(await page.locator(':focus').getAttribute('aria-label'), 'Actions of PLAIN-1');
  },
);

t.test('an admin who was deleted is taken back from the page, which says that it is the last chance', async (t) => {
  const about = { createIdmUser: true, idmUserEmail: 'gone@example.com', idmUserPassword: 'a long enough secret' };
  await service.create('/account-users', 'accountUser', about);
  const { page, errors } = await openPage(t, browser, service, {
    storageState: await (await openAs(t, browser, service, 'account')).page.context().storageState(),
  });
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  await page.clock.install();
  await page.goto('/console/people/account-users');
  await press('Actions of gone@example.com');
  await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
  await page.getByRole('dialog').getByText('Admins have no trash').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
  const row = page.getByRole('row', { name: /gone@example\.com/ });
  await row.waitFor({ state: 'detached' });
  await page.clock.runFor(9000);
  await press('Undo gone@example.com');
  await row.waitFor();
  t.strictSame(errors, []);
});

t.test('what cannot be read any more says since when, and why, and is tried again', async (t) => {
  await service.device({ serialNumber: 'STALE-1' });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=STALE-');
  await rowOf(page, 'STALE-1').waitFor();
  // Until the button is pressed: what the list reads by itself could take it away before.
  await page.evaluate("addEventListener('click', () => { globalThis.isPressed = true; }, true)");
  await page.route('**/api/v1/devices?*', async (route) =>
    (await page.evaluate('globalThis.isPressed'))
      ? route.continue()
      : route.fulfill({ status: 500, json: { error: { code: -199, message: 'The disk is gone.' } } }),
  );
  const told = page.getByRole('status').filter({ hasText: /Not read since .*\d\. The disk is gone\./ });
  await told.waitFor();
  t.equal(await rowOf(page, 'STALE-1').count(), 1);
  await service.device({ serialNumber: 'STALE-2' });
  await told.getByRole('button', { name: 'Try again', exact: true }).click();
  await rowOf(page, 'STALE-2').waitFor();
  await told.waitFor({ state: 'detached' });
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  t.strictSame(errors, []);
});

t.test('who may not read any more what is shown is told so, on lists and on the page of a device', async (t) => {
  const { device } = await service.device({ serialNumber: 'FORBIDDEN-1' });
  const made = await role(service, 'account', { device: ['read'], role: ['read'] });
  const { id } = await accountUser(service, { roleId: made.id });
  const { emailAddress } = (await service.ok('GET', `/api/v1/account-users/${id}`)).accountUser;
  const { page } = await openPage(t, browser, service);
  await signIn(page, String(emailAddress), 'a long enough secret', '/console/devices?q=FORBIDDEN-');
  await rowOf(page, 'FORBIDDEN-1').waitFor();
  const other = await page.context().newPage();
  await other.goto(`/console/devices/${device.id}`);
  await other.getByText('Offline', { exact: true }).waitFor();
  await service.ok('PUT', `/api/v1/roles/${made.id}`, {
    body: { rights: { role: ['read'] } },
    headers: { etag: made.version },
  });
  for (const one of [page, other]) await one.getByText(/^Not read since /).waitFor();
});

t.test('organizations, products and packages show what is in them', async (t) => {
  const organization = await service.organization({ name: 'Counted' });
  const template = await service.template({ name: 'Counted product', channels: ['a', 'b'] });
  const of = { deviceTemplateId: template.id, organizationId: organization.id };
  const { device, secret } = await service.device({ ...of, serialNumber: 'COUNTED-1' });
  await service.device({ ...of, serialNumber: 'COUNTED-2', firmwareVersion: '7.1' });
  await service.endUser(organization.id);
  await service.create('/firmware/packages', 'firmwarePackage', {
    deviceTemplateId: template.id,
    name: 'Counted package',
    firmwareVersion: '7.1',
  });
  await service.connect({ deviceId: device.id, secret });
  // Noted a moment after the connection, and the tree is read once.
  await until(async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.connected);
  const { page, errors } = await openAs(t, browser, service, 'organizations');
  const leaf = page.locator('.leaf').filter({ hasText: 'Counted' });
  t.match(await leaf.locator('.holds').textContent(), /2 devices.*1 online.*1 person/);
  await go(page, 'products');
  await page.getByRole('row', { name: /Counted product 2 1 2/ }).waitFor();
  await go(page, 'firmware');
  await page.getByRole('row', { name: /Counted package 7\.1 Draft 1/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('last values are columns, and a product says which one matters', async (t) => {
  const template = await service.template({ name: 'Valued product' });
  const categories = [
    { name: 'temperature', label: 'Inside', unit: '°C', kind: 'number' },
    { name: 'door', kind: 'state' },
  ];
  await service.channel(template.id, { name: 'climate', persistenceType: 'timeSeries', categories });
  const { device } = await service.device({ serialNumber: 'VALUED-1', deviceTemplateId: template.id });
  await service.device({ serialNumber: 'VALUED-2', deviceTemplateId: template.id });
  const publish = (rows: string) =>
    service.ok('POST', `/api/v4/data/${service.topic(device.id, 'climate')}`, {
      body: rows,
      headers: { 'content-type': 'text/csv' },
    });
  await publish(`${Date.now() - 1000},temperature,21.5,\n${Date.now()},door,,open`);
  const { page, errors } = await openAs(t, browser, service, `products/${template.id}`);
  const panel = page
    .locator('section')
    .filter({ has: page.getByRole('heading', { name: 'The value that matters', exact: true }) });
  await panel.getByLabel('The value that matters', { exact: true }).selectOption({ label: 'Inside (climate)' });
  await panel.getByRole('button', { name: /^Save/ }).click();
  const primary = async () =>
    (await service.ok('GET', `/api/v1/devices/templates/${template.id}`)).deviceTemplate.primary;
  await until(primary, (found) => found?.category === 'temperature');
  await go(page, 'devices?q=VALUED');
  await page.getByRole('button', { name: 'Columns', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Value', { exact: true }).check();
  await dialog.getByLabel('door (climate)').check();
  await page.keyboard.press('Escape');
  await page.getByRole('row', { name: /VALUED-1 .* 21\.5 °C .* open/ }).waitFor();
  await page.getByRole('row', { name: /VALUED-2 .* – –/ }).waitFor();
  await publish(`${Date.now()},temperature,22,`);
  await page.getByRole('row', { name: /VALUED-1 .* 22 °C/ }).waitFor();
  await page.getByRole('button', { name: 'Columns', exact: true }).click();
  await dialog.getByLabel('Value', { exact: true }).uncheck();
  await dialog.getByLabel('door (climate)').uncheck();
  await page.keyboard.press('Escape');
  t.strictSame(errors, []);
});

t.test('an organization shows what is below and above it; a filter by it means those below, too', async (t) => {
  const above = await service.organization({ name: 'Region' });
  const middle = await service.organization({ name: 'Town', parentId: above.id });
  const below = await service.organization({ name: 'Street', parentId: middle.id });
  for (const [serialNumber, organizationId] of [
    ['TOWN-1', middle.id],
    ['STREET-1', below.id],
    ['STREET-2', below.id],
    ['REGION-1', above.id],
  ])
    await service.device({ serialNumber, organizationId });
  const { page, errors } = await openAs(t, browser, service, 'organizations');
  const holds = (name: string) => page.locator('.leaf').filter({ hasText: name }).locator('.holds').textContent();
  t.strictSame(
    [await holds('Region'), await holds('Town'), await holds('Street')],
    ['4 devices', '3 devices', '2 devices'],
  );
  await go(page, `organizations/${middle.id}`);
  t.equal(await page.getByRole('navigation', { name: 'Organizations above', exact: true }).textContent(), 'RegionTown');
  await page.getByText('With those of the organizations below. 1 directly here, 0 online.').waitFor();
  await page.getByRole('heading', { name: 'Devices (3)', exact: true }).waitFor();
  await page.getByRole('heading', { name: 'Organizations below (1)', exact: true }).waitFor();
  t.match(await page.getByRole('listitem').filter({ hasText: 'Street' }).last().textContent(), /Street2 devices/);
  await page.getByRole('link', { name: 'All devices', exact: true }).click();
  await page
    .getByRole('button', { name: 'Change the filter: Organization, with those below is Town', exact: true })
    .waitFor();
  await rowOf(page, 'STREET-2').waitFor();
  t.strictSame(await page.locator('tbody a').allTextContents(), ['STREET-1', 'STREET-2', 'TOWN-1']);
  await page.getByRole('button', { name: 'Move to …', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Organization').selectOption({ label: 'Region' });
  await dialog.getByRole('button', { name: 'Count first', exact: true }).click();
  await dialog.getByText('This concerns 3 devices. Devices of the organizations below are among them.').waitFor();
  t.strictSame(errors, []);
});

t.test('on a phone filters fold, rows are cards, and the first device is on the first screen', async (t) => {
  const organization = await service.organization({ name: 'Pocket' });
  await service.device({ serialNumber: 'CARD-1', organizationId: organization.id });
  const { page, errors } = await openPage(t, browser, service, { viewport: { width: 360, height: 740 } });
  await signIn(page, undefined, undefined, '/console/devices?q=CARD');
  const card = rowOf(page, 'CARD-1');
  await card.waitFor();
  const box = await card.boundingBox();
  t.ok(box && box.y + box.height < 740 && box.width <= 360, JSON.stringify(box));
  t.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= 360);
  t.notOk(await page.getByLabel('Rows', { exact: true }).isVisible());
  await page.getByRole('button', { name: 'More', exact: true }).click();
  await page.getByLabel('Rows', { exact: true }).waitFor();
  await page.getByLabel('Filter as text').fill('provisioningState eq "activated"');
  await page.getByLabel('Filter as text').press('Enter');
  await page.getByText('No device matches these filters.').or(card).first().waitFor();
  await page.getByRole('button', { name: 'Change the filter: State is Activated', exact: true }).waitFor();
  t.strictSame(errors, []);
});

t.test('an answer to a filter that the service does not know is an error, and no list', async (t) => {
  await service.device({ serialNumber: 'SN-UNFILTERED' });
  const { page } = await openAs(t, browser, service, 'devices?q=SN-UNF');
  await page.getByRole('link', { name: 'SN-UNFILTERED', exact: true }).waitFor();
  await page.route('**/api/v1/devices?*', (route) =>
    route.continue({ url: `${route.request().url()}&locatoin=Berlin` }),
  );
  await page.reload();
  await page.getByText('The service does not know the filter or parameter locatoin.').first().waitFor();
  t.equal(await page.getByRole('link', { name: 'SN-UNFILTERED', exact: true }).count(), 0);
});

t.test(
  'a long list says that it draws rows in sight, and draws all to be printed, searched, or on request',
  async (t) => {
    await makeDevices(service, 300, 'PAPER-');
    const { page, errors } = await openAs(t, browser, service, 'devices?q=PAPER-&size=1000');
    const rows = page.locator('tbody tr').filter({ has: page.getByRole('link') });
    const ways = [
      () => page.pdf(),
      () => page.keyboard.press('Control+f'),
      () => page.getByRole('button', { name: 'Draw all 300', exact: true }).click(),
    ];
    for (const draw of ways) {
      await page.reload();
      await page.getByText('only the rows near those in sight are drawn').waitFor();
      t.ok((await rows.count()) < 200);
      await draw();
      t.equal(await rows.count(), 300);
      t.equal(await page.getByText('only the rows near those in sight are drawn').count(), 0);
    }
    await page.emulateMedia({ media: 'print' });
    t.notOk(
      await page.getByRole('link', { name: 'Organizations', exact: true }).isVisible(),
      'on paper nothing can be pressed',
    );
    t.equal(await page.evaluate(`getComputedStyle(document.querySelector('.tablewrap')).overflowX`), 'visible');
    t.strictSame(errors, []);
  },
);

t.test('a list of several pages says so on paper, too', async (t) => {
  const { page } = await openAs(t, browser, service, 'devices?q=PAPER-');
  await page.emulateMedia({ media: 'print' });
  t.ok(await page.getByText(/^Page 1 of 6/).isVisible());
});

t.end();
