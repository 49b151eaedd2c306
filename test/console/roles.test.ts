/** Roles and tokens in a browser: what a role may not do is not shown, and nobody can tick a right that they do not have. */
import type { Browser, Page } from 'playwright-core';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { accountUser, role } from '../support/roles.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { go, openAs, openPage, settled } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
let device: { id: string };
let organizationId: string;
t.before(async () => {
  service = await sharedService(t);
  browser = await openBrowser();
  organizationId = (await service.organization({ name: 'North' })).id;
  const template = await service.template({ name: 'Pump', channels: ['readings'] });
  ({ device } = await service.device({ organizationId, deviceTemplateId: template.id, serialNumber: 'SN-1' }));
});

/** A page of somebody who has signed in by the API. */
async function openOf(t: Test, email: string, password: string): Promise<Page> {
  const { page } = await openPage(t, browser, service);
  const data = { emailAddress: email, password, accountId: service.accountId };
  const answer = await page.context().request.post('/api/v1/auth/login-user', { data });
  const { csrfToken } = await answer.json();
  await page.addInitScript(`localStorage['slipway-csrf'] ??= ${JSON.stringify(csrfToken)}`);
  await page.goto('/console/account');
  await settled(page);
  return page;
}

const places = [
  'home',
  'devices',
  'fleets',
  'organizations',
  'people',
  'people/account-users',
  'people/roles',
  'products',
].concat(['factory', 'factory/stations', 'firmware', 'firmware/rollouts', 'programs', 'programs/bridges', 'account']);
const parts = ['', '/live', '/commands', '/log', '/fields', '/access', '/firmware'];

/** The names of all buttons of all places that somebody reaches. */
async function buttonsOf(page: Page): Promise<Set<string>> {
  const found = new Set<string>();
  for (const place of [...places, ...parts.map((part) => `devices/${device.id}${part}`)]) {
    await go(page, place);
    // In one look: the page may be drawn anew while it is read.
    const names: string[] = await page.evaluate(`[...document.querySelectorAll('main button')]
      .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.matches(':disabled, [aria-disabled=true]'))
      .map((one) => (one.ariaLabel ?? one.textContent).trim())`);
    for (const name of names) found.add(name);
  }
  return found;
}

const writes =
  /^(New |Make |Import|Add |Delete|Move|Save|Send|Publish|Replace|Pause|Resume|Upload|Prove|Test|Set up the|Rename)/;
const ownButtons = ['New token'];

t.test('a viewer, an auditor and a support see no button that their role may not press', async (t) => {
  const viewer = await service.endUser(organizationId, { roleId: 'organization:viewer' });
  const seen = await buttonsOf(await openOf(t, viewer.email, viewer.password));
  t.same(
    [...seen].filter((name) => writes.test(name) && !ownButtons.includes(name)),
    [],
  );
  for (const [roleId, may] of [
    ['account:auditor', []],
    ['account:support', ['Send', 'Publish', 'Make a new secret']],
  ] as const) {
    const person = await accountUser(service, { roleId });
    const { emailAddress = '' } = (
      await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}&pageSize=1000`)
    ).accountUsers.results.find(({ id }) => id === person.id) ?? { emailAddress: '' };
    const buttons = await buttonsOf(await openOf(t, String(emailAddress), 'a long enough secret'));
    const wrong = [...buttons].filter(
      (name) => writes.test(name) && !ownButtons.includes(name) && !may.some((one) => name.startsWith(one)),
    );
    t.same(wrong, [], roleId);
    if (may.length === 0) t.notOk(buttons.has(`Actions of ${viewer.email}`), 'no menu that has nothing in it');
    for (const name of may)
      t.ok(
        [...buttons].some((one) => one.startsWith(name)),
        `${roleId}: ${name}`,
      );
  }
});

t.test('an admin makes a role, gives it, and sees who has it', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'people/roles');
  await page.getByRole('button', { name: 'New role', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Night shift');
  await dialog.getByLabel('Applies to').selectOption('An organization');
  await dialog.getByLabel('Read: Devices').check();
  await dialog.getByLabel('Listen: Devices').check();
  t.equal(await dialog.getByLabel('Delete: Devices').count(), 0, 'no role of an organization deletes devices');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('cell', { name: 'Night shift', exact: true }).waitFor();
  const { roles } = await service.ok('GET', `/api/v1/roles?accountId=${service.accountId}&builtIn=false`);
  t.match(roles.results, [{ name: 'Night shift', scope: 'organization', rights: { device: ['read', 'subscribe'] } }]);

  const person = await service.endUser(organizationId);
  await go(page, 'people');
  await page.getByRole('button', { name: `Actions of ${person.email}`, exact: true }).click();
  await page.getByRole('menuitem', { name: 'Change the role', exact: true }).click();
  await page.getByRole('dialog').getByLabel('Role').selectOption('Night shift');
  await page.getByRole('dialog').getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('cell', { name: 'Night shift', exact: true }).waitFor();
  t.equal((await service.ok('GET', `/api/v1/end-users/${person.endUser.id}`)).endUser.roleId, roles.results[0]?.id);
  t.same(errors, []);
});

t.test('a new role starts from another one, such as Support', async (t) => {
  const { page } = await openAs(t, browser, service, 'people/roles');
  await page.getByRole('button', { name: 'New role', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Support without publishing');
  await dialog.getByLabel('Start from').selectOption('Support');
  await dialog.locator('input[name="right device publish"]:checked').waitFor();
  await dialog.getByLabel('Publish: Devices').uncheck();
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('cell', { name: 'Support without publishing', exact: true }).waitFor();
  const { roles } = await service.ok('GET', `/api/v1/roles?accountId=${service.accountId}&pageSize=1000`);
  const rightsOf = (name: string) => {
    const found = roles.results.find((one) => one.id === name || one.name === name)?.rights ?? {};
    return Object.entries(found).flatMap(([kind, may = []]) => may.map((action) => `${kind} ${action}`));
  };
  const expected = rightsOf('account:support').filter((right) => right !== 'device publish');
  t.ok(expected.length > 5);
  t.same(rightsOf('Support without publishing').sort(), expected.sort());
});

t.test('who has few rights can tick only those', async (t) => {
  const rights = { role: ['create', 'read'], endUser: ['read'], device: ['read'], organization: ['read'] } as const;
  const { id: roleId } = await role(service, 'account', rights);
  const person = await accountUser(service, { roleId });
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}&pageSize=1000`);
  const email = String(list.accountUsers.results.find(({ id }) => id === person.id)?.emailAddress);
  const page = await openOf(t, email, 'a long enough secret');
  await go(page, 'people/roles');
  await page.getByRole('button', { name: 'New role', exact: true }).click();
  const dialog = page.getByRole('dialog');
  t.equal(await dialog.getByLabel('Read: Devices').isEnabled(), true);
  for (const name of ['Change: Devices', 'Delete: Devices', 'Read: Bridges'])
    t.equal(await dialog.getByLabel(name).isEnabled(), false, name);
});

t.test('a token is made with some rights, shown once, and ended; an admin sees those of others', async (t) => {
  const person = await service.endUser(organizationId);
  const page = await openOf(t, person.email, person.password);
  await go(page, 'account/tokens');
  await page.getByRole('button', { name: 'New token', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Dashboard');
  await dialog.getByLabel('May do').selectOption('Only some of it');
  await dialog.getByLabel('Read: Devices').check();
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  const text = (await page.getByRole('region', { name: 'Token' }).locator('pre').textContent())?.trim() ?? '';
  service.secrets.add(text);
  t.match(text, /^slp_/);
  t.match(await service.http('GET', `/api/v1/devices/${device.id}`, { token: text }), { status: 200 });
  t.match(await service.http('GET', `/api/v1/organizations/${organizationId}`, { token: text }), { status: 403 });
  await page.getByText('Something of one kind').waitFor();

  const admin = await openAs(t, browser, service, 'account/tokens');
  await admin.page.getByText('There are no tokens').waitFor();
  await admin.page.getByLabel('Whose tokens').selectOption('Everybody’s');
  await admin.page.getByRole('button', { name: 'Actions of Dashboard', exact: true }).click();
  await admin.page.getByRole('menuitem', { name: 'End the token', exact: true }).click();
  await admin.page.getByRole('dialog').getByRole('button', { name: 'End the token', exact: true }).click();
  await admin.page.getByText('There are no tokens').waitFor();
  t.match(await service.http('GET', `/api/v1/devices/${device.id}`, { token: text }), { status: 401 });
});

t.end();
