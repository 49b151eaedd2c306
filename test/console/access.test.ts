/** Pages as browsers take them: accessible, by keyboard alone, /docs, and files that are sent compressed. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { countLoaded, go, holdRequest, newWindow, openAs, openPage, openWindow, settled, signIn } from './browser.ts';
import { fill } from './fill.ts';
import { makeDevices } from './many.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let service: Service;
let browser: Browser;
let places: string[];
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
  places = await fill(t, service);
});

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string }[];
}

/** What axe-core finds serious or worse on the page. */
async function seriousFaults(page: Page, options = {}): Promise<string[]> {
  const violations: Violation[] = await page.evaluate(
    `axe.run(document, ${JSON.stringify({ resultTypes: ['violations'], ...options })}).then(({ violations }) => violations)`,
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
}

/** The names that more than one button of the page has, as screen readers say them. */
async function sameButtons(page: Page): Promise<string[]> {
  const names = [...(await page.locator('body').ariaSnapshot()).matchAll(/- button "(.*?)"(?= |:|$)/gm)].map(
    ([, name = '']) => name,
  );
  return names.filter((name, at) => names.indexOf(name) < at);
}

t.test(
  'every place is accessible in both colour schemes, fits a phone of 360 pixels, and asks no other host',
  async (t) => {
    // The script of axe-core is no part of the page, and its policy takes no other scripts.
    await openWindow(browser, service, { bypassCSP: true, reducedMotion: 'reduce' });
    const { page, errors, foreign } = await openAs(t, browser, service, '');
    const desk = page.viewportSize() ?? { width: 1280, height: 720 };
    await page.evaluate(axe);
    for (const place of places) {
      await go(page, place);
      t.strictSame(await seriousFaults(page), [], place);
      t.strictSame(await sameButtons(page), [], `${place} has buttons of one name`);
      await page.emulateMedia({ colorScheme: 'dark' });
      t.strictSame(await seriousFaults(page, { runOnly: ['color-contrast'] }), [], `${place}, dark`);
      await page.emulateMedia({ colorScheme: 'light' });
      await page.setViewportSize({ width: 360, height: 740 });
      const wide = await page.evaluate('document.documentElement.scrollWidth');
      t.ok(Number(wide) <= 360, `${place} is ${wide} wide`);
      await page.setViewportSize(desk);
    }
    t.strictSame([errors, foreign], [[], []]);
  },
);

t.test('the page to sign in is accessible', async (t) => {
  const { page } = await openPage(t, browser, service, { bypassCSP: true });
  await page.goto('/console/');
  await page.getByLabel('Email address').waitFor();
  await page.evaluate(axe);
  t.strictSame(await seriousFaults(page), []);
});

t.test('by keyboard alone: sign in, search, list the keys, open a device', async (t) => {
  const { page } = await openPage(t, browser, service);
  await page.goto('/console/devices');
  await page.getByLabel('Email address').focus();
  await page.keyboard.type('admin@example.com');
  await page.keyboard.press('Tab');
  await page.keyboard.type('correct horse battery');
  await page.keyboard.press('Enter');
  await headingHasFocus(page, 'Devices');
  await page.getByRole('link', { name: 'SN-0001', exact: true }).waitFor();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys', exact: true }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await page.keyboard.type('0001');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'SN-0001', level: 1 }).waitFor();
});

t.test('keys of one character are switched off for a browser, and on again', async (t) => {
  const { page } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/devices');
  await settled(page);
  const dialog = page.getByRole('dialog');
  const box = dialog.getByLabel('Use keys of one character');
  await page.keyboard.press('?');
  await box.uncheck();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await page.reload();
  await settled(page);
  await page.keyboard.press('?');
  await page.keyboard.press('/');
  t.equal(await dialog.count(), 0);
  // The other way to the list of keys.
  await page.keyboard.press('Control+k');
  await page.keyboard.type('keys');
  await page.keyboard.press('Enter');
  await box.check();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await page.getByRole('dialog', { name: 'Find anything' }).waitFor();
});

const inMenu = (page: Page, place: string) =>
  page.getByRole('navigation', { name: 'Menu', exact: true }).getByRole('link', { name: place });
const heading = (page: Page, name: string) => page.getByRole('heading', { level: 1, name, exact: true });
/** Waits for a place. A link to it has the same name, and has had the focus before. */
async function headingHasFocus(page: Page, name: string): Promise<void> {
  try {
    await heading(page, name).and(page.locator(':focus')).waitFor();
  } catch (error) {
    const seen = `[document.activeElement, ...document.querySelectorAll('h1, dialog')].map((one) => one?.outerHTML.slice(0, 300))
      .concat(location.href, performance.getEntriesByType('navigation').map(({ type }) => type))`;
    throw new Error(`"${name}" does not have the focus: ${JSON.stringify(await page.evaluate(seen))}`, {
      cause: error,
    });
  }
}

/** What has the focus, by its name. */
const focused = (page: Page) =>
  page.evaluate(
    "(document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent ?? '').trim()",
  );
t.test('the focus stays on a button that works, that is refused, and that has done it', async (t) => {
  const { device } = await service.device({ serialNumber: 'SN-FOCUS' });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/fields`);
  let tries = 0;
  let answer = () => {};
  await page.route(`**/api/v1/devices/${device.id}`, async (route) => {
    if (route.request().method() !== 'PUT') return route.continue();
    tries += 1;
    if (tries > 1) return route.continue();
    await new Promise<void>((resolve) => {
      answer = resolve;
    });
    await route.fulfill({ status: 400, json: { error: { code: -106, message: 'Not like this.' } } });
  });
  await page.getByLabel('Firmware version').fill('1.2');
  const save = page.getByRole('button', { name: 'Save', exact: true });
  const asked = page.waitForRequest((request) => request.method() === 'PUT');
  await save.focus();
  await page.keyboard.press('Enter');
  await asked;
  await page.locator('button:focus').getByText('Working …').waitFor();
  t.equal(await page.locator(':focus').getAttribute('aria-disabled'), 'true');
  await page.keyboard.press('Enter');
  answer();
  await page.getByRole('alert').getByText('Not like this.').waitFor();
  t.equal(await focused(page), 'Save');
  t.equal(tries, 1, 'a press meanwhile is no second try');
  await page.keyboard.press('Enter');
  await page.getByText('Saved.').waitFor();
  await save.and(page.locator(':focus')).waitFor();

  // At the last page "Next" has nothing more to do.
  await makeDevices(service, 60, 'FOCUS-');
  await go(page, 'devices?q=FOCUS-');
  await page.getByRole('button', { name: 'Next', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByText('Page 2 of 2').waitFor();
  t.equal(await focused(page), 'Next');
  t.strictSame(errors, []);
});

t.test(
  'after a change of place the focus is on its heading; a part of a page and a filter are no other place',
  async (t) => {
    const { device } = await service.device({ serialNumber: 'SN-PLACES' });
    const { page, errors } = await openAs(t, browser, service, 'products');
    t.equal(await page.evaluate('document.activeElement === document.body'), true, 'not when the page is loaded');
    for (const place of ['Factory', 'Devices']) {
      await inMenu(page, place).press('Enter');
      await headingHasFocus(page, place);
    }
    await page.getByLabel('Search').fill('SN-PLACES');
    await page.waitForURL(/q=SN-PLACES/);
    await page.getByRole('row', { name: /SN-PLACES/ }).waitFor();
    t.equal(await page.getByLabel('Search').and(page.locator(':focus')).count(), 1);
    await page.getByRole('link', { name: 'SN-PLACES', exact: true }).press('Enter');
    await headingHasFocus(page, 'SN-PLACES');
    await page.getByRole('link', { name: 'Log', exact: true }).press('Enter');
    await page.waitForURL(new RegExp(`${device.id}/log`));
    await settled(page);
    t.equal(await focused(page), 'Log');
    await page.keyboard.press('/');
    await page.keyboard.type('Organizations');
    await page.keyboard.press('Enter');
    await page.waitForURL(/organizations/);
    await headingHasFocus(page, 'Organizations');
    t.strictSame(errors, []);
  },
);

t.test('a place that comes late takes the focus, but not from who has gone on meanwhile', async (t) => {
  await service.device({ serialNumber: 'SN-LATE' });
  // A window of its own has none of the files that are held.
  const { page, errors } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, '/console/products');
  await settled(page);
  /** Goes to a place, and does something before its file is there. */
  const meanwhile = async (file: string, goThere: () => Promise<void>, act: () => Promise<unknown>) => {
    const { asked } = await holdRequest(page, `**/console/files/${file}-*.js`);
    await goThere();
    const route = await asked;
    await act();
    await route.continue();
  };
  const enter = (place: string) => () => inMenu(page, place).press('Enter');

  await meanwhile('factory', enter('Factory'), () => inMenu(page, 'Devices').focus());
  await heading(page, 'Factory').waitFor();
  await page.keyboard.press('Enter');
  await headingHasFocus(page, 'Devices');

  // Also when what had the focus has gone with the place before.
  await go(page, 'devices?q=SN-LATE');
  const row = () => page.getByRole('link', { name: 'SN-LATE', exact: true }).press('Enter');
  await meanwhile('device', row, () => inMenu(page, 'Programs').focus());
  await heading(page, 'SN-LATE').waitFor();
  t.equal(await inMenu(page, 'Programs').and(page.locator(':focus')).count(), 1);

  // A dialog that was opened meanwhile gives the focus back, and one that leads to a place, too.
  const lookFor = async (text: string, end: string) => {
    await page.keyboard.press('/');
    await page.keyboard.type(text);
    await page.keyboard.press(end);
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  };
  await meanwhile('programs', enter('Programs'), () => lookFor('', 'Escape'));
  await headingHasFocus(page, 'Programs');
  await inMenu(page, 'Programs').focus();
  await meanwhile(
    'organizations',
    () => lookFor('Organizations', 'Enter'),
    async () => t.equal(await inMenu(page, 'Programs').and(page.locator(':focus')).count(), 1),
  );
  await headingHasFocus(page, 'Organizations');
  t.strictSame(errors, []);
});

t.test('a dialog gives the focus back, and when what had it is gone it goes to what was around it', async (t) => {
  await makeDevices(service, 3, 'GIVE-');
  const { page, errors } = await openAs(t, browser, service, 'devices?q=GIVE-');
  for (const end of ['Escape', 'Cancel']) {
    await page.getByRole('button', { name: 'New device', exact: true }).press('Enter');
    await page.getByRole('dialog').getByLabel('Serial number').waitFor();
    if (end === 'Escape') await page.keyboard.press(end);
    else await page.getByRole('button', { name: end }).press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    t.equal(await focused(page), 'New device', end);
  }
  const row = (name: string) => page.locator('tr').filter({ hasText: name });
  const remove = async (name: string, before: () => Promise<unknown> = async () => {}) => {
    await page.getByRole('button', { name: `Actions of ${name}`, exact: true }).press('Enter');
    await page.getByRole('menuitem', { name: 'Delete', exact: true }).press('Enter');
    await page.getByText('This concerns 1 device.').waitFor();
    await before();
    await page
      .getByRole('dialog')
      .getByRole('button', { name: /^Delete/ })
      .press('Enter');
    await row(name).waitFor({ state: 'detached' });
    await page.getByRole('region', { name: 'Devices' }).and(page.locator(':focus')).waitFor();
  };
  await remove('GIVE-0');
  // The list may see that it is gone before the dialog closes.
  await remove('GIVE-1', () =>
    page.route('**/provisioning/jobs/*', async (route) => {
      await row('GIVE-1').waitFor({ state: 'detached' });
      await route.continue();
    }),
  );
  t.strictSame(errors, []);
});

t.test(
  'a row that finds another place in its list keeps the focus, which nobody keeps who presses beside it',
  async (t) => {
    await makeDevices(service, 3, 'PLACED-');
    const { page, errors } = await openAs(t, browser, service, 'devices?q=PLACED-');
    const link = (name: string) => page.getByRole('link', { name, exact: true });
    const sorted = async (order: string, first: string) => {
      await page.evaluate(`history.replaceState(null, '', '/console/devices?q=PLACED-&order=${order}')`);
      await page.locator('tbody tr:first-child').getByText(first).waitFor();
    };
    // Of the rows some are moved, and the others are where they were.
    for (const name of ['PLACED-0', 'PLACED-1', 'PLACED-2']) {
      await link(name).focus();
      for (const [order, first] of [['desc', 'PLACED-2'] as const, ['asc', 'PLACED-0'] as const]) {
        await sorted(order, first);
        t.equal(await link(name).and(page.locator(':focus')).count(), 1, `${name} ${order}`);
      }
    }
    await page.mouse.click(2, 2);
    await sorted('desc', 'PLACED-2');
    t.equal(await page.evaluate('document.activeElement === document.body'), true);
    t.strictSame(errors, []);
  },
);

/** Drawing the page takes seconds: the tests share one. */
let page: Page;
const failures: string[] = [];
t.teardown(() => page.context().close());

t.test('/docs opens with every tag collapsed, and a tag opens with its operations', async (t) => {
  page = await (await newWindow(browser)).newPage();
  page.on('pageerror', (error) => failures.push(error.message));
  page.on('console', (message) => message.type() === 'error' && failures.push(message.text()));
  await page.goto(`${service.server.url}/docs`);
  t.equal(await page.title(), 'Slipway API');
  const tag = page.locator('.opblock-tag').first();
  await tag.waitFor();
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  t.match(await page.locator('.info .title').textContent(), `Slipway ${version}`);
  // Our own picture, which is seen once it is decoded.
  await page.locator('.topbar img[src^="data:image/svg+xml"]').waitFor();
  const { tags } = JSON.parse((await service.http('GET', '/openapi.json')).text);
  await until(
    () => page.locator('.opblock-tag').count(),
    (count) => count >= (tags?.length ?? 1),
  );
  t.equal(await page.locator('.opblock').count(), 0, 'no operation is shown');
  const settings = await (await fetch(`${service.server.url}/docs/static/swagger-initializer.js`)).text();
  t.match(settings, 'components,securitySchemes', 'nor is the whole document resolved, which takes a second');
  await tag.click();
  await page.locator('.opblock').first().waitFor();
});

t.test('/docs shows an operation with its fields, and every way to authorize', async (t) => {
  await page.locator('.authorize').first().click();
  await page.locator('.auth-container').first().waitFor();
  const { components } = JSON.parse((await service.http('GET', '/openapi.json')).text);
  const schemes = Object.keys(components.securitySchemes);
  const shown = await page.locator('.auth-container h4 code').allTextContents();
  t.strictSame(shown.sort(), schemes.sort());
  await page.locator('.modal-ux .close-modal').click();

  const device = page.locator('[id$="-createDevice"]');
  if (!(await device.isVisible())) await page.locator('#operations-tag-Devices').click();
  await page.locator('[id$="-createDevice"] .opblock-summary-control').click();
  await page.locator('[id$="-createDevice"]').getByText('serialNumber').first().waitFor();
  t.strictSame(failures, []);
});

t.test('with an empty cache, the page to sign in, Home and devices load less than 130 KB each', async (t) => {
  const storageState = await (await openAs(t, browser, service, 'account')).page.context().storageState();
  for (const place of ['', 'home', 'devices']) {
    const { page } = await openPage(t, browser, service, place === '' ? {} : { storageState });
    const loaded = await countLoaded(page);
    await page.goto(`/console/${place}`);
    await (place === '' ? page.getByLabel('Email address').waitFor() : settled(page));
    await page.waitForLoadState('networkidle');
    const bytes = loaded();
    t.ok(bytes > 20 * 1024 && bytes < 130 * 1024, `${place}: ${Math.round(bytes / 1024)} KB`);
  }
});

t.test('the files of the console are sent compressed to those who accept it, and as they are to others', async (t) => {
  const page = await service.http('GET', '/console/', { token: null });
  const [, main = ''] = /src="(\/console\/files\/main-[^"]+)"/.exec(page.text) ?? [];
  const read = (encoding: string) =>
    service.http('GET', main, { token: null, headers: { 'accept-encoding': encoding } });
  const plain = await read('identity');
  t.equal(plain.headers.get('content-encoding'), null);
  const lengths: Record<string, number> = {};
  for (const [asked, sent] of [
    ['gzip, deflate, br', 'br'],
    ['gzip', 'gzip'],
  ] as const) {
    const { status, headers, text } = await read(asked);
    t.match([status, headers.get('content-encoding'), text === plain.text], [200, sent, true]);
    t.match(headers.get('content-type'), /javascript/);
    lengths[sent] = Number(headers.get('content-length'));
  }
  for (const { headers } of [plain, await read('br')]) {
    t.match(headers.get('vary'), /accept-encoding/i);
    t.match(headers.get('cache-control'), /immutable/);
  }
  t.ok((lengths.br ?? 0) < (lengths.gzip ?? 0) && (lengths.gzip ?? 0) < plain.text.length / 2, JSON.stringify(lengths));
  t.equal((await service.http('GET', `${main}.br`, { token: null })).status, 404, 'there is no other address for it');
});

t.end();
