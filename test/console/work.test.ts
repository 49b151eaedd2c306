/** Places of the console with work in them: what a person does there, and what the service and devices do meanwhile. */
import { Secret, TOTP } from 'otpauth';
import type { Browser, Page } from 'playwright-core';
import { startReceiver } from '../bridges/receiver.ts';
import {
  asDevice,
  type Device,
  devices,
  offerTo,
  publish,
  rollOut,
  rollout,
  rolloutUntil,
  update,
} from '../firmware/fleet.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { holdUndo, openAs, openPage, settled, signIn } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_BRIDGE_ALLOW_PRIVATE: 'true' } });
  browser = await openBrowser();
});

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
/** From the menu of a row. */
const choose = async (page: Page, of: string, verb: string) => {
  await press(page, `Actions of ${of}`);
  await page.getByRole('menuitem', { name: verb }).click();
};
const state = (page: Page, name: string) => page.getByRole('row').getByText(name, { exact: true }).first().waitFor();

t.test('a command shows its states as the device reports them, and one that waits is cancelled', async (t) => {
  const { device, secret } = await service.device();
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/commands`);
  const send = async (name: string) => {
    await page.getByLabel('Command', { exact: true }).fill(name);
    await page.getByLabel('Payload', { exact: true }).fill('{"delay":3}');
    await press(page, 'Send');
  };
  await send('first');
  await state(page, 'Waiting for the device');
  await page.getByRole('button', { name: 'Cancel first' }).click();
  await state(page, 'Cancelled');
  const client = await service.connect({ deviceId: device.id, secret });
  await client.subscribeAsync(service.topic(device.id, '_commands'), { qos: 1 });
  const arrived = new Promise<string>((resolve) => client.once('message', (_, bytes) => resolve(bytes.toString())));
  await send('second');
  const { id, name, payload } = JSON.parse(await arrived);
  t.match({ name, payload }, { name: 'second', payload: { delay: 3 } });
  const reply = (body: object) =>
    client.publishAsync(service.topic(device.id, '_commands/replies'), JSON.stringify({ id, ...body }), { qos: 1 });
  await reply({ status: 'accepted' });
  await state(page, 'In progress');
  await reply({ status: 'succeeded', result: 'it is done' });
  await state(page, 'Succeeded');
  await state(page, 'it is done');
  await page.getByRole('link', { name: 'Log', exact: true }).click();
  await page.getByRole('link', { name: 'History', exact: true }).click();
  await page.getByRole('row', { name: /sent the command “second” to/ }).waitFor();
  await page.getByRole('row', { name: /cancelled the command “first” of/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('a product declares commands, which become buttons and forms of its devices', async (t) => {
  const { id: deviceTemplateId } = await service.template();
  await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId,
    name: 'indoor',
    fieldType: 'boolean',
  });
  await service.create('/devices/custom-fields', 'deviceField', { deviceTemplateId, name: 'floor', fieldType: 'int' });
  const { device } = await service.device({ deviceTemplateId });
  const { page, errors } = await openAs(t, browser, service, `products/${deviceTemplateId}`);
  const dialog = page.getByRole('dialog');
  const declare = async (name: string, title: string, parameters = '', confirm = false) => {
    await press(page, 'New command');
    await dialog.getByLabel('Name', { exact: true }).fill(name);
    await dialog.getByLabel('Title').fill(title);
    await dialog.getByLabel('Parameters').fill(parameters);
    if (confirm) await dialog.getByLabel('Ask before it is sent').check();
    await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  };
  await declare('report', 'Report more often', '{"type": "string"}');
  await dialog.getByText('commands/0/parameters').waitFor();
  const properties = {
    interval: { type: 'integer', title: 'Seconds', minimum: 1, maximum: 60, default: 5 },
    mode: { enum: ['eco', 'fast', 3] },
    loud: { type: 'boolean', title: 'Loud', default: true },
    night: { type: 'object', title: 'Night', properties: { from: { type: 'string' }, days: { type: 'array' } } },
    level: { $ref: '#/$defs/level' },
  };
  const schema = {
    type: 'object',
    properties,
    required: ['interval'],
    $defs: { level: { type: 'number', title: 'Level' } },
  };
  await dialog.getByLabel('Parameters').fill(JSON.stringify(schema));
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page
    .getByRole('row', { name: /report/ })
    .getByText('interval, mode, loud, night, level')
    .waitFor();
  // What is ticked outlives another change of the product.
  await page.getByLabel('Refuse commands that are not in this list').check();
  await declare('reboot', 'Restart', '', true);
  await page.getByRole('row', { name: /reboot/ }).waitFor();
  await page.getByRole('button', { name: 'Save Other commands', exact: true }).click();
  // What was declared before has said "Saved." too.
  const product = () => service.ok('GET', `/api/v1/devices/templates/${deviceTemplateId}`);
  await until(async () => (await product()).deviceTemplate.commandsOnly);

  await page.goto(`/console/devices/${device.id}/commands`);
  await press(page, 'Report more often');
  t.equal(await dialog.getByLabel('Seconds').inputValue(), '5', 'the default');
  await dialog.getByText('From 1 to 60.').waitFor();
  await dialog.getByLabel('Seconds').fill('7');
  await dialog.getByLabel('mode').selectOption('3');
  await dialog.getByRole('switch', { name: 'Loud', exact: true }).uncheck();
  await dialog.getByRole('group', { name: 'Night', exact: true }).getByLabel('from').fill('22:00');
  await dialog.getByLabel('days').fill('[1, 2');
  await dialog.getByLabel('Level').fill('0.5');
  await dialog.getByRole('button', { name: 'Send', exact: true }).click();
  await dialog.getByText('days is not JSON.').waitFor();
  await dialog.getByLabel('days').fill('[1, 2]');
  await dialog.getByRole('button', { name: 'Send', exact: true }).click();
  await page.getByRole('row', { name: /report/ }).waitFor();
  await press(page, 'Restart');
  await dialog.getByText('Restart?').waitFor();
  await dialog.getByRole('button', { name: 'Restart', exact: true }).click();
  await page.getByRole('row', { name: /reboot/ }).waitFor();
  t.equal(await page.getByLabel('Command', { exact: true }).count(), 0, 'no other commands');
  const { commands } = await service.ok('GET', `/api/v1/devices/${device.id}/commands`);
  t.match(commands.results, [
    { name: 'reboot', payload: null },
    {
      name: 'report',
      payload: { interval: 7, mode: 3, loud: false, night: { from: '22:00', days: [1, 2] }, level: 0.5 },
    },
  ]);

  await page.goto(`/console/devices/${device.id}/fields`);
  await page.getByLabel('indoor').selectOption('Yes');
  await page.getByLabel('floor').fill('2');
  await press(page, 'Save');
  await page.getByText('Saved.').first().waitFor();
  t.match((await service.ok('GET', `/api/v1/devices/${device.id}`)).device, { indoor: true, floor: 2 });
  t.strictSame(errors, []);
});

t.test('a rollout is made, paused and resumed, and names its devices by serial number', async (t) => {
  const { id: deviceTemplateId, name } = await service.template();
  await publish(service, deviceTemplateId, '2.0.0');
  await service.device({ deviceTemplateId, serialNumber: 'SN-ROLLED' });
  const { page, errors } = await openAs(t, browser, service, 'firmware/rollouts');
  const now = () => rollout(service, page.url().split('/').at(-1) ?? '');
  await press(page, 'New rollout');
  const dialog = page.getByRole('dialog', { name: 'New rollout', exact: true });
  await dialog.getByLabel('in percent').fill('10');
  await dialog.getByLabel('Minutes to wait').fill('30');
  await dialog.getByRole('button', { name: 'Preview', exact: true }).click();
  const preview = dialog.getByRole('region', { name: 'Preview' });
  await preview.getByText('1 of them are offline').waitFor();
  await preview.getByText('Stage 1: 1 device. Stage 2: 0 devices.').waitFor();
  await dialog.getByLabel('in percent').fill('20');
  await preview.waitFor({ state: 'detached' });
  await dialog.getByLabel('in percent').fill('10');
  await dialog.getByRole('button', { name: 'Start the rollout', exact: true }).click();
  await page
    .getByRole('row', { name: /1 \/ 2/ })
    .getByRole('link')
    .click();
  await page.getByText('Stage 2: 100 %, after 30 minutes').waitFor();
  t.match((await now()).stages, [{ percent: 10, pauseSeconds: 1800 }, { percent: 100 }]);
  await page.goBack();
  await press(page, 'New rollout');
  t.match(await dialog.getByLabel('Package').textContent(), /\S/, `the package of ${name} is offered`);
  await dialog.getByLabel('in percent').fill('100');
  await dialog.getByRole('button', { name: 'Start the rollout', exact: true }).click();
  await page
    .getByRole('row', { name: /1 \/ 1/ })
    .getByRole('link')
    .click();
  await page.getByRole('link', { name: 'SN-ROLLED', exact: true }).waitFor();
  await press(page, 'Pause');
  await page.getByText('Paused', { exact: true }).waitFor();
  t.equal((await now()).state, 'paused');
  await press(page, 'Resume');
  await page.getByText('Running', { exact: true }).waitFor();
  t.equal((await now()).state, 'running');
  t.strictSame(errors, []);
});

t.test(
  'a rollout says how fast it goes and when its next stage begins; once cancelled, it goes no further',
  async (t) => {
    const { id: deviceTemplateId } = await service.template();
    const fleet = await devices(service, deviceTemplateId, 4);
    const firmware = await publish(service, deviceTemplateId, '2.0');
    const target = { deviceIds: fleet.map(({ id }) => id) };
    const stages = [{ percent: 50, pauseSeconds: 1800 }, { percent: 100 }];
    const { id } = await rollOut(service, firmware, { target, stages });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 2);
    const { page, errors } = await openAs(t, browser, service, `firmware/rollouts/${id}`);
    const stat = (label: string) => page.locator('.stats > *').filter({ hasText: label });
    await stat('Speed').getByText('0 a minute', { exact: true }).waitFor();
    await stat('Next stage')
      .getByText(/^in (2\d|30) minutes$/)
      .waitFor();
    await stat('Done').getByText('0 of 2', { exact: true }).waitFor();
    const { results } = (await service.ok('GET', `/api/v1/firmware/rollouts/${id}/devices`)).devices;
    const first = fleet.find((one) => one.id === results[0]?.deviceId) as Device;
    await update(service, first);
    await stat('Speed').getByText('1 a minute', { exact: true }).waitFor();
    await page.getByRole('listitem').and(page.locator('[aria-current=step]')).getByText('Stage 1: 50 %').waitFor();

    const dialog = page.getByRole('dialog');
    await press(page, 'Cancel');
    await dialog.getByText('A cancelled rollout cannot go on.').waitFor();
    await page.keyboard.press('Escape');
    t.equal((await rollout(service, id)).state, 'running', 'it asks first');
    await press(page, 'Cancel');
    await dialog.getByRole('button', { name: 'Cancel the rollout', exact: true }).click();
    // The page may read that it is cancelled while its devices still end.
    await dialog.waitFor({ state: 'detached' });
    await page.locator('main .panel').getByText('Cancelled', { exact: true }).first().waitFor();
    t.match(await rollout(service, id), { state: 'cancelled', counts: { succeeded: 1, cancelled: 1 } });
    await stat('Speed').waitFor({ state: 'detached' });
    await stat('Next stage').waitFor({ state: 'detached' });
    t.strictSame(await page.locator('main .head button').allTextContents(), ['Go back', 'Show the call']);
    for (const device of fleet) t.same(await offerTo(service, device), { files: [] });
    t.strictSame(errors, []);
  },
);

t.test('a rollout shows why devices fail, and goes back in one press; a device shows its past', async (t) => {
  const { id: deviceTemplateId } = await service.template();
  const fleet = await devices(service, deviceTemplateId, 4, { firmwareVersion: '1.0' });
  const [one, two, three, four] = fleet as [Device, Device, Device, Device];
  await publish(service, deviceTemplateId, '1.0');
  const firmware = await publish(service, deviceTemplateId, '2.0');
  const target = { deviceIds: fleet.map(({ id }) => id) };
  const { id } = await rollOut(service, firmware, { target, maxFailurePercent: 100 });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 4);
  for (const device of [one, two]) await update(service, device);
  for (const device of [three, four]) {
    await offerTo(service, device);
    const said = { state: 'failed', firmwareVersion: '2.0', message: 'no room on the flash' };
    await asDevice(service, device, 'POST', '/firmware/status', said);
  }
  const { page, errors } = await openAs(t, browser, service, `firmware/rollouts/${id}`);
  const failures = page.getByRole('region', { name: 'Why devices fail' });
  await failures.getByText('no room on the flash').waitFor();
  await failures.getByText('2 devices').waitFor();
  const rows = page.getByRole('row');
  await rows.nth(1).getByText('Failed', { exact: true }).waitFor();
  await rows.nth(2).getByText('Failed', { exact: true }).waitFor();
  await page.getByText('4 of 4').waitFor();

  await press(page, 'Go back');
  const undo = await holdUndo(page);
  await page.getByRole('heading', { name: 'Back to', level: 1 }).waitFor();
  t.not(page.url().split('/').at(-1), id);
  const back = await rolloutUntil(service, page.url().split('/').at(-1) ?? '', ({ counts }) => counts.pending === 2);
  t.equal(back.target.revertOf, id);
  await undo.click();
  await until(async () => (await rollout(service, back.id)).state === 'cancelled');

  await page.goto(`/console/devices/${one.id}/firmware`);
  await page.getByRole('row', { name: /1\.0 2\.0 Cancelled/ }).waitFor();
  await page.getByRole('row', { name: /2\.0 1\.0 Succeeded/ }).waitFor();
  await press(page, 'Update this device');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Package').selectOption({ index: 1 });
  await dialog.getByRole('button', { name: 'Update', exact: true }).click();
  // The rollout is answered before its devices are found: the list may see the row as new.
  await page.getByRole('row', { name: /1\.0( New)? 2\.0 Waiting/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('a second factor is set up, asked for at the next login, and its recovery codes stay secret', async (t) => {
  const { email, password } = await service.endUser((await service.organization()).id);
  const { page } = await openPage(t, browser, service);
  await signIn(page, email, password, '/console/account');
  await press(page, 'Set up an app');
  const key = (await page.getByRole('region', { name: 'Key' }).locator('pre').textContent()) ?? '';
  const totp = new TOTP({ secret: Secret.fromBase32(key.trim()) });
  await page.getByLabel('Code').first().fill(totp.generate());
  await press(page, 'Confirm');
  const codes = (await page.getByRole('region', { name: 'Recovery codes' }).locator('pre').textContent()) ?? '';
  const [recovery = ''] = codes.trim().split('\n');
  t.ok(recovery.length > 5);
  await press(page, 'Show the call');
  const calls = (await page.getByRole('dialog').textContent()) ?? '';
  t.match(calls, /mfa\/totp\/confirm/);
  t.notOk(calls.includes(recovery) || calls.includes(key.trim()), 'neither the key nor the codes are kept');
  await page.keyboard.press('Escape');
  await press(page, 'Sign out');
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await press(page, 'Sign in');
  // A code works once, and the one of the next half minute is accepted early.
  await page.getByLabel('Code').fill(totp.generate({ timestamp: Date.now() + 30_000 }));
  await press(page, 'Sign in');
  await page.getByRole('button', { name: 'Sign out', exact: true }).waitFor();
  await press(page, 'Sign out');
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await press(page, 'Sign in');
  await page.getByLabel('Second factor').selectOption({ label: 'Recovery code' });
  await page.getByLabel('Code').fill(recovery);
  await press(page, 'Sign in');
  await page.getByRole('button', { name: 'Sign out', exact: true }).waitFor();

  // An admin who takes it away is told first that there is no way back.
  const { page: other } = await openAs(t, browser, service, 'people');
  await press(other, `Actions of ${email}`);
  await other.getByRole('menuitem', { name: 'Login', exact: true }).click();
  await press(other, 'Remove Authenticator app');
  const asked = other.getByRole('dialog', { name: 'Remove the second factor “Authenticator app”?', exact: true });
  await asked.getByText('This cannot be undone').waitFor();
  await asked.getByRole('button', { name: 'Remove', exact: true }).click();
  await other.getByText('No second factor is set up.').waitFor();
});

t.test('a station is made, and what the page shows of it once is a login', async (t) => {
  await service.template({ name: 'Lamp' });
  const { page, errors } = await openAs(t, browser, service, 'factory/stations');
  await press(page, 'New station');
  const dialog = page.getByRole('dialog', { name: 'New station', exact: true });
  await dialog.getByLabel('Name').fill('Line 7');
  await dialog.getByLabel('Product').selectOption({ label: 'Lamp' });
  await dialog.getByLabel('Devices at most').fill('250');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  const shown = (await page.getByRole('region', { name: 'Token' }).locator('pre').textContent()) ?? '';
  const [, appId, appToken] = /SLIPWAY_APP_ID=(\S+)\nexport SLIPWAY_TOKEN=(\S+)/.exec(shown) ?? [];
  const body = { accountId: service.accountId, appId, appToken };
  t.match(await service.ok('POST', '/api/v1/auth/login-application', { body, token: null }), { jwt: String });
  await page.getByRole('row', { name: /Line 7.*Lamp.*0 of 250/ }).waitFor();
  // As in a factory whose pages have no TLS.
  await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })");
  // It says so for two seconds.
  await Promise.all([
    page.getByRole('button', { name: 'Copied', exact: true }).waitFor(),
    page.getByRole('region', { name: 'Token' }).getByRole('button', { name: 'Copy' }).click(),
  ]);
  await press(page, 'New station');
  await dialog.getByLabel('Name').press('Control+V');
  t.match(await dialog.getByLabel('Name').inputValue(), appToken, 'it can be copied without the clipboard of scripts');
  t.strictSame(errors, []);
});

t.test('a bridge is made, and what it cannot deliver is shown with its reason', async (t) => {
  const receiver = await startReceiver(t);
  receiver.behave = () => 400;
  const channels = [{ name: 'sure', streamBridgeDelivery: 2 }];
  const { device, secret } = await service.device({ deviceTemplateId: (await service.template({ channels })).id });
  const { page, errors } = await openAs(t, browser, service, 'programs/bridges');
  await press(page, 'New bridge');
  const dialog = page.getByRole('dialog', { name: 'New bridge', exact: true });
  await dialog.getByLabel('Name').fill('Warehouse');
  await dialog.getByLabel('Address').fill(`${receiver.url}?key=hidden`);
  await dialog.getByRole('button', { name: 'Add a header', exact: true }).click();
  await dialog.getByLabel('Header', { exact: true }).fill('X-Key');
  await dialog.getByLabel('Value').fill('k3y');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByText('shown only now').waitFor();
  await choose(page, 'Warehouse', 'Edit');
  const editing = page.getByRole('dialog', { name: 'Edit Warehouse', exact: true });
  await editing.getByText('Its query is stored').waitFor();
  t.equal(await editing.getByLabel('Address').inputValue(), receiver.url);
  t.equal(await editing.getByLabel('Value').inputValue(), '');
  await editing.getByLabel('Name').fill('Warehouse 2');
  await editing.getByRole('button', { name: 'Add a header', exact: true }).click();
  await editing.getByLabel('Header', { exact: true }).nth(1).fill('X-Tenant');
  await editing.getByLabel('Value').nth(1).fill('fleet');
  await editing.getByRole('button', { name: 'Save', exact: true }).click();
  await editing.waitFor({ state: 'detached' });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'sure'), 'not welcome', { qos: 1 });
  const row = page.getByRole('row', { name: /Warehouse 2/ });
  await row.getByRole('button', { name: '1 Dead letters of Warehouse 2', exact: true }).click();
  await page
    .getByRole('dialog')
    .getByRole('row', { name: /sure answered 400 not welcome/ })
    .waitFor();
  const [came] = receiver.tries;
  t.match(
    came,
    { path: '/hook?key=hidden', headers: { 'x-key': 'k3y', 'x-tenant': 'fleet' } },
    'what is not shown is kept',
  );
  t.strictSame(errors, []);
});

t.test('a provider whose issuer is wrong is made, and the page says what is wrong with it', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'programs/identity-providers');
  await press(page, 'New identity provider');
  const dialog = page.getByRole('dialog', { name: 'New identity provider', exact: true });
  await dialog.getByLabel('Name').fill('Mistyped');
  await dialog.getByLabel('Issuer').fill('https://issuer.invalid');
  await dialog.getByLabel('Client id').fill('console');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page
    .getByRole('alert')
    .getByText(/^Mistyped was made, but nobody can sign in with it yet: The (host of the )?issuer /)
    .waitFor();
  await page.getByRole('row', { name: /Mistyped/ }).waitFor();
  t.strictSame(errors, []);
});

t.test('groups of a provider get roles, and its SCIM a token that is shown once', async (t) => {
  const organization = await service.organization({ name: 'Acme' });
  const about = { name: 'Directory', issuer: 'https://id.example.com', clientId: 'slipway' };
  const { id } = await service.create('/identity-providers', 'identityProvider', about);
  const { page, errors } = await openAs(t, browser, service, 'programs/identity-providers');
  await choose(page, 'Directory', 'Groups');
  const dialog = page.getByRole('dialog', { name: 'Groups of Directory', exact: true });
  await dialog.getByLabel('Claim with the groups').fill('groups');
  await dialog.getByRole('button', { name: 'Add a group', exact: true }).click();
  await dialog.getByLabel('Group', { exact: true }).fill('Operations');
  await dialog.getByLabel('Role').selectOption('support');
  await dialog.getByRole('button', { name: 'Add a group', exact: true }).click();
  await dialog.getByLabel('Group', { exact: true }).nth(1).fill('Viewers');
  await dialog.getByLabel('Where').nth(1).selectOption('Acme');
  await dialog.getByLabel('Role').nth(1).selectOption('viewer');
  await dialog.getByRole('button', { name: 'Make a SCIM token', exact: true }).click();
  await dialog.getByText(/^slp_/).waitFor();
  const token = await dialog.getByText(/^slp_/).textContent();
  service.secrets.add(token ?? '');
  await dialog.getByText(`${service.server.url}/scim/v2`).waitFor();
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  const { identityProvider } = await service.ok('GET', `/api/v1/identity-providers/${id}`);
  t.match(identityProvider, {
    groupsClaim: 'groups',
    mappings: [
      { group: 'Operations', roleId: 'account:support', organizationId: null },
      { group: 'Viewers', roleId: 'organization:viewer', organizationId: organization.id },
    ],
  });
  await choose(page, 'Directory', 'Groups');
  await dialog.getByRole('button', { name: 'Remove Operations', exact: true }).click();
  t.equal(await dialog.getByLabel('Group', { exact: true }).count(), 1);
  t.strictSame(errors, []);
});

t.test('live messages show what an MQTT 5 client sent along', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings', 'requests'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/live`);
  await page.getByText('Listening').waitFor();
  const client = await service.connect({ deviceId: device.id, secret }, { protocolVersion: 5 });
  const properties = {
    contentType: 'text/csv',
    responseTopic: service.topic(device.id, 'requests'),
    correlationData: Buffer.from([0, 255, 7]),
    userProperties: { unit: ['°C', '°F'] },
    messageExpiryInterval: 100,
  };
  await client.publishAsync(service.topic(device.id, 'readings'), ',temperature,1,', { qos: 1 });
  await client.publishAsync(service.topic(device.id, 'readings'), ',temperature,2,', { qos: 1, properties });
  const unfold = page.getByRole('button', { name: 'The message on readings' });
  await unfold.nth(1).waitFor();
  for (const button of await unfold.all()) await button.click();
  const raw = page.locator('tr.raw');
  const shown = raw.filter({ hasText: ',temperature,2,' });
  await shown.getByRole('definition').first().waitFor();
  t.strictSame(await shown.getByRole('term').allTextContents(), [
    ...['Content type', 'Response topic', 'Correlation data', 'unit', 'unit', 'Expires in'],
  ]);
  const values = await shown.getByRole('definition').allTextContents();
  t.match(values.pop(), /^(100|\d\d) s$/);
  t.strictSame(values, ['text/csv', properties.responseTopic, 'AP8H', '°C', '°F']);
  const plain = raw.filter({ hasText: ',temperature,1,' });
  await plain.waitFor();
  t.equal(await plain.getByRole('term').count(), 0, 'a message without properties has no list of them');
  t.strictSame(errors, []);
});

t.test('stored points are drawn as a chart of each category', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device } = await service.device({ deviceTemplateId });
  const at = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();
  const lines = [30, 20, 10].flatMap((ago) => [`${at(ago)},temperature,${ago},`, `${at(ago)},humidity,${50 - ago},`]);
  await service.ok('POST', `/api/v4/data/${service.topic(device.id, 'readings')}`, {
    body: `${lines.join('\n')}\n`,
    headers: { 'content-type': 'text/csv' },
  });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/series`);
  for (const category of ['temperature', 'humidity']) {
    const chart = page.getByRole('img', { name: `Chart of ${category}` });
    await chart.locator('canvas').waitFor();
    await settled(page);
    const drawn = await page.evaluate(`(() => {
      const canvas = document.querySelector('[aria-label="Chart of ${category}"] canvas');
      return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0);
    })()`);
    t.ok(drawn, `${category} is drawn`);
  }
  t.strictSame(errors, []);
});

t.test('of many organizations the service finds the one whose name is typed, by keyboard too', async (t) => {
  const made = await Promise.all(
    Array.from({ length: 60 }, (_, at) => service.organization({ name: `Site ${String(at).padStart(2, '0')}` })),
  );
  const { device } = await service.device({ organizationId: made[59]?.id });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/fields`);
  const field = page.getByRole('combobox', { name: 'Organization', exact: true });
  const named = page.locator('[role=combobox]');
  await named.waitFor();
  await until(
    () => named.inputValue(),
    (shown) => shown === 'Site 59',
  );
  await field.fill('te 57');
  const found = page.getByRole('option', { name: 'Site 57', exact: true });
  await found.waitFor();
  await field.dispatchEvent('keydown', { key: 'Enter', isComposing: true });
  await found.waitFor();
  t.equal(await field.inputValue(), 'te 57', 'a key of an input method chooses nothing');
  await page.keyboard.press('Enter');
  t.equal(await field.inputValue(), 'Site 57');
  await press(page, 'Save');
  await page.getByText('Saved.').waitFor();
  const { device: now } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  t.equal(now.organizationId, made[57]?.id);
  await page.goto('/console/devices');
  await settled(page);
  await press(page, 'Filter by …');
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('combobox', { name: 'What', exact: true }).fill('with those below');
  await page.getByRole('option', { name: 'Organization, with those below', exact: true }).click();
  await dialog.getByRole('combobox', { name: 'Value', exact: true }).fill('site 57');
  await page.getByRole('option', { name: 'Site 57', exact: true }).click();
  await press(page, 'Apply');
  await page.waitForURL(new RegExp(`within.*${made[57]?.id}`));
  await page.getByRole('link', { name: device.serialNumber }).waitFor();
  t.strictSame(errors, []);
});

t.end();
