/** Search everywhere, in a real browser. */
import type { Browser, Page } from 'playwright-core';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { openAs, openPage, signIn } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

const palette = (page: Page) => page.getByRole('combobox', { name: 'Find anything' });
const option = (page: Page, name: RegExp) => page.getByRole('option', { name, exact: true });
/** Waits until the palette says how many it has found: before that it shows what a shorter text has found. */
const answered = (page: Page) => page.locator('.palette').getByRole('status').getByText(/./).waitFor();
const heading = (page: Page, name: string) => page.getByRole('heading', { name, level: 1 }).waitFor();

t.test('three keys find a device, and what else has a name; places and actions too, all by keyboard', async (t) => {
  const organization = await service.organization({ name: 'Quarry' });
  await service.template({ name: 'Quarry pump' });
  await service.endUser(organization.id, { name: 'Ada Quarryman' });
  await service.device({ serialNumber: 'QX-7', name: 'Quarry gate' });
  const { page, errors } = await openAs(t, browser, service, 'account');
  await page.keyboard.press('/');
  await page.keyboard.type('qua');
  await answered(page);
  const offered = (await page.getByRole('option').allTextContents()).map((one) => one.trim());
  t.match(offered, [/^QX-7 Quarry gate/, /^Quarry/, /^Ada Quarryman user\S+@example.com/, /^Quarry pump/]);
  t.equal(await page.locator('.palette').getByRole('group').count(), 4, 'in groups');
  await page.keyboard.press('Enter');
  await heading(page, 'QX-7');

  // Also from a field, and with the arrows.
  await page.keyboard.press('Control+k');
  await page.keyboard.type('quarry');
  await answered(page);
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('ArrowDown');
  t.match(await page.locator('[role=option][aria-selected=true]').textContent(), /Quarry pump/);
  const active = await palette(page).getAttribute('aria-activedescendant');
  t.equal(await page.locator('[role=option][aria-selected=true]').getAttribute('id'), active, 'said to screen readers');
  await page.keyboard.press('Enter');
  await heading(page, 'Quarry pump');

  await page.keyboard.press('/');
  await page.keyboard.type('firmware');
  await page.keyboard.press('Enter');
  await heading(page, 'Firmware');
  await page.keyboard.press('/');
  await page.keyboard.type('new dev');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'New device', exact: true }).waitFor();
  t.strictSame(errors, []);
});

t.test('parts, settings, actions and the guide are found, by other words and by questions too', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'products');
  const search = async (text: string) => {
    await page.keyboard.press('/');
    await page.keyboard.insertText(text);
  };
  for (const [text, name, title] of [
    ['single sign-on', /^Identity providers Programs/, 'Programs'],
    ['quota', /^Usage Account/, 'Account'],
  ] as const) {
    await search(text);
    await option(page, name).click();
    await heading(page, title);
  }
  await search('new bridge');
  await option(page, /^New bridge/).click();
  await page
    .getByRole('dialog', { name: 'New bridge', exact: true })
    .getByRole('button', { name: 'Cancel', exact: true })
    .click();
  await search('How do I get signing up with a code?');
  const opened = page.context().waitForEvent('page');
  await option(page, /^Signing up with a code/).click();
  const guide = await opened;
  await guide.waitForURL(/\/guide\/identity#signing-up-with-a-code$/);
  await guide.getByRole('heading', { name: 'Signing up with a code', exact: true }).waitFor();
  await guide.close();
  t.strictSame(errors, []);
});

t.test(
  'a device is found by a field, its code and its firmware; what was open lately is first, for this person',
  async (t) => {
    const product = await service.template({ name: 'Roomed' });
    const field = { deviceTemplateId: product.id, name: 'room', fieldType: 'string' };
    await service.create('/devices/custom-fields', 'deviceField', field);
    const { device } = await service.device({
      serialNumber: 'RM-1',
      deviceTemplateId: product.id,
      room: 'Boiler cellar',
    });
    await service.device({ serialNumber: 'RM-2', deviceTemplateId: product.id });
    const body = { deviceId: device.id };
    const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', { body });
    const { page } = await openPage(t, browser, service);
    await signIn(page, undefined, undefined, '/console/products');
    await heading(page, 'Products');
    for (const text of ['boiler', associationCode]) {
      await page.keyboard.press('/');
      await page.keyboard.insertText(text);
      await option(page, text === 'boiler' ? /RM-1 room: Boiler cellar/ : /RM-1/).click();
      await heading(page, 'RM-1');
      await page.goto('/console/products');
      await heading(page, 'Products');
    }
    const first = () => page.getByRole('option').first().textContent();
    await page.keyboard.press('/');
    t.match(await first(), /RM-1/);
    await palette(page).fill('rm-');
    await answered(page);
    await option(page, /RM-2/).waitFor();
    t.match(await first(), /RM-1/);
    t.equal(await option(page, /RM-1/).count(), 1, 'once');
    await palette(page).fill('');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.getByLabel('Email address').waitFor();
    t.equal(await page.evaluate("localStorage['slipway-recent']"), undefined, 'nobody else reads it');
  },
);

t.test('what is typed right after the key that opens it is in it', async (t) => {
  const { page } = await openAs(t, browser, service, 'products');
  const focusAfter = (init: object) =>
    page.evaluate(`
      document.body.dispatchEvent(new KeyboardEvent('keydown', { bubbles: true, ...${JSON.stringify(init)} }));
      // What is no longer shown has the focus until the next frame.
      document.activeElement.closest('dialog[open]') && document.activeElement.getAttribute('role')`);
  // The last three are a Russian, a Greek and a Dvorak keyboard.
  const opening = [
    { key: '/' },
    { key: 'k', code: 'KeyK', ctrlKey: true },
    { key: 'K', code: 'KeyK', metaKey: true },
    { key: 'л', code: 'KeyK', ctrlKey: true },
    { key: 'κ', code: 'KeyK', ctrlKey: true },
    { key: 'k', code: 'KeyV', ctrlKey: true },
  ];
  for (const init of opening) {
    t.equal(await focusAfter(init), 'combobox', `${JSON.stringify(init)} opens it at once`);
    await page.keyboard.press('Escape');
    await palette(page).waitFor({ state: 'detached' });
  }
  for (const init of [
    { key: 't', code: 'KeyK', ctrlKey: true },
    { key: 'л', code: 'KeyK' },
  ])
    t.not(await focusAfter(init), 'combobox', `${JSON.stringify(init)} does not`);
});

t.test('keys of an input method choose its characters, and nothing of what is found', async (t) => {
  await service.organization({ name: '組織' });
  const { page, errors } = await openAs(t, browser, service, 'products');
  await page.keyboard.press('/');
  const keyboard = await page.context().newCDPSession(page);
  await keyboard.send('Input.imeSetComposition', { text: '組', selectionStart: 1, selectionEnd: 1 });
  await answered(page);
  await option(page, /組織/).waitFor();
  const selected = () => page.locator('[role=option][aria-selected=true]').textContent();
  const first = await selected();
  // Safari says of the key that ends it by its code alone that it belongs to the input method.
  for (const said of ['isComposing: true', 'keyCode: 229'])
    for (const key of ['ArrowDown', 'Enter']) {
      const isTaken = await page.evaluate(`!document.activeElement.dispatchEvent(
        new KeyboardEvent('keydown', { bubbles: true, cancelable: true, key: '${key}', ${said} }))`);
      t.equal(isTaken, false, `${key}, ${said}`);
      t.equal(await selected(), first);
    }
  await keyboard.send('Input.insertText', { text: '組織' });
  t.equal(await palette(page).inputValue(), '組織');
  await page.keyboard.press('Enter');
  await heading(page, '組織');
  t.strictSame(errors, []);
});

t.test('a key right after Escape opens the search, before the dialog has said that it is closed', async (t) => {
  const { page } = await openAs(t, browser, service, 'products');
  for (const key of ['?', '/']) {
    const open = (key: string) =>
      `document.body.dispatchEvent(new KeyboardEvent('keydown', { bubbles: true, key: '${key}' }));`;
    const isOpen = await page.evaluate(`
      ${open(key)}
      const first = document.querySelector('dialog[open]');
      const said = new Promise((resolve) => first.addEventListener('close', () => setTimeout(resolve)));
      first.close();
      ${open('/')}
      said.then(() => document.querySelector('dialog.palette[open]') !== null)`);
    t.ok(isOpen, `after ${key}`);
    await page.keyboard.type('organ');
    t.equal(await palette(page).inputValue(), 'organ');
    await palette(page).fill('');
    await page.keyboard.press('Escape');
    await palette(page).waitFor({ state: 'detached' });
  }
});

t.test('a scanner types a serial number and Enter at once', async (t) => {
  await service.device({ serialNumber: 'SCANNED-0815' });
  const { page } = await openAs(t, browser, service, 'products');
  await page.keyboard.press('/');
  await page.keyboard.insertText('SCANNED-0815');
  await page.keyboard.press('Enter');
  await heading(page, 'SCANNED-0815');
});

t.test('the focus stays in the palette, and returns to where it was', async (t) => {
  const { page } = await openAs(t, browser, service, 'products');
  const button = page.getByRole('button', { name: 'New product', exact: true });
  await button.focus();
  await page.keyboard.press('/');
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('Tab');
  t.ok(await page.evaluate('!document.activeElement.closest(".shell nav, main")'), 'not in the page behind it');
  await page.keyboard.press('Escape');
  await palette(page).waitFor({ state: 'detached' });
  t.ok(await page.getByRole('button', { name: 'New product', exact: true }).and(page.locator(':focus')).count());
  await page.keyboard.press('/');
  await page.keyboard.type('zzzz-nothing');
  await page.getByRole('status').getByText('Nothing is found.').waitFor();
});

t.test('what an action opens has the focus before a frame is drawn, so that the next key is in it', async (t) => {
  const { page } = await openAs(t, browser, service, 'products');
  await page.keyboard.press('/');
  await page.keyboard.type('new prod');
  await option(page, /New product/).waitFor();
  // By its name: what a shorter text has found may still stand before it.
  const isIn = await page.evaluate(`(async () => {
    [...document.querySelectorAll('[role=option]')].find((one) => one.textContent.includes('New product')).click();
    for (let turn = 0; turn < 20; turn += 1) await null;
    return document.activeElement.closest('dialog:not(.palette)') !== null;
  })()`);
  t.ok(isIn);
  await page.keyboard.type('Lamp');
  t.equal(await page.getByRole('dialog', { name: 'New product', exact: true }).getByLabel('Name').inputValue(), 'Lamp');
});

t.test('an end-user on a phone finds its own only', async (t) => {
  const organization = await service.organization({ name: 'Phone home' });
  const person = await service.endUser(organization.id);
  await service.device({ serialNumber: 'PHONE-OWN', organizationId: organization.id });
  await service.device({ serialNumber: 'PHONE-OTHER' });
  const { page, errors } = await openPage(t, browser, service, { viewport: { width: 360, height: 740 } });
  await signIn(page, person.email, person.password, '/console/devices');
  await page.getByRole('button', { name: 'Find anything' }).click();
  await palette(page).fill('phone');
  await option(page, /PHONE-OWN/).waitFor();
  t.equal(await option(page, /PHONE-OTHER/).count(), 0);
  t.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= 360);
  await option(page, /PHONE-OWN/).click();
  await heading(page, 'PHONE-OWN');
  await page.getByRole('button', { name: 'Find anything' }).click();
  await palette(page).fill('factory');
  await page.getByRole('status').getByText('Nothing is found.').waitFor();
  t.strictSame(errors, []);
});

t.end();
