/** Home: what needs attention leads to its list, and what happens appears by itself; the account in words. */
import type { Browser } from 'playwright-core';
import { texts } from '../../console/texts.ts';
import { limits } from '../../src/core/limits/table.ts';
import { auditEvents } from '../../src/operations/audit/events.ts';
import { devices, publish, rollOut, rolloutUntil, update } from '../firmware/fleet.ts';
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

t.test('who signs in sees Home: devices online, what needs attention and its list, what happened lately', async (t) => {
  const { id: deviceTemplateId } = await service.template({ name: 'Boiler', channels: ['readings'] });
  const { device, secret } = await service.device({ serialNumber: 'SN-HOME', deviceTemplateId });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'reading'), ',temperature,21.5,', { qos: 1 });
  const { page, errors, foreign } = await openPage(t, browser, service);
  await signIn(page);
  await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
  const online = page
    .getByRole('listitem')
    .filter({ has: page.getByRole('link', { name: 'Devices online', exact: true }) });
  await online.getByText('1', { exact: false }).first().waitFor();
  await page.getByRole('region', { name: 'By product' }).filter({ hasText: 'Boiler1, 1 online' }).waitFor();
  await page.getByRole('link', { name: 'SN-HOME', exact: true }).waitFor();
  await service.device({ serialNumber: 'SN-LATER', deviceTemplateId });
  await page.getByRole('link', { name: 'SN-LATER', exact: true }).waitFor();
  client.end(true);
  await page.getByRole('link', { name: /^1 device was connected in the last day and is offline now/ }).click();
  await page.getByRole('link', { name: 'SN-HOME', exact: true }).waitFor();
  t.equal(await page.getByRole('link', { name: 'SN-LATER', exact: true }).count(), 0, 'the list is filtered');
  await page.getByRole('button', { name: /^Remove the filter: Offline since/ }).click();
  await page.getByRole('link', { name: 'SN-LATER', exact: true }).waitFor();
  await page.getByRole('link', { name: 'Home', exact: true }).click();
  await page.getByRole('link', { name: /^1 refusal in the last day/ }).click();
  await page.getByRole('heading', { name: 'Refusals', level: 1 }).waitFor();
  t.match(page.url(), /cause=noChannelOfItsOwn/);
  await page.getByRole('row', { name: /SN-HOME/ }).waitFor();
  t.strictSame([errors, foreign], [[], []]);
});

t.test('what happened is by day, a run of the same opens, and a filter shows one kind', async (t) => {
  const own = await startService(t);
  const home = await own.organization();
  for (let n = 1; n <= 7; n += 1) await own.device({ serialNumber: `RUN-${n}` });
  const { device } = await own.device({ serialNumber: 'RUN-CLAIMED' });
  const body = { deviceId: device.id };
  const { associationCode } = await own.ok('POST', '/api/v1/association/create-association-code', { body });
  await own.ok('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode, organizationId: home.id },
  });
  const { page } = await openAs(t, browser, own, 'home');
  const lately = page.locator('section.lately');
  await lately.getByRole('heading', { name: 'Today', level: 3 }).waitFor();
  await lately.getByText('RUN-CLAIMED was claimed.').waitFor();
  t.notOk(await lately.getByRole('link', { name: 'RUN-1', exact: true }).isVisible());
  await lately.getByText('6 more devices were added.').click();
  await lately.getByRole('link', { name: 'RUN-1', exact: true }).waitFor();
  await lately.getByLabel('Show').selectOption('Claims');
  await lately.getByRole('link', { name: 'RUN-7', exact: true }).waitFor({ state: 'detached' });
  t.equal(await lately.getByRole('listitem').count(), 1);
});

t.test('each row that needs attention has one action, which its whole row leads to', async (t) => {
  const own = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  const { device, secret } = await own.device({ serialNumber: 'ATTENTION' });
  const client = await own.connect({ deviceId: device.id, secret });
  await client.publishAsync(own.topic(device.id, 'nowhere'), 'x', { qos: 1 });
  await client.endAsync();
  const { page } = await openAs(t, browser, own, 'home');
  const rows = page.locator('.attention > li');
  await rows.filter({ hasText: 'refusal' }).waitFor();
  for (const row of await rows.all()) t.equal(await row.getByRole('link').count(), 1);
  await rows.getByRole('link', { name: /See what was refused$/ }).click();
  await page.getByRole('heading', { name: 'Refusals', level: 1 }).waitFor();
});

t.test(
  'a bridge with nothing that waits is failing and not red for 0; updates by one rollout are one line',
  async (t) => {
    const own = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
    const { id: deviceTemplateId } = await own.template({
      channels: [{ name: 'events', streamBridgeDelivery: 1 }],
    });
    const many = await devices(own, deviceTemplateId, 4);
    await own.create('/bridges', 'bridge', { name: 'Feed', kind: 'webhook', url: 'http://127.0.0.1:9/' });
    const [first] = many;
    if (!first) throw new Error('four devices are made');
    const client = await own.connect({ deviceId: first.id, secret: first.secret });
    await client.publishAsync(own.topic(first.id, 'events'), 'hello', { qos: 1 });
    await client.endAsync();
    const firmware = await publish(own, deviceTemplateId, '2.0.0');
    const { id } = await rollOut(own, firmware, { target: { deviceIds: many.map((one) => one.id) } });
    await rolloutUntil(own, id, ({ counts }) => counts.pending === 4);
    for (const device of many) await update(own, device);
    const { page } = await openAs(t, browser, own, 'home');
    const bridge = page.getByRole('listitem').filter({ hasText: 'The bridge Feed cannot deliver.' });
    await bridge.getByText('failing', { exact: true }).waitFor();
    await page.getByRole('link', { name: '4 devices were updated to 2.0.0.', exact: true }).click();
    await page.waitForURL(`**/firmware/rollouts/${id}`);
  },
);

t.test('a request for support is on Home and in the history of its device, until somebody closes it', async (t) => {
  const { id: organizationId } = await service.organization();
  const { token, email } = await service.endUser(organizationId, { roleId: 'organization:viewer' });
  const { device } = await service.device({ serialNumber: 'SN-SUPPORT', organizationId });
  const entry = { body: { message: 'the heater is off', severity: 'error' } };
  await service.ok('POST', `/api/v1/devices/${device.id}/logs`, entry);
  const ask = (message: string) =>
    service.ok('POST', `/api/v1/devices/${device.id}/support`, { token, body: { message } });
  await ask('It stays cold.');
  const { page, errors } = await openAs(t, browser, service, 'home');
  await page
    .getByRole('link', { name: 'Somebody asks for support with SN-SUPPORT: “It stays cold.”', exact: true })
    .click();
  await page.waitForURL(`**/devices/${device.id}/history`);
  const open = page.getByRole('region', { name: 'Requests for support' });
  await open.getByText('It stays cold.').waitFor();
  await open.getByText(email).waitFor();
  await open.getByText('What had happened in the day before').click();
  await open.getByText('the heater is off').waitFor();
  await page.getByText(`${email} asked for support with SN-SUPPORT`).waitFor();
  await open.getByRole('button', { name: 'Close the request for support: ' }).click();
  await open.waitFor({ state: 'detached' });
  await ask('It is cold again.');
  await page.getByRole('link', { name: 'Home', exact: true }).click();
  const row = page.getByRole('listitem').filter({ hasText: 'It is cold again.' });
  await row.getByRole('button', { name: 'Close the request for support: ' }).click();
  await row.waitFor({ state: 'detached' });
  const { supportRequests } = await service.ok('GET', `/api/v1/devices/${device.id}/support`);
  t.strictSame([supportRequests.results, errors], [[], []]);
});

t.test('a page that does not exist has a way home', async (t) => {
  const { page } = await openAs(t, browser, service, 'nowhere');
  await page.getByRole('link', { name: 'Go to Home', exact: true }).click();
  await page.getByRole('heading', { name: 'Home', level: 1 }).waitFor();
});

t.test('every limit and every event of the audit record has its words', async (t) => {
  const shown = limits.filter(({ per }) => per !== 'service').map(({ name }) => name);
  t.strictSame(
    shown.filter((name) => !(name in texts.account.limits)),
    [],
  );
  t.strictSame(
    auditEvents.filter((event) => !(event in texts.audit.says)),
    [],
  );
});

t.test('usage is in groups, in words and with units; the audit record is in sentences with names', async (t) => {
  const { device } = await service.device({ serialNumber: 'SN-AUDIT' });
  const { page, errors } = await openAs(t, browser, service, 'account/usage');
  await page
    .getByRole('listitem')
    .filter({ hasText: /^Firmware files ?0 bytes \/ 2\.0 GB/ })
    .waitFor();
  await page
    .getByRole('listitem')
    .filter({ hasText: /^Values of all fields of one thing for each entity ?64 KB/ })
    .waitFor();
  await page.getByRole('link', { name: 'Audit', exact: true }).click();
  await page.getByText(`admin@example.com made a new secret for SN-AUDIT`).waitFor();
  await page.getByLabel('By whom').fill('admin@exam');
  await page.getByRole('option', { name: /admin@example\.com/ }).click();
  await page.waitForURL(/actor=/);
  await page.getByText(`admin@example.com made a new secret for SN-AUDIT`).waitFor();
  await page.getByRole('link', { name: 'SN-AUDIT', exact: true }).first().click();
  await page.waitForURL(new RegExp(device.id));
  t.strictSame(errors, []);
});

t.end();
