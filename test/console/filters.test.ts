/** The filter bar of devices and fleets, in a real browser: by choosing, by text, by keyboard alone, and on a phone. */
import type { Browser, Page } from 'playwright-core';
import { builtIn, operators } from '../../console/devices/filter/attributes.ts';
import { joined, partsOf, termText } from '../../console/devices/filter/text.ts';
import { publish, rollOut } from '../firmware/fleet.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { go, openAs, openPage, settled, signIn } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
let deviceTemplateId: string;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
  deviceTemplateId = (await service.template({ name: 'Cooler' })).id;
  for (const [name, fieldType] of [
    ['Shelf no.', 'int'],
    ['room', 'string'],
  ])
    await service.create('/devices/custom-fields', 'deviceField', { deviceTemplateId, name, fieldType });
});

const cooler = (serialNumber: string, more: object = {}) =>
  service.create('/devices', 'device', { serialNumber, deviceTemplateId, ...more });
const button = (page: Page, name: string | RegExp) =>
  page.getByRole('button', typeof name === 'string' ? { name, exact: true } : { name });
const text = (page: Page) => page.getByLabel('Filter as text', { exact: true });
/** Types a part of a name, and chooses the only one that has it. */
async function chooseByKeys(page: Page, typed: string): Promise<void> {
  await page.getByRole('dialog').waitFor();
  await page.keyboard.type(typed);
  await until(
    () => page.getByRole('dialog').locator('.options:not([aria-busy]) [role=option]').count(),
    (count) => count === 1,
  );
  await page.keyboard.press('Enter');
}
const listed = (page: Page, ...serialNumbers: string[]) =>
  until(
    () => page.locator('tbody a').allTextContents(),
    (found) => found.join() === serialNumbers.join(),
  );
const place = (filter: string, more = '') => `devices?${new URLSearchParams({ filter })}${more}`;

t.test('the service takes every comparison that the form offers', async (t) => {
  const values = {
    ...{ text: 'x', version: '1.10', number: 7, date: '-PT1H', flag: true, state: 'defined', update: 'failed' },
    ...{ product: deviceTemplateId, place: deviceTemplateId, below: deviceTemplateId },
  };
  const all = builtIn(() => true).flatMap(({ names, kind }) =>
    operators[kind].map((operator) => ({ text: termText({ names, operator, value: values[kind] }) })),
  );
  t.ok(all.length > 200);
  for (let from = 0; from < all.length; from += 50) {
    const filter = joined(all.slice(from, from + 50));
    t.same(
      partsOf(filter)?.map((part) => part.term && termText(part.term)),
      filter.split(' and '),
    );
    await service.ok('POST', '/api/v1/fleets/preview', { body: { accountId: service.accountId, filter } });
  }
});

t.test('by keyboard alone a filter is chosen, changed and taken away, and its text says the same', async (t) => {
  await cooler('KEY-1', { 'Shelf no.': 3, firmwareVersion: '1.9.3', room: 'cold' });
  await cooler('KEY-2', { 'Shelf no.': 7, firmwareVersion: '1.10.0', room: 'hall' });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=KEY-');
  await listed(page, 'KEY-1', 'KEY-2');
  await button(page, 'Filter by …').focus();
  await page.keyboard.press('Enter');
  await chooseByKeys(page, 'shelf');
  await page.keyboard.press('Tab');
  // Is, is not, is more than, is at least.
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  await page.keyboard.type('7');
  await page.keyboard.press('Enter');
  await listed(page, 'KEY-2');
  t.equal(await text(page).inputValue(), 'fields."Shelf no." ge 7');
  t.equal(await page.evaluate('document.activeElement.textContent.trim()'), 'Filter by …', 'the focus is back');

  // Versions are offered, and compared as such.
  await page.keyboard.press('Enter');
  await chooseByKeys(page, 'firmware ver');
  await page.locator('datalist option[value="1.10.0"]').waitFor({ state: 'attached' });
  t.equal(await page.locator('datalist option').count(), 1, 'values are those of devices that match the rest');
  await page.keyboard.press('Tab');
  for (let n = 0; n < 2; n += 1) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  await page.keyboard.type('1.10');
  await page.keyboard.press('Enter');
  await page.getByText('No device matches these filters.').waitFor();
  t.equal(await text(page).inputValue(), 'fields."Shelf no." ge 7 and firmwareVersion lt "1.10"');

  await button(page, 'Change the filter: Shelf no. is at least 7').focus();
  await page.keyboard.press('Enter');
  const value = page.getByRole('dialog').getByLabel('Value', { exact: true });
  t.equal(await value.inputValue(), '7');
  await value.focus();
  await page.keyboard.press('ControlOrMeta+A');
  await page.keyboard.type('3');
  await page.keyboard.press('Enter');
  await listed(page, 'KEY-1');
  await button(page, 'Remove the filter: Firmware version is older than 1.10').focus();
  await page.keyboard.press('Enter');
  await listed(page, 'KEY-1', 'KEY-2');
  t.equal(await text(page).inputValue(), 'fields."Shelf no." ge 3');
  t.equal(await page.evaluate("document.activeElement.getAttribute('aria-label')"), 'Filters');
  t.match(page.url(), /q=KEY-/);
  t.strictSame(errors, []);
});

t.test('a text makes chips where it can, and a wrong one shows the character and no device', async (t) => {
  await cooler('TEXT-1', { room: 'cold' });
  await cooler('TEXT-2', { room: 'hall' });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=TEXT-');
  await text(page).fill('(fields.room eq "cold" or name pr) and not (connected eq true) and room.x');
  await text(page).press('Enter');
  const alert = page.getByRole('alert');
  await alert.getByText('At character 74: an operator').waitFor();
  await page.getByText('The filter cannot be used as it is, so no device is shown.').waitFor();
  t.equal(await page.locator('tbody a').count(), 0);
  t.equal(await button(page, 'Delete devices').count(), 0, 'nothing is done to what nobody chose');
  t.equal(await button(page, 'Save as fleet').count(), 0);
  t.equal(await button(page, 'Filter by …').getAttribute('aria-disabled'), 'true');
  t.match(await text(page).inputValue(), /room\.x$/, 'what was typed stays');

  await text(page).fill('fields.rom eq "cold" and serialNumber pr');
  await text(page).press('Enter');
  await alert.getByText('At character 1: fields.rom is unknown. Is fields.room meant?').waitFor();
  t.equal(await alert.locator('mark').textContent(), 'fields.rom');
  t.equal(
    await page.evaluate(
      `(({ value, selectionStart, selectionEnd }) => value.slice(selectionStart, selectionEnd))(document.activeElement)`,
    ),
    'fields.rom',
    'it is selected where somebody has just typed it',
  );
  await button(page, 'Remove the filter: rom is cold').click();
  await listed(page, 'TEXT-1', 'TEXT-2');
  await alert.waitFor({ state: 'detached' });

  // What is no single comparison stays as it is written, next to what was added.
  const groups = '(fields.room eq "cold" or name pr) and not (connected eq true)';
  await text(page).fill(groups);
  await text(page).press('Enter');
  await listed(page, 'TEXT-1');
  await button(page, 'Remove the filter: not (connected eq true)').waitFor();
  await button(page, 'Filter by …').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('combobox', { name: 'What', exact: true }).fill('last conn');
  await page.getByRole('option', { name: 'Last connected', exact: true }).click();
  await dialog.getByLabel('How').selectOption({ label: 'has no value' });
  await button(page, 'Apply').click();
  await button(page, 'Change the filter: Last connected has no value').waitFor();
  t.equal(await text(page).inputValue(), `${groups} and lastConnected eq null`);
  await page.reload();
  await listed(page, 'TEXT-1');
  t.equal(await text(page).inputValue(), `${groups} and lastConnected eq null`, 'the address has all of it');
  await go(page, place('connected eq true or room eq 1'));
  await alert.getByText('At character 22: room is unknown.').waitFor();
  t.strictSame(errors, []);
});

t.test('addresses of before go on working, and become the same chips', async (t) => {
  const organization = await service.organization({ name: 'Old address' });
  const below = await service.organization({ name: 'Below it', parentId: organization.id });
  await cooler('OLD-1', { organizationId: below.id, firmwareVersion: '2.10.1' });
  await cooler('OLD-2', { organizationId: organization.id, firmwareVersion: '3.0' });
  await cooler('OLD-3', { firmwareVersion: '2.10.1' });
  const old = { organization: organization.id, product: deviceTemplateId, state: 'defined', connected: 'false' };
  const { page, errors } = await openAs(
    t,
    browser,
    service,
    `devices?${new URLSearchParams({ ...old, firmware: '2.*' })}`,
  );
  await listed(page, 'OLD-1');
  for (const says of [
    'Organization, with those below is Old address',
    'Product is Cooler',
    'State is Defined',
    'Connection is Offline',
  ])
    await button(page, `Change the filter: ${says}`).waitFor();
  await button(page, 'Remove the filter: Firmware version begins with 2.').click();
  await listed(page, 'OLD-1', 'OLD-2');
  t.strictSame([...new URL(page.url()).searchParams.keys()], ['filter']);
  await go(page, 'devices?silent=true&offlineSince=2020-01-01T00:00:00Z');
  await button(page, 'Change the filter: Silent for longer than usual is Yes').waitFor();
  await button(page, /^Change the filter: Offline since is at or after .*2020/).waitFor();
  t.strictSame(errors, []);
});

t.test('what is done to all that match is done to what the search and the filter find, and to no other', async (t) => {
  const target = await service.organization({ name: 'Bulk target' });
  await cooler('MANY-1', { room: 'cold' });
  await cooler('MANY-2', { room: 'hall' });
  await cooler('OTHER-MANY', { room: 'cold' });
  const { page, errors } = await openAs(t, browser, service, place('fields.room eq "cold"', '&q=MANY-'));
  await page.getByText('1 match the filters').waitFor();
  await button(page, 'Move to …').click();
  await page.getByRole('dialog').getByLabel('Organization').selectOption({ label: 'Bulk target' });
  await button(page, 'Count first').click();
  await page.getByText('This concerns 1 device.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Move to …', exact: true }).click();
  await page.getByText('1 done, 0 failed.').waitFor();
  const { devices } = await service.ok(
    'GET',
    `/api/v1/devices?accountId=${service.accountId}&organizationId=${target.id}`,
  );
  t.same(
    devices.results.map(({ serialNumber }) => serialNumber),
    ['MANY-1'],
  );
  await go(page, place('fields.room eq "cold"', '&q=MANY*'));
  await listed(page, 'MANY-1');
  await page.getByText('To change all that match, search without *').waitFor();
  t.equal(await button(page, 'Delete devices').count(), 0);
  t.strictSame(errors, []);
});

t.test('a filter is saved as a fleet, whose page shows its devices, where they are and what uses it', async (t) => {
  await cooler('FLEET-1', { latitude: 52.5, longitude: 13.4, firmwareVersion: '1.0' });
  await cooler('FLEET-2', { latitude: 48.1, longitude: 11.6, firmwareVersion: '1.5' });
  await cooler('FLEET-3', { firmwareVersion: '3.0' });
  const { page, errors } = await openAs(t, browser, service, place('firmwareVersion lt "2.0"', '&q=FLEET-'));
  await listed(page, 'FLEET-1', 'FLEET-2');
  await button(page, 'Save as fleet').click();
  const dialog = page.getByRole('dialog');
  t.equal(await dialog.getByLabel('Filter').inputValue(), 'firmwareVersion lt "2.0" and serialNumber co "FLEET-"');
  await dialog.getByLabel('Name', { exact: true }).fill('Old coolers');
  await button(page, 'Create').click();
  await page.getByRole('heading', { name: 'Old coolers', level: 1 }).waitFor();
  await page.getByText('2 devices', { exact: true }).waitFor();
  await listed(page, 'FLEET-1', 'FLEET-2');
  await page.getByRole('img', { name: 'Map with the positions of 2 devices', exact: true }).waitFor();
  t.match(await page.locator('.map .dots').getAttribute('d'), /^M[\d.]+ [\d.]+h0M[\d.]+ [\d.]+h0$/);
  await page.getByText('Nothing uses this fleet.').waitFor();
  await page.getByText('Firmware version is older than 2.0').waitFor();

  const fleetId = /fleets\/(.*)$/.exec(page.url())?.[1] ?? '';
  await go(page, 'fleets');
  await page.getByRole('row', { name: /Old coolers .*firmwareVersion lt "2\.0"/ }).waitFor();
  await page.getByRole('link', { name: 'Old coolers', exact: true }).click();
  await page.getByRole('link', { name: 'Open in Devices', exact: true }).click();
  await button(page, 'Change the filter: Firmware version is older than 2.0').waitFor();
  await listed(page, 'FLEET-1', 'FLEET-2');
  await page.getByRole('link', { name: 'FLEET-1', exact: true }).click();
  await page.locator('.about').getByRole('link', { name: 'Old coolers', exact: true }).click();
  await page.getByRole('heading', { name: 'Old coolers', level: 1 }).waitFor();

  await button(page, 'Edit').click();
  await dialog.getByLabel('Filter').fill('firmwareVersion lt 2');
  await button(page, 'Save').click();
  await dialog.getByRole('alert').getByText('At character 1: firmwareVersion takes').waitFor();
  await dialog.getByLabel('Filter').fill('serialNumber eq "FLEET-3"');
  await button(page, 'Save').click();
  await listed(page, 'FLEET-3');
  await page.getByText('None of its devices has a position.').waitFor();
  await button(page, 'Delete').click();
  await page.getByText('There are no fleets yet.').waitFor();
  t.equal((await service.http('GET', `/api/v1/fleets/${fleetId}`)).status, 410);
  await page.getByRole('link', { name: 'Show deleted fleets', exact: true }).click();
  await button(page, 'Recover Old coolers').click();
  await page.getByText('Old coolers was recovered.').waitFor();
  await go(page, `fleets/${fleetId}`);
  await listed(page, 'FLEET-3');
  t.strictSame(errors, []);
});

t.test('a fleet names the rollouts to it, and says what of its filter is gone', async (t) => {
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId, name: 'passing', fieldType: 'string' },
  });
  const filter = 'not (fields.passing eq "x") and serialNumber eq "GONE-1"';
  await cooler('GONE-1');
  const fleet = await service.create('/fleets', 'fleet', { name: 'Gone', filter });
  const firmware = await publish(service, deviceTemplateId, '9.0');
  const { id } = await rollOut(service, firmware, { target: { fleetId: fleet.id }, stages: [{ percent: 100 }] });
  await rollOut(service, firmware, { target: { filter: 'serialNumber eq "x"' }, stages: [{ percent: 100 }] });
  await service.ok('DELETE', `/api/v1/devices/custom-fields/${field.id}`, { headers: { etag: field.version } });
  const { page, errors } = await openAs(t, browser, service, `fleets/${fleet.id}`);
  await page.getByText('At character 6: fields.passing is unknown.').waitFor();
  await listed(page, 'GONE-1');
  const uses = page.locator('main a[href*="/firmware/rollouts/"]');
  await until(() => uses.count());
  t.equal(await uses.getAttribute('href'), `/console/firmware/rollouts/${id}`, 'and no other');
  await page.getByRole('link', { name: 'Open in Devices', exact: true }).click();
  await page.getByRole('alert').getByText('At character 6: fields.passing is unknown.').waitFor();
  t.equal(await page.locator('tbody a').count(), 0);
  t.strictSame(errors, []);
});

t.test('on a phone chips wrap, fingers find them, and the text folds until it is wanted', async (t) => {
  await cooler('PHONE-1', { room: 'cold' });
  const { page, errors } = await openPage(t, browser, service, { viewport: { width: 360, height: 740 } });
  const filter = 'fields.room eq "cold" and firmwareVersion eq null and (connected eq true or connected eq false)';
  await signIn(page, undefined, undefined, `/console/${place(filter, '&q=PHONE')}`);
  await settled(page);
  await listed(page, 'PHONE-1');
  t.notOk(await text(page).isVisible());
  const heights: number[] = await page.evaluate(
    `[...document.querySelectorAll('.filters button, .stays, .folding > button.fold')].map((one) => Math.min(...['width', 'height'].map((side) => one.getBoundingClientRect()[side])))`,
  );
  t.ok(heights.length >= 8, `${heights}`);
  t.ok(
    heights.every((size) => size >= 44),
    `${heights}`,
  );
  t.ok(Number(await page.evaluate('document.documentElement.scrollWidth')) <= 360);
  await button(page, 'More').click();
  await text(page).fill('room');
  await text(page).press('Enter');
  await page.getByRole('alert').getByText('At character 5').waitFor();
  await button(page, 'More').click();
  t.ok(await text(page).isVisible(), 'what has to be put right does not fold');
  t.strictSame(errors, []);
});

t.end();
