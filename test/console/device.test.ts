/** The page of a device: what it says now, where it is, and a refusal that a button mends. */
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { metric } from '../broker/metrics.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { holdUndo, openAs, openPage, signIn } from './browser.ts';
import { domOf } from './dom.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

/** A device of a product of its own, which publishes. */
async function publishing(serialNumber: string, more = {}) {
  const { id: deviceTemplateId } = await service.template({
    name: `Product of ${serialNumber}`,
    channels: ['readings'],
  });
  const { device, secret } = await service.device({ serialNumber, deviceTemplateId, ...more });
  const client = await service.connect({ deviceId: device.id, secret });
  const say = (text: string, channel = 'readings') =>
    client.publishAsync(service.topic(device.id, channel), text, { qos: 1 });
  return { device, say };
}

t.test(
  'a device opens on its latest values, each with its age and the line of its day, and follows them',
  async (t) => {
    const { device, say } = await publishing('SN-NOW');
    const of = `accountId=${service.accountId}&entityId=${device.deviceTemplateId}&pageSize=100`;
    const { channelTemplates } = await service.ok('GET', `/api/v1/channels/templates?${of}`);
    const channel = channelTemplates.results.find(({ name }) => name === 'readings');
    await service.ok('PUT', `/api/v1/channels/templates/${channel?.id}`, {
      body: { categories: [{ name: 'temperature', label: 'Boiler', unit: '°C', kind: 'number' }] },
      headers: { etag: channel?.version ?? '' },
    });
    const hour = (ago: number) => new Date(Date.now() - ago * 3_600_000).toISOString();
    await say([5, 4, 3, 2].map((ago) => `${hour(ago)},temperature,${20 + ago},\n${hour(ago)},door,,closed`).join('\n'));
    const { page, errors, foreign } = await openAs(t, browser, service, `devices/${device.id}`);
    const card = page.getByRole('listitem').filter({ hasText: 'Boiler' });
    t.match(await card.textContent(), /Boiler22 °C.*22 to 25 °C.*2 hours ago/);
    await card.getByRole('img', { name: 'The last 24 hours of Boiler' }).waitFor();
    t.match(await page.getByRole('listitem').filter({ hasText: 'door' }).textContent(), /closed/);
    await say(',temperature,30.5,');
    await card.getByText('30.5 °C', { exact: true }).waitFor();
    await card.getByText(/^(just now|\d+ (second|minute)s? ago)$/).waitFor();
    await say(`${hour(-72)},temperature,99,\n,door,,ajar`);
    // The values have been read again.
    await page.getByRole('paragraph').filter({ hasText: 'ajar' }).waitFor();
    await card.getByText('30.5 °C', { exact: true }).waitFor();
    t.notMatch(await card.textContent(), /99/, 'a point days ahead is no last value');
    t.strictSame([errors, foreign], [[], []]);
  },
);

t.test('a device with a secret that has never connected is not said to have connected', async (t) => {
  const { device } = await service.device({ serialNumber: 'SN-UNSEEN' });
  const { page } = await openAs(t, browser, service, `devices/${device.id}`);
  await page.getByText('It has never connected.').waitFor();
  await page.getByText('It has a credential. Nobody has claimed it.').waitFor();
});

t.test(
  'beside its version stands who says it, and since when; its product says whether it is updated to the same one',
  async (t) => {
    const { device, say } = await publishing('SN-VERSION', { firmwareVersion: '1.0' });
    const { page, errors } = await openAs(t, browser, service, `devices/${device.id}`);
    await page.getByText(/^Somebody set it (just now|\d+ (second|minute)s? ago)$/).waitFor();
    await say(JSON.stringify({ state: { firmwareVersion: '1.1' } }), '_set/fields');
    await page.goto(`/console/devices/${device.id}/firmware`);
    await page.getByText('1.1', { exact: true }).waitFor();
    await page.getByText(/^The device said so (just now|\d+ (second|minute)s? ago)$/).waitFor();
    await page.goto(`/console/products/${device.deviceTemplateId}`);
    const skips = page.getByLabel('A device that runs the version of a rollout already is not updated');
    t.equal(await skips.isChecked(), true);
    await skips.uncheck();
    await page.getByRole('button', { name: 'Save Firmware updates', exact: true }).click();
    await page.getByText('Saved.').waitFor();
    const { deviceTemplate } = await service.ok('GET', `/api/v1/devices/templates/${device.deviceTemplateId}`);
    t.equal(deviceTemplate.skipSameVersion, false);
    t.strictSame(errors, []);
  },
);

t.test('a value that never changes is a flat line, however its averages are rounded', async (t) => {
  const { device, say } = await publishing('SN-FLAT');
  const times = [3, 2, 1].flatMap((ago) => [0, 1, 2].map((n) => Date.now() - ago * 3_600_000 + n * 1000));
  await say(times.map((time) => `${time},battery,3.6,`).join('\n'));
  await say(`${Date.now()},battery,3.6,`);
  const { page } = await openAs(t, browser, service, `devices/${device.id}`);
  const line = await page.getByRole('img', { name: 'The last 24 hours of battery' }).locator('.line').getAttribute('d');
  t.equal(new Set(line?.match(/ [\d.]+/g)).size, 1, line ?? '');
});

t.test('a device with a position shows it on a map that comes with the page', async (t) => {
  const { device } = await publishing('SN-MAP', { latitude: 53.5436, longitude: 9.9883 });
  const { page, errors, foreign } = await openAs(t, browser, service, `devices/${device.id}`);
  const map = page.getByRole('img', { name: 'Map: SN-MAP is at 53.544° N, 9.988° E' });
  await map.waitFor();
  t.match(await map.locator('path.land').getAttribute('d'), /^M.{1000}/, 'there is land');
  t.strictSame([errors, foreign], [[], []]);
});

t.test('a refusal says what to do, and its button creates the channel that is missing', async (t) => {
  const { device, say } = await publishing('SN-REFUSED');
  await say(',temperature,21.5,', 'climate');
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}`);
  await page.getByText('It published on “climate”, which is no channel of Product of SN-REFUSED.').waitFor();
  const create = page.getByRole('button', { name: 'Create the channel climate', exact: true });
  await create.click();
  await page.getByText('All devices of Product of SN-REFUSED have the channel climate now.').waitFor();
  const undo = await holdUndo(page);
  await create.waitFor({ state: 'detached' });
  await say(',temperature,21.5,', 'climate');
  await page.getByRole('region', { name: 'Latest values of climate' }).getByText('21.5').waitFor();
  await undo.click();
  await create.waitFor();

  // What a channel could not store is shown too.
  await say('temperature is 21');
  await page.goto(`/console/devices/${device.id}`);
  await page.getByText('A message was refused.').waitFor();
  await page.goto(`/console/devices/${device.id}/refusals`);
  await page.getByRole('row', { name: /It published on “climate”, which is no channel of its product/ }).waitFor();
  await page.getByRole('row', { name: /The payload was delivered but not stored/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('where lines are shown, the page says that a board cannot use the address', async (t) => {
  const { device } = await publishing('SN-BROKER');
  const { page } = await openAs(t, browser, service, `devices/${device.id}/live`);
  await page.getByRole('note').getByText('A board cannot connect to 127.0.0.1').waitFor();
  await page.goto('/console/factory/stations');
  await page.getByRole('button', { name: 'New station', exact: true }).click();
  await page.getByLabel('Name').fill('Line 7');
  await page.getByRole('dialog').getByLabel('Product').selectOption({ label: 'Product of SN-BROKER' });
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('note').getByText('A board cannot connect to 127.0.0.1').waitFor();
});

t.test('live messages are rows of time, channel, category and value, and each shows itself', async (t) => {
  const { device, say } = await publishing('SN-LIVE');
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/live`);
  await page.getByText('Listening').waitFor();
  const sent = new Date(Date.now() - 1000);
  await say(`[{"bn":"room/","bt":${sent.getTime() / 1000},"n":"humidity","v":63},{"n":"door","vs":"open"}]`);
  const time = sent.toLocaleTimeString('en-GB');
  await page.getByRole('row', { name: `${time} readings room/humidity 63` }).waitFor();
  await page.getByRole('row', { name: `${time} readings room/door open` }).waitFor();
  await page.getByRole('button', { name: /^The message on readings/ }).click();
  await page.getByRole('cell', { name: '"bn":"room/"' }).waitFor();
  t.strictSame(errors, []);
});

t.test('live messages are the newest 200, and however many come, the page does not grow', async (t) => {
  const { device, say } = await publishing('SN-LOUD');
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/live`);
  await page.getByText('Listening').waitFor();
  let sent = 0;
  const send = async (count: number) => {
    for (const end = sent + count; sent < end; await say(`,level,${sent},`)) sent += 1;
    await page.getByRole('row', { name: `readings level ${sent}` }).waitFor();
  };
  const fill = async (count: number) => {
    await send(count);
    // The page is drawn anew as a whole.
    await page.getByRole('button', { name: 'Move', exact: true }).click();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  };
  await fill(210);
  t.equal(await page.locator('.messages tbody tr').count(), 200);
  const before = await domOf(page);
  await fill(600);
  // Rows that have been drawn more than once are gone, too.
  for (let n = 0; n < 5; n += 1) await send(40);
  const after = await domOf(page);
  t.ok(after.nodes < before.nodes + 60, `${before.nodes} nodes, then ${after.nodes}`);
  t.ok(after.listeners < before.listeners + 6, `${before.listeners} listeners, then ${after.listeners}`);
  t.strictSame(errors, []);
});

t.test('a state that changes often is drawn with as much as one that does not', async (t) => {
  const { device, say } = await publishing('SN-STATES');
  const { page } = await openAs(t, browser, service, `devices/${device.id}`);
  const minute = (ago: number) => Date.now() - ago * 60_000;
  const card = page.getByRole('listitem').filter({ hasText: 'door' });
  await say(`${minute(900)},door,,open\n${minute(850)},door,,closed\n${minute(800)},door,,open`);
  await card.getByText('changed 2 times today').waitFor();
  const before = await domOf(page);
  await say(Array.from({ length: 600 }, (_, n) => `${minute(700 - n)},door,,${n % 2 ? 'open' : 'closed'}`).join('\n'));
  await card.getByText('changed 602 times today').waitFor();
  const after = await domOf(page);
  t.ok(after.nodes < before.nodes + 60, `${before.nodes} nodes, then ${after.nodes}`);
  t.strictSame(await card.locator('.state title').allTextContents(), ['closed', 'open']);
});

const streams = (count: number) =>
  until(
    () => metric({ service }, 'slipway_streams'),
    (now) => now === count,
  );

/** A tab of its own that hears a device. */
async function hearing(context: BrowserContext, serialNumber: string) {
  const { device, say } = await publishing(serialNumber);
  const page = await context.newPage();
  await page.goto(`/console/devices/${device.id}/live`);
  await page.getByText('Listening').waitFor();
  let value = 0;
  const hears = async () => {
    value += 1;
    await say(`,level,${value},`);
    await page.getByRole('row', { name: `readings level ${value}` }).waitFor();
  };
  return { page, device, hears };
}

/** As the browser does it when another tab is looked at. */
const look = (page: Page, isHidden: boolean) =>
  page.evaluate(`
    Object.defineProperty(document, 'hidden', { value: ${isHidden}, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));`);

t.test('any number of tabs share one stream, and one that is hidden has no part in it', async (t) => {
  const { page: first, errors } = await openPage(t, browser, service);
  await signIn(first);
  const tabs: Awaited<ReturnType<typeof hearing>>[] = [];
  // Of one host a browser has six connections at most.
  for (let n = 1; n <= 8; n += 1) tabs.push(await hearing(first.context(), `SN-TAB-${n}`));
  for (const { hears } of tabs) await hears();
  await streams(1);

  // The first one reads for all.
  for (const { page } of tabs.slice(0, 4)) await look(page, true);
  for (const { hears } of tabs.slice(4)) await hears();
  await streams(1);
  for (const { page } of tabs.slice(4)) await look(page, true);
  await streams(0);
  const [one] = tabs;
  if (!one) throw new Error('there is no tab');
  await one.page.getByText('Connecting').waitFor();
  await look(one.page, false);
  await one.page.getByText('Listening').waitFor();
  await one.hears();
  await streams(1);

  // What another tab cannot hear any more keeps nobody from hearing.
  const { device } = await service.ok('GET', `/api/v1/devices/${one.device.id}`);
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: device.version } });
  await (await hearing(first.context(), 'SN-TAB-9')).hears();
  t.strictSame(errors, []);
});

t.test('where the browser has no locks, each tab that is looked at has a stream of its own', async (t) => {
  const { page: first } = await openPage(t, browser, service);
  await first.context().addInitScript(`Object.defineProperty(navigator, 'locks', { value: undefined })`);
  await signIn(first);
  const [one, two] = [await hearing(first.context(), 'SN-PLAIN-1'), await hearing(first.context(), 'SN-PLAIN-2')];
  for (const { hears } of [one, two]) await hears();
  await streams(2);
  await look(one.page, true);
  await streams(1);
  await two.hears();
});

t.test('what somebody chooses stays chosen while the page reads its device again', async (t) => {
  const { id: deviceTemplateId } = await service.template({ name: 'Product of choices' });
  const field = { deviceTemplateId, name: 'indoor', fieldType: 'boolean' };
  await service.create('/devices/custom-fields', 'deviceField', field);
  const { device, secret } = await service.device({ serialNumber: 'SN-CHOSEN', deviceTemplateId });
  const { id: organizationId } = await service.organization({ name: 'Chosen' });
  const { page, errors } = await openPage(t, browser, service, {
    storageState: await (await openAs(t, browser, service, 'account')).page.context().storageState(),
  });
  await page.clock.install();
  await page.goto(`/console/devices/${device.id}/fields`);
  await page.getByLabel('Organization').selectOption({ label: 'Chosen' });
  await page.getByLabel('indoor').selectOption('Yes');
  const read = async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.connect({ deviceId: device.id, secret });
  await until(async () => (await read()).connected);
  await page.clock.runFor(10_000);
  await page.getByText('Online', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Saved.').waitFor();
  t.match(await read(), { organizationId, indoor: true });
  t.strictSame(errors, []);
});

t.test('a device has the actions that people use at its head, seven tabs, and the way back', async (t) => {
  const [from, to] = [
    await service.organization({ name: 'Moved from' }),
    await service.organization({ name: 'Moved to' }),
  ];
  const { device } = await service.device({ serialNumber: 'HEAD-1', organizationId: from.id });
  const { page, errors } = await openAs(t, browser, service, 'devices?q=HEAD');
  await page.getByRole('link', { name: 'HEAD-1', exact: true }).click();
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  await button('Command').click();
  await page.getByRole('heading', { name: 'Send a command', exact: true }).waitFor();
  await button('Update').click();
  await page.waitForURL(/\/firmware$/);
  t.equal(await page.getByRole('navigation', { name: 'Parts of this page', exact: true }).getByRole('link').count(), 7);
  await page.getByRole('link', { name: 'Log', exact: true }).click();
  await page
    .getByRole('navigation', { name: 'Log', exact: true })
    .getByRole('link', { name: 'Refusals', exact: true })
    .click();
  await page.waitForURL(/\/refusals$/);
  await button('Move').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Organization').selectOption({ label: 'Moved to' });
  await dialog.getByRole('button', { name: 'Move', exact: true }).click();
  await page.getByText('HEAD-1 was moved.').waitFor();
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.organizationId, to.id);
  await page.getByRole('link', { name: 'Back' }).click();
  await page.waitForURL(/devices\?q=HEAD$/);
  await page.getByRole('link', { name: 'HEAD-1', exact: true }).waitFor();
  t.strictSame(errors, []);
});

t.end();
