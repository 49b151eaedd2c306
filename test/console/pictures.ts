/**
 * `npm run pictures [-- DIR [PART]]`: pictures of every place of the console, filled as by `npm run demo -- --keep`, in
 * both colour schemes, on a desk, on a wide screen and on a phone. PART is a regular expression of the names of those that are wanted.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Page } from 'playwright-core';
import { fillFleet, makePassword } from '../../demo/fleet.ts';
import { writePast } from '../../demo/past.ts';
import { startServer } from '../../demo/server.ts';
import { troubleEnv } from '../../demo/troubles.ts';
import { launchBrowser, settled, signIn } from './browser.ts';

const [target = 'dist/pictures', part = ''] = process.argv.slice(2);
const emailAddress = 'admin@demo.example';
const wanted = new RegExp(part);
const sizes = {
  desk: { width: 1280, height: 860 },
  wide: { width: 2560, height: 1440 },
  phone: { width: 360, height: 740 },
};

/** Opens what an address does not say, by the names of buttons. */
async function press(page: Page, ...names: string[]): Promise<void> {
  for (const name of names) await page.getByRole('button', { name, exact: true }).first().click();
}

/** An import whose columns can be chosen. */
async function mapColumns(page: Page): Promise<void> {
  await press(page, 'Import CSV or Excel');
  const rows = Array.from(
    { length: 14 },
    (_, at) => `PU-${1000 + at};Pumpe ${at};${at === 3 ? 'Nord' : 52 + at / 10};offen`,
  );
  await page.getByLabel('Or paste rows').fill(['Seriennummer;Name;Breite;Notiz', 'RS-0001;da;;', ...rows].join('\n'));
  await press(page, 'Continue');
  await page.getByLabel('Breite is').selectOption('Latitude');
}

const filtered = 'connected eq true and firmwareVersion lt "9.0" and (name pr or lastConnected gt "-P7D")';

/** The pictures: a name, an address, and what is done there. */
function picturesOf(ids: Record<string, string>): [string, string, ((page: Page) => Promise<void>)?][] {
  const device = `devices/${ids.device}`;
  const tabs = ['live', 'series', 'commands', 'log', 'refusals', 'fields', 'access', 'firmware', 'history'];
  return [
    ['home', 'home'],
    ['home-refusals', 'home/refusals'],
    ['nowhere', 'nowhere'],
    ['first-device', 'first-device'],
    ['devices', 'devices'],
    ['devices-filtered', 'devices?q=RS-00'],
    ['devices-filter', `devices?${new URLSearchParams({ filter: filtered })}`],
    ['devices-filter-wrong', `devices?${new URLSearchParams({ filter: `${filtered} and frimware pr` })}`],
    ['devices-filter-new', 'devices', (page) => press(page, 'Filter by …')],
    ['fleets', 'fleets'],
    ['fleet', `fleets/${ids.fleet}`],
    ['devices-none', 'devices?q=nothing'],
    ['devices-new', 'devices', (page) => press(page, 'New device')],
    ['devices-import', 'devices', (page) => press(page, 'Import CSV or Excel')],
    ['devices-import-columns', 'devices', (page) => mapColumns(page)],
    [
      'devices-import-rows',
      'devices',
      async (page) => {
        await mapColumns(page);
        await press(page, 'Check');
        await page.getByText('will be made').waitFor();
      },
    ],
    ['devices-move', 'devices?q=RS-00', (page) => press(page, 'Move to …')],
    ['device', device],
    ...tabs.map((tab): [string, string] => [`device-${tab}`, `${device}/${tab}`]),
    ['organizations', 'organizations'],
    ['organization', `organizations/${ids.organization}`],
    ['people', 'people'],
    ['people-admins', 'people/account-users'],
    ['roles', 'people/roles'],
    ['role-new', 'people/roles', (page) => press(page, 'New role')],
    ['products', 'products'],
    ['product', `products/${ids.product}`],
    ['factory', 'factory'],
    ['job', `factory/${ids.job}`],
    ['stations', 'factory/stations'],
    ['verifications', 'factory/verifications'],
    ['enrollment', 'enrollment'],
    ['enrollment-group', `enrollment/groups/${ids.group}`],
    ['enrollment-new', 'enrollment', (page) => press(page, 'New enrollment group')],
    ['enrollment-product', 'enrollment', (page) => press(page, 'New enrollment group', 'Next')],
    ['enrollment-certificates', 'enrollment/certificates'],
    ['enrollment-authorities', 'enrollment/authorities'],
    ['firmware', 'firmware'],
    ['rollouts', 'firmware/rollouts'],
    ['rollout', `firmware/rollouts/${ids.rollout}`],
    ['rollout-new', 'firmware/rollouts', (page) => press(page, 'New rollout')],
    ['programs', 'programs'],
    ['identity-providers', 'programs/identity-providers'],
    ['identity-provider-new', 'programs/identity-providers', (page) => press(page, 'New identity provider')],
    ['bridges', 'programs/bridges'],
    ['bridge-new', 'programs/bridges', (page) => press(page, 'New bridge')],
    ['trash', 'trash'],
    ['account', 'account'],
    ['tokens', 'account/tokens'],
    ['token-new', 'account/tokens', (page) => press(page, 'New token')],
    ['branding', 'account/branding'],
    ['usage', 'account/usage'],
    ['audit', 'account/audit'],
    ['health', 'account/health'],
    ['call', 'devices', (page) => press(page, 'Show the call')],
    ['keys', 'devices', (page) => page.keyboard.press('?')],
  ];
}

/** Ids of things to look at, read as the page does. */
async function findIds(page: Page, accountId: string): Promise<Record<string, string>> {
  const read = async (path: string, field = 'id') => {
    const answer = await page.request.get(`/api/v1/${path}${path.includes('?') ? '&' : '?'}accountId=${accountId}`);
    const [list] = Object.values(await answer.json()) as { results: Record<string, string>[] }[];
    return list?.results[0]?.[field] ?? '';
  };
  return {
    device: await read('devices?serialNumber=RS-0001'),
    organization: await read('organizations?name=Harbour plant'),
    product: await read('devices?serialNumber=RS-0001', 'deviceTemplateId'),
    job: await read('provisioning/jobs?action=provision'),
    group: await read('enrollment-groups'),
    fleet: await read('fleets'),
    rollout: await read('firmware/rollouts'),
  };
}

const directory = mkdtempSync(join(tmpdir(), 'slipway-pictures-'));
const password = makePassword();
const env = {
  ...troubleEnv,
  SLIPWAY_DATA_DIR: join(directory, 'data'),
  SLIPWAY_HTTP_PORT: '0',
  SLIPWAY_MQTT_PORT: '0',
};
const { url, port: mqttPort, accountId, stop } = await startServer({ directory, password, env });
const browser = await launchBrowser();
try {
  const login = { url, mqttPort, accountId, emailAddress, password };
  const fleet = await fillFleet({ ...login, deviceCount: 500, onlineCount: 120, say: () => {} });
  writePast(env.SLIPWAY_DATA_DIR, accountId, 120);
  for (const [size, viewport] of Object.entries(sizes))
    for (const colorScheme of ['light', 'dark'] as const) {
      const folder = resolve(target, `${size}-${colorScheme}`);
      mkdirSync(folder, { recursive: true });
      const context = await browser.newContext({ baseURL: url, viewport, colorScheme, locale: 'en-GB' });
      const page = await context.newPage();
      await page.goto('/console/');
      await page.getByLabel('Email address').waitFor();
      if (wanted.test('sign-in')) await page.screenshot({ path: join(folder, 'sign-in.png') });
      await signIn(page, emailAddress, password);
      for (const [name, place, act] of picturesOf(await findIds(page, accountId))) {
        if (!wanted.test(name)) continue;
        await page.goto(`/console/${place}`);
        await settled(page);
        if (name === 'device-live') {
          await page.getByText('Listening').waitFor();
          await fleet.publish();
          await page.locator('.messages tbody tr').first().waitFor();
        }
        await act?.(page);
        await page.screenshot({ path: join(folder, `${name}.png`), fullPage: act === undefined && size === 'phone' });
      }
      await context.close();
    }
  fleet.close();
} finally {
  await browser.close();
  await stop();
  rmSync(directory, { recursive: true, force: true });
}
