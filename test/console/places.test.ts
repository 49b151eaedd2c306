/** What a person does in each place of the console, by the names that the page shows. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { newGroup } from '../enrollment/devices.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { go, holdUndo, openAs, openPage, signIn, titled } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

const mail = new Mailbox();
let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t, { mail });
  browser = await openBrowser();
});

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const inDialog = (page: Page, name: string) =>
  page.getByRole('dialog').getByRole('button', { name, exact: true }).click();

t.test('a forgotten password is asked for by email, from the page to sign in', async (t) => {
  const { page } = await openPage(t, browser, service);
  await page.goto('/console/');
  await press(page, 'Forgotten your password?');
  await page.getByLabel('Email address').fill('admin@example.com');
  await press(page, 'Send an email');
  await page.getByText('an email with a link is on its way').waitFor();
  t.ok(await mail.nextTokenTo('admin@example.com'));
});

t.test('devices are imported, sorted, chosen, exported, deleted, and restored by Undo', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'devices');
  await press(page, 'Import CSV or Excel');
  await page.getByLabel('Or paste rows').fill('serialNumber,name\nCSV-1,one\n=CSV-2,two\nCSV-3,three');
  await inDialog(page, 'Continue');
  await inDialog(page, 'Check');
  await page.getByText('3 devices will be made. 0 are there already, 0 cannot be made.').waitFor();
  await inDialog(page, 'Make 3 devices');
  await page.getByText('3 done, 0 failed.').waitFor();
  await press(page, 'Import CSV or Excel');
  await page.getByLabel('Or paste rows').fill('serialNumber\nCSV-1');
  await inDialog(page, 'Continue');
  await inDialog(page, 'Check');
  await page.getByText('0 devices will be made. 1 are there already, 0 cannot be made.').waitFor();
  await page.getByRole('row', { name: /CSV-1 There already .*Another device of the template/ }).waitFor();
  t.equal(await page.getByRole('button', { name: /^Make/ }).count(), 0, 'nothing is to be made');
  await page.keyboard.press('Escape');
  await page.getByLabel('Search').fill('csv-');
  await page.getByText('3 match the filters').waitFor();
  await press(page, 'Serial number ↑');
  await page.waitForURL(/order=desc/);
  await page.locator('tbody tr').first().getByText('CSV-3').waitFor();
  await press(page, 'Columns');
  await page.getByLabel('Firmware').check();
  await inDialog(page, 'Close');
  await page.getByRole('columnheader', { name: 'Firmware' }).waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), press(page, 'Export CSV')]);
  t.match(
    readFileSync(await file.path(), 'utf8'),
    /^\ufeffid,serialNumber,.*\r\n[^,]+,CSV-3,.*\r\n.*,CSV-1,.*\r\n[^,]+,'=CSV-2,/,
    'no cell is a formula',
  );
  await page.getByLabel('Select CSV-1').check();
  await page.getByLabel('Select =CSV-2').check();
  await page.getByText('2 selected').waitFor();
  await press(page, 'Delete devices');
  await page.getByText('This concerns 2 devices.').waitFor();
  await inDialog(page, 'Delete devices');
  const undo = await holdUndo(page);
  await page.getByRole('link', { name: 'CSV-1', exact: true }).waitFor({ state: 'detached' });
  await undo.click();
  await page.getByRole('link', { name: 'CSV-1', exact: true }).waitFor();
  await page.getByRole('link', { name: 'CSV-3', exact: true }).click();
  await page.getByRole('heading', { name: 'CSV-3', level: 1 }).waitFor();
  await page.goBack();
  await page.getByText('3 match the filters').waitFor();
  t.match(page.url(), /q=csv-/, 'Back leads to the same filters');
  await go(page, 'factory');
  await page.getByRole('row', { name: /dry run\) Ended, nothing done 0 of 1, 0 failed, 1 skipped/ }).waitFor();
  t.strictSame(errors, []);
});

t.test(
  'a CSV file that was changed since it was chosen is chosen again; one beside the field is not shown',
  async (t) => {
    const { page, errors } = await openAs(t, browser, service, 'devices');
    const file = join(temporaryDirectory(t), 'units.csv');
    writeFileSync(file, 'serialNumber\n');
    await press(page, 'Import CSV or Excel');
    const field = page.getByLabel('Excel or CSV file');
    await field.setInputFiles(file);
    await page.getByText('There is no row below the names of the columns.').waitFor();
    writeFileSync(file, 'serialNumber\nMENDED-1\n');
    await inDialog(page, 'Continue');
    await page.getByText('The file was changed or moved after it was chosen. Choose it again.').waitFor();
    const chooser = page.waitForEvent('filechooser');
    await field.click();
    t.equal(await field.inputValue(), '', 'a browser tells a choice only when it is another one');
    await (await chooser).setFiles(file);
    await page.getByText('1 rows; here are the first 1.').waitFor();
    await page.keyboard.press('Escape');
    await press(page, 'Import CSV or Excel');
    await field.waitFor();
    const isKept = (of: string) =>
      page.evaluate<boolean>(`(() => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(['x'], 'x.csv'));
        const drop = new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true });
        return !document.querySelector('${of}').dispatchEvent(drop);
      })()`);
    t.same([await isKept('body'), await isKept('dialog h2')], [true, true]);
    t.strictSame(errors, []);
  },
);

t.test('from a page past the last one the list goes to the last one, as after a deletion of its rows', async (t) => {
  const { page } = await openAs(t, browser, service, 'devices?page=4');
  await page.locator('tbody tr').first().waitFor();
  t.match(page.url(), /devices\?page=1$/);
  await go(page, 'products?page=3');
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
  await page.locator('tbody tr').first().waitFor();
  t.match(page.url(), /products\?page=1$/);
  t.equal(await page.locator('html').getAttribute('translate'), 'no', 'a translated value would not follow the device');
});

t.test('a CSV file that is not UTF-8 makes nothing, unless it is read as Windows-1252', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'devices');
  const choose = (...bytes: Buffer[]) =>
    page
      .getByLabel('Excel or CSV file')
      .setInputFiles({ name: 'units.csv', mimeType: 'text/csv', buffer: Buffer.concat(bytes) });
  const named = async () => {
    const of = `accountId=${service.accountId}&serialNumber=T-0001`;
    const { devices } = await service.ok('GET', `/api/v1/devices?${of}`);
    return devices.results.map(({ serialNumber, name }) => [serialNumber, name]);
  };
  await press(page, 'Import CSV or Excel');
  await choose(Buffer.from([0xff, 0xfe]), Buffer.from('serialNumber\nGERÄT-0001\n', 'utf16le'));
  await page.getByRole('alert').getByText('The file is not UTF-8.').waitFor();
  t.equal(await page.getByLabel('Read it as Windows-1252').count(), 0, 'UTF-16 is not Windows-1252 either');
  const windows = Buffer.from('serialNumber,name\r\nGERÄT-0001,Große Pumpe\r\n', 'latin1');
  await choose(windows);
  await page.getByLabel('Read it as Windows-1252. It then has this line: GERÄT-0001,Große Pumpe').waitFor();
  await page.getByRole('alert').getByText('The file is not UTF-8.').waitFor();
  t.same(await named(), [], 'nothing was made');
  const body = { body: windows as never, headers: { 'content-type': 'text/csv' } };
  const refused = await service.http('POST', `/api/v1/provisioning/jobs?accountId=${service.accountId}`, body);
  t.match(refused, { status: 400, body: { error: { details: [{ path: 'body', message: 'must be UTF-8' }] } } });
  await page.getByLabel('Read it as Windows-1252').check();
  await inDialog(page, 'Continue');
  await inDialog(page, 'Check');
  await inDialog(page, 'Make 1 device');
  await page.getByText('1 done, 0 failed.').waitFor();
  t.same(await named(), [['GERÄT-0001', 'Große Pumpe']]);
  t.strictSame(errors, []);
});

t.test(
  'a device shows what it publishes as it comes, its claim code, who may read it, and what was done to it',
  async (t) => {
    const { device } = await service.device({
      serialNumber: 'SN-PLACE',
      deviceTemplateId: (await service.template({ channels: ['readings'] })).id,
    });
    const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/live`);
    await page.getByText('Listening').waitFor();
    await page.getByLabel('Message', { exact: true }).fill(',humidity,63,');
    await press(page, 'Publish');
    await page.getByRole('row', { name: /readings humidity 63/ }).waitFor();
    await page.getByRole('button', { name: /^The message on readings at / }).click();
    await page.locator('.messages').getByText(',humidity,63,').waitFor();
    await page.getByRole('link', { name: 'Settings', exact: true }).click();
    await page.getByRole('link', { name: 'Access', exact: true }).click();
    await press(page, 'Make a code');
    await page.getByRole('dialog').getByRole('button', { name: 'Make a code', exact: true }).click();
    await page.getByRole('img', { name: 'QR code' }).waitFor();
    await page.getByLabel('Who', { exact: true }).fill('admin@exam');
    await page.getByRole('option', { name: /admin@example\.com/ }).click();
    await press(page, 'Explain');
    await page.getByText(/allowed: /i).waitFor();
    await press(page, 'Make a new secret');
    await inDialog(page, 'Make a new secret');
    const secret = await page.getByRole('region', { name: 'Secret' }).locator('pre').textContent();
    t.ok(await service.connect({ deviceId: device.id, secret: secret?.trim() ?? '' }), 'the new secret is its login');
    await page.getByRole('link', { name: 'Log', exact: true }).click();
    await page
      .getByRole('row', { name: /Connection/ })
      .first()
      .waitFor();
    await page.getByRole('link', { name: 'History', exact: true }).click();
    await page
      .getByRole('row', { name: /made a new secret for SN-PLACE/ })
      .first()
      .waitFor();
    t.strictSame(errors, []);
  },
);

t.test('the title of the document names what is shown, and the account', async (t) => {
  const organization = await service.organization({ name: 'Titled' });
  const { device } = await service.device({ serialNumber: 'SN-TITLE' });
  const { page } = await openAs(t, browser, service, '');
  for (const [place, title] of [
    [`devices/${device.id}`, 'SN-TITLE · My company · Slipway'],
    [`devices/${device.id}/series`, 'SN-TITLE, Charts · My company · Slipway'],
    [`organizations/${organization.id}`, 'Titled · My company · Slipway'],
    ['devices', 'Devices · My company · Slipway'],
  ] as const) {
    await go(page, place);
    await page.getByRole('heading', { name: title.split(/[,·]/)[0]?.trim() ?? '', level: 1 }).waitFor();
    await titled(page, title);
  }
});

t.test('beside each new password stands whose it is, for password managers', async (t) => {
  const owners = (page: Page) =>
    page.evaluate(`[...document.querySelectorAll('[autocomplete=new-password]')].map((field) =>
      [...field.form.elements].slice(0, [...field.form.elements].indexOf(field))
        .filter((one) => one.autocomplete === 'username').map(({ value }) => value))`);
  const { page } = await openAs(t, browser, service, 'account');
  t.strictSame(await owners(page), [['admin@example.com']]);
  await go(page, 'people');
  await press(page, 'New end-user');
  await page.getByLabel('Email address').fill('new@example.com');
  t.strictSame(await owners(page), [['new@example.com']]);
  await page.keyboard.press('Escape');

  const email = 'invited-to-keep@example.com';
  await service.create('/account-users', 'accountUser', { createIdmUser: true, idmUserEmail: email });
  const said = mail.to(email)[0]?.text ?? '';
  const given = Object.fromEntries([...said.matchAll(/^(\w+): (\S+)$/gm)].map(([, name, value]) => [name, value]));
  await page.goto(`/set-password#${new URLSearchParams(given)}`);
  t.strictSame(await owners(page), [[email]]);
  await page.getByLabel('New password').fill('a long enough secret');
  await press(page, 'Set password');
  await page.getByText('Done. You can close this page').waitFor();
  await service.loginAs(email, 'a long enough secret');
  // Without a link the address is typed, or left out.
  await page.goto('/set-password');
  t.strictSame(await owners(page), [['']]);
});

t.test('sessions name their browser, CAs have one place, and stations, bridges and providers are edited', async (t) => {
  const product = await service.template({ name: 'Edited pump' });
  const soon = new Date(Date.now() + 24 * 3_600_000).toISOString();
  const limits = { deviceTemplateId: product.id, maxDevices: 5, expiresAt: soon };
  await service.create('/applications', 'application', { name: 'Edited line', kind: 'station', ...limits });
  await service.create('/bridges', 'bridge', {
    name: 'Edited lake',
    kind: 'webhook',
    url: 'https://lake.example.com/',
  });
  const about = { issuer: 'https://edited.example.com', clientId: 'console' };
  await service.create('/identity-providers', 'identityProvider', { name: 'Edited company', ...about });
  const { page, errors } = await openPage(t, browser, service);
  await signIn(page);
  await go(page, 'account');
  await page
    .getByText(/Chrome on Linux/)
    .first()
    .waitFor();

  const edit = async (name: string) => {
    await page.getByRole('button', { name: `Actions of ${name}`, exact: true }).click();
    await page.getByRole('menuitem', { name: 'Edit', exact: true }).click();
  };
  await go(page, 'factory/stations');
  await edit('Edited line');
  await page.getByRole('dialog').getByLabel('Name').fill('Second line');
  await page.getByRole('dialog').getByRole('spinbutton').fill('7');
  await inDialog(page, 'Save');
  await page.getByRole('row', { name: /Second line.*0 of 7/ }).waitFor();
  const list = `/api/v1/applications?accountId=${service.accountId}&kind=station`;
  const { applications } = await service.ok('GET', list);
  t.equal(applications.results[0]?.expiresAt, soon, 'what was not touched is as it was');

  await go(page, 'programs/bridges');
  await edit('Edited lake');
  await page.getByRole('dialog').getByLabel('Name').fill('Second lake');
  await inDialog(page, 'Save');
  await page.getByRole('row', { name: /Second lake/ }).waitFor();

  await go(page, 'programs/identity-providers');
  await page.getByText(`${service.server.url}/api/v1/oauth2/callback`).waitFor();
  await press(page, 'New identity provider');
  await page.getByRole('dialog').getByText('/api/v1/oauth2/callback').waitFor();
  await inDialog(page, 'Cancel');
  await edit('Edited company');
  await page.getByRole('dialog').getByLabel('Client id').fill('console-2');
  await inDialog(page, 'Save');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const { identityProviders } = await service.ok('GET', `/api/v1/identity-providers?accountId=${service.accountId}`);
  t.match(identityProviders.results, [{ clientId: 'console-2', issuer: about.issuer }]);

  await page.goto('/console/programs/authorities');
  await page.waitForURL('**/console/enrollment/authorities');
  await go(page, 'programs');
  t.equal(await page.getByRole('link', { name: 'Certificate authorities', exact: true }).count(), 0);
  t.strictSame(errors, []);
});

t.test('the mouse wheel scrolls the page, and leaves the number in focus as it is', async (t) => {
  const { page } = await openAs(t, browser, service, 'account');
  await page.setViewportSize({ width: 1280, height: 400 });
  // Chromium counts by the wheel only where something listens to it, as extensions of a browser do.
  await page.evaluate(`addEventListener('wheel', () => {}, { passive: false })`);
  const days = page.getByRole('spinbutton', { name: 'Days', exact: true });
  await days.fill('30');
  await days.hover();
  const scrolled = async () => Number(await page.evaluate('scrollY'));
  const before = await scrolled();
  await page.mouse.wheel(0, -120);
  await until(scrolled, (now) => now < before);
  t.equal(await days.inputValue(), '30');
  await page.evaluate('new Promise(requestAnimationFrame)');
  await page.keyboard.type('5');
  t.equal(await days.inputValue(), '305', 'what is typed next goes into the field');
});

t.test('a product is made with a channel and a custom field, which its devices have', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'products');
  await press(page, 'New product');
  await page.getByLabel('Name').fill('Valve');
  await inDialog(page, 'Create');
  await page.getByRole('link', { name: 'Valve', exact: true }).click();
  await page.getByRole('heading', { name: 'Valve', level: 1 }).waitFor();
  await press(page, 'New channel');
  await page.getByLabel('Name').fill('pressure');
  await inDialog(page, 'Create');
  await page.getByRole('row', { name: /pressure/ }).waitFor();
  await press(page, 'New custom field');
  await page.getByLabel('Name').fill('hall');
  await inDialog(page, 'Create');
  await page.getByRole('row', { name: /hall string/ }).waitFor();
  const id = page.url().split('/').at(-1);
  const { device } = await service.device({ deviceTemplateId: id, serialNumber: 'SN-VALVE' });
  t.ok('hall' in device);
  t.ok(device.channels.some((one) => one.channelTemplateName === 'pressure'));
  t.strictSame(errors, []);
});

t.test('a person is invited by email, deleted, and restored by Undo', async (t) => {
  await service.organization({ name: 'Invited here' });
  const { page, errors } = await openAs(t, browser, service, 'people');
  await press(page, 'New end-user');
  await page.getByLabel('Email address').fill('guest@example.com');
  await page.getByRole('dialog').getByLabel('Organization').selectOption({ label: 'Invited here' });
  await inDialog(page, 'Create');
  await page.getByText('An invitation to guest@example.com is on its way.').waitFor();
  t.ok(await mail.nextTokenTo('guest@example.com'));
  const row = page.getByRole('row', { name: /guest@example\.com/ });
  await row.getByRole('button', { name: 'Actions of guest@example.com', exact: true }).click();
  await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
  await inDialog(page, 'Delete');
  const undo = await holdUndo(page);
  await row.waitFor({ state: 'detached' });
  await undo.click();
  await row.waitFor();
  t.strictSame(errors, []);
});

t.test('Undo stays while the pointer or the focus is on it, and can be reached above a dialog', async (t) => {
  const { id: deviceTemplateId } = await service.template({ name: 'Undone' });
  const about = { deviceTemplateId, name: 'Undone firmware', firmwareVersion: '1.0' };
  await service.create('/firmware/packages', 'firmwarePackage', about);
  const { page, errors } = await openPage(t, browser, service, {
    storageState: await (await openAs(t, browser, service, 'account')).page.context().storageState(),
  });
  await page.clock.install();
  await page.goto('/console/firmware');
  const row = page.getByRole('row', { name: /Undone firmware/ });
  const undo = page.getByRole('button', { name: 'Undo', exact: true });
  const remove = async () => {
    await press(page, 'Actions of Undone firmware');
    await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
    // From the first moment: it has eight seconds, which pass while a busy machine does what follows.
    await undo.hover();
    await row.waitFor({ state: 'detached' });
  };
  const wait = async (seconds: number) => {
    await page.clock.runFor(seconds * 1000);
  };
  await remove();
  await wait(60);
  await page.mouse.move(0, 0);
  await wait(2);
  t.equal(await undo.count(), 1);
  const lookAway = (isAway: boolean) =>
    page.evaluate(`Object.defineProperty(document, 'hidden', { value: ${isAway}, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));`);
  await lookAway(true);
  await wait(60);
  await lookAway(false);
  t.equal(await undo.count(), 1, 'nor does it go while nobody looks');
  await undo.focus();
  await undo.hover();
  await page.mouse.move(0, 0);
  await wait(60);
  t.equal(await undo.count(), 1, 'the focus alone is enough');
  await undo.press('Enter');
  await row.waitFor();

  // The dialog makes everything else unreachable.
  await remove();
  await press(page, 'New package');
  const name = page.getByRole('dialog').getByLabel('Name');
  await name.fill('Typed');
  await page.keyboard.press('F8');
  t.equal(await undo.and(page.locator(':focus')).count(), 1, 'by key');
  await page.keyboard.press('Enter');
  await undo.waitFor({ state: 'detached' });
  t.equal(await name.and(page.locator(':focus')).count(), 1, 'the focus is back');
  t.equal(await name.inputValue(), 'Typed');
  await inDialog(page, 'Cancel');
  await row.waitFor();
  await remove();
  await press(page, 'New package');
  await undo.click();
  await inDialog(page, 'Cancel');
  await row.waitFor();
  await remove();
  await page.mouse.move(0, 0);
  await wait(9);
  await undo.waitFor({ state: 'detached' });
  t.strictSame(errors, []);
});

t.test('a deletion of what has a trash is taken back by Undo, and later from where it was done', async (t) => {
  const { id: product } = await service.template({ name: 'Gone product', channels: ['gone-channel'] });
  const field = { deviceTemplateId: product, name: 'gone-field', fieldType: 'string' };
  await service.create('/devices/custom-fields', 'deviceField', field);
  const about = { deviceTemplateId: product, name: 'Gone package', firmwareVersion: '1.0' };
  await service.create('/firmware/packages', 'firmwarePackage', about);
  await service.organization({ name: 'Gone organization' });
  await service.create('/end-users', 'endUser', {
    ...{ createIdmUser: true, idmUserEmail: 'gone.guest@example.com', idmUserPassword: 'a long enough secret' },
    ...{ name: 'Gone guest', organizationId: (await service.organization()).id },
  });
  await service.create('/roles', 'role', { name: 'Gone role', scope: 'account', rights: { device: ['read'] } });
  const group = await newGroup(service, { name: 'Gone group' });
  const empty = await service.template({ name: 'Empty product' });
  const { device } = await service.device({ serialNumber: 'GONE-1' });
  const { page, errors } = await openAs(t, browser, service, 'products');
  const byMenu = (name: string, isAsked: boolean) => async () => {
    await press(page, `Actions of ${name}`);
    await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
    if (isAsked) await inDialog(page, 'Delete');
  };
  const byButton = (label: string, isAsked: boolean) => async () => {
    await press(page, label);
    if (isAsked) await inDialog(page, 'Delete');
  };
  const byMore = async () => {
    await press(page, 'More');
    await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
    await inDialog(page, 'Delete');
  };
  const kinds: [place: string, name: string, remove: () => Promise<void>, link: string, list?: string][] = [
    [`products/${product}`, 'gone-channel', byMenu('gone-channel', false), 'channels'],
    [`products/${product}`, 'gone-field', byMenu('gone-field', false), 'custom fields'],
    [`products/${empty.id}`, 'Empty product', byButton('Delete', true), 'products', 'products'],
    ['firmware', 'Gone package', byMenu('Gone package', false), 'firmware packages'],
    ['organizations', 'Gone organization', byMenu('Gone organization', true), 'organizations'],
    ['people', 'Gone guest', byMenu('gone.guest@example.com', true), 'people'],
    ['people/roles', 'Gone role', byMenu('Gone role', true), 'roles'],
    [`enrollment/groups/${group.id}`, 'Gone group', byButton('Delete', false), 'enrollment groups', 'enrollment'],
    [`devices/${device.id}`, 'GONE-1', byMore, 'devices', 'devices?q=GONE-'],
  ];
  for (const [place, name, remove, link, list = place] of kinds)
    await t.test(link, async () => {
      const named = page.locator('main').getByText(name, { exact: true }).first();
      for (const isUndone of [true, false]) {
        await go(page, place);
        await named.waitFor();
        await remove();
        const undo = page
          .locator('.toast')
          .filter({ hasText: name.replace('Gone guest', 'gone.guest') })
          .getByRole('button', { name: 'Undo', exact: true });
        await undo.waitFor();
        if (isUndone) {
          await undo.click();
          await page.mouse.move(0, 0);
        } else {
          if (list !== place) await go(page, list);
          await page.getByRole('link', { name: `Show deleted ${link}`, exact: true }).click();
          await press(page, `Recover ${name}`);
          await page.getByText(`${name} was recovered.`).waitFor();
        }
        await go(page, list);
        await named.waitFor();
      }
    });
  // Who follows a link to something deleted is led to it, too.
  const gone = await service.device({ serialNumber: 'GONE-2' });
  const { version } = (await service.ok('GET', `/api/v1/devices/${gone.device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${gone.device.id}`, { headers: { etag: version } });
  await go(page, `devices/${gone.device.id}`);
  await page.getByRole('link', { name: 'Show deleted devices', exact: true }).click();
  await page.getByRole('button', { name: 'Recover GONE-2', exact: true }).waitFor();
  t.strictSame(errors, []);
});

t.test('firmware is uploaded to a package and published; a token of a program is shown once', async (t) => {
  await service.template({ name: 'Motor' });
  const { page, errors } = await openAs(t, browser, service, 'firmware');
  await press(page, 'New package');
  await page.getByLabel('Name').fill('Motor firmware');
  await page.getByLabel('Version').fill('3.1');
  await page.getByRole('dialog').getByLabel('Product').selectOption({ label: 'Motor' });
  await inDialog(page, 'Create');
  await press(page, 'Actions of Motor firmware');
  await page.getByRole('menuitem', { name: 'Upload', exact: true }).click();
  await page
    .getByLabel('File', { exact: true })
    .setInputFiles({ name: 'motor.bin', mimeType: '', buffer: Buffer.alloc(2048, 1) });
  await inDialog(page, 'Upload');
  const row = page.getByRole('row', { name: /Motor firmware 3\.1 .*motor\.bin \(2\.0 KB\)/ });
  await row.getByRole('button', { name: 'Actions of Motor firmware', exact: true }).click();
  await page.getByRole('menuitem', { name: 'Publish', exact: true }).click();
  await row.getByText('Published').waitFor();
  await page.getByRole('link', { name: 'Programs', exact: true }).click();
  await press(page, 'New application');
  await page.getByLabel('Name').fill('Planner');
  await inDialog(page, 'Create');
  await page.getByText('This token is shown only now.').waitFor();
  await page.reload();
  await page.getByRole('row', { name: /Planner Back-end/ }).waitFor();
  t.equal(await page.getByText('This token is shown only now.').count(), 0);
  t.strictSame(errors, []);
});

t.test('a command to many devices is a job: its page names the command, and what has become of it', async (t) => {
  const { id: deviceTemplateId } = await service.template();
  await service.device({ deviceTemplateId, serialNumber: 'BLINK-1' });
  await service.device({ deviceTemplateId, serialNumber: 'BLINK-2' });
  const body = { accountId: service.accountId, filter: { deviceTemplateId }, command: { name: 'blink' }, atOnce: 1 };
  await service.http('POST', '/api/v1/commands/bulk', { body });
  const { page, errors } = await openAs(t, browser, service, 'factory');
  await page
    .getByRole('row', { name: /Send a command: blink/ })
    .getByRole('link')
    .click();
  await page.getByRole('heading', { name: 'Send a command: blink', exact: true }).waitFor();
  await page.getByRole('row', { name: /On its way BLINK-1/ }).waitFor();
  await page.getByRole('row', { name: /Waiting BLINK-2/ }).waitFor();
  await page.getByText('0 of 2, 0 failed').waitFor();
  await press(page, 'Cancel');
  await page.getByText('0 of 2, 0 failed, 2 skipped').waitFor();
  await page.getByRole('row', { name: /Skipped BLINK-1 .*cancelled/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('a lost connection shows itself and mends itself', async (t) => {
  const { page } = await openPage(t, browser, service, {
    storageState: await (await openAs(t, browser, service, 'account')).page.context().storageState(),
  });
  await page.goto('/console/organizations');
  await page.getByRole('heading', { name: 'Organizations', level: 1 }).waitFor();
  await page.context().setOffline(true);
  await page.getByRole('link', { name: 'Products', exact: true }).click();
  await page.getByText('The connection to the service is lost.').waitFor();
  t.match(page.url(), '/console/products');
  await page.context().setOffline(false);
  await page.getByRole('heading', { name: 'Products', level: 1 }).waitFor();
  t.equal(await page.getByText('The connection to the service is lost.').count(), 0);
});

t.test(
  'of several accounts the page asks for one, unless a link names it; each has its buttons of single sign-on',
  async (t) => {
    const { accountId, admin: jwt, email, password } = await service.account();
    const provider = { name: 'Company', issuer: 'https://id.example.com', clientId: 'console' };
    const { body } = await service.http('POST', '/api/v1/identity-providers', {
      token: jwt,
      body: { accountId, ...provider },
    });
    const { page } = await openPage(t, browser, service);
    await page.goto('/console/');
    await page.getByLabel('Account id').waitFor();
    await page.goto(`/console/?account=${accountId}`);
    const button = page.getByRole('link', { name: 'Sign in with Company', exact: true });
    const leads = new URL((await button.getAttribute('href')) ?? '', page.url());
    t.equal(leads.pathname, '/api/v1/oauth2/authorize');
    t.equal(leads.searchParams.get('providerId'), body.identityProvider.id);
    t.equal(await page.getByLabel('Account id').count(), 0);
    await page.getByLabel('Email address').fill(email);
    await page.getByLabel('Password', { exact: true }).fill(password);
    await press(page, 'Sign in');
    await page.getByText(email).waitFor();
  },
);

t.end();
