/** A real browser for the tests of the console: Debian's Chromium when it is there, else the one inside its npm package. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
  type Route,
} from 'playwright-core';
import type { Test } from 'tap';
import { adminEmail, adminPassword, type Service } from '../support/service.ts';
import { patience, until } from '../support/until.ts';

const installed = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => existsSync(path));

/** Options of the package to play a graphics card in software: pages need none, and it takes a third of the browser's CPU. */
const drawing = /^--(use-gl|use-angle|enable-unsafe-swiftshader|ignore-gpu-blocklist)/;

/** No graphics card, and one process for all pages: one for each takes a seventh more CPU. */
const frugal = ['--disable-gpu', '--renderer-process-limit=1'];

/** Headless Chromium. A test takes the one of {@link openBrowser} in shared-browser.ts. */
export async function launchBrowser(): Promise<Browser> {
  // Half a minute where other waits have twenty seconds.
  return chromium.launch({ headless: true, timeout: patience * 1500, ...(await binary()) });
}

async function binary() {
  if (installed) return { executablePath: installed, args: ['--no-sandbox', ...frugal] };
  // Without this the package takes the machine for one that has NSS, and leaves its own libraries packed.
  process.env.AWS_LAMBDA_JS_RUNTIME ??= 'nodejs22.x';
  const module: typeof import('@sparticuz/chromium') & { setupLambdaEnvironment: (libraries: string) => void } =
    await import('@sparticuz/chromium');
  const directory = await unpacked(() => module.default.executablePath());
  process.env.FONTCONFIG_PATH = directory;
  module.setupLambdaEnvironment(join(directory, 'al2023/lib'));
  const args = module.default.args.filter((one) => one !== '--single-process' && !drawing.test(one));
  return { executablePath: join(directory, 'chromium'), args: [...args, ...frugal] };
}

/** Unpacked once for all test files, next to the package: it takes two seconds and 200 MB. */
async function unpacked(unpack: () => Promise<string>): Promise<string> {
  const { resolve } = createRequire(import.meta.url);
  const packed = dirname(dirname(resolve('@sparticuz/chromium')));
  const { version } = JSON.parse(readFileSync(join(packed, 'package.json'), 'utf8'));
  const directory = join(packed, '../../.cache', `chromium-${version}`);
  if (existsSync(directory)) return directory;
  mkdirSync(dirname(directory), { recursive: true });
  const own = mkdtempSync(`${directory}-`);
  const { TMPDIR } = process.env;
  process.env.TMPDIR = own;
  await unpack();
  if (TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = TMPDIR;
  const fonts = ['/usr/share/fonts', join(directory, 'fonts')].map((path) => `<dir>${path}</dir>`).join('');
  const cache = `<cachedir>${join(directory, 'fonts-cache')}</cachedir>`;
  writeFileSync(join(own, 'fonts.conf'), `<?xml version="1.0"?><fontconfig>${fonts}${cache}</fontconfig>\n`);
  try {
    renameSync(own, directory);
  } catch (error) {
    // Another test file was faster.
    if (!existsSync(directory)) throw error;
    rmSync(own, { recursive: true });
  }
  return directory;
}

/** A window of its own, whose pages and requests wait as long as other waits of tests. */
export async function newWindow(browser: Browser, options: BrowserContextOptions = {}): Promise<BrowserContext> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patience * 1000);
  return context;
}

/** What a page must not do: say errors on the console, or ask another host. */
export interface Watched {
  page: Page;
  errors: string[];
  foreign: string[];
}

/** A page on the console of a service, in a window of its own that has neither a login nor files of the page. */
export async function openPage(
  t: Test,
  browser: Browser,
  service: Service,
  options: BrowserContextOptions = {},
): Promise<Watched> {
  const context = await newWindow(browser, { ...usual(service), ...options });
  t.teardown(() => context.close());
  return watch(await context.newPage(), service);
}

const usual = (service: Service) => ({ baseURL: service.server.url, locale: 'en-GB' });

/** Answers that a test provokes may fail, so failed requests are no errors. */
function watch(page: Page, service: Service): Watched {
  const errors: string[] = [];
  const foreign: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      errors.push(message.text());
  });
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(service.server.url) && !/^(data|blob):/.test(url)) foreign.push(url);
  });
  return { page, errors, foreign };
}

/** Waits until a place shows what it has read. */
export async function settled(page: Page): Promise<void> {
  await page.locator('h1').waitFor();
  for (const busy of [page.locator('[aria-busy=true]'), page.getByText('Loading …')])
    await busy.first().waitFor({ state: 'detached' });
}

/** Waits for the title of the document, which comes a frame after what it names. */
export const titled = (page: Page, title: string | RegExp) =>
  until(
    () => page.title(),
    (shown) => (typeof title === 'string' ? shown === title : title.test(shown)),
  );

/** Goes to a place of the page that is open, as a link of it does: nothing is loaded that the page has. */
export async function go(page: Page, place: string): Promise<void> {
  await page.evaluate(`history.pushState(null, '', '/console/${place}')`);
  await settled(page);
}

/** Undo of a notice. It stays while the pointer is on it, however long a test takes until it presses it. */
export async function holdUndo(page: Page): Promise<Locator> {
  const undo = page.getByRole('button', { name: 'Undo', exact: true });
  await undo.hover();
  return undo;
}

/** Holds the next request for an address back: `asked` resolves with it, and the test goes on with it. */
export async function holdRequest(page: Page, address: string): Promise<{ asked: Promise<Route> }> {
  let hold = (_: Route) => {};
  const asked = new Promise<Route>((resolve) => {
    hold = resolve;
  });
  await page.route(address, (route) => hold(route), { times: 1 });
  return { asked };
}

/** How many bytes a page loads from now on. What it reads again by itself, while a busy machine draws it, counts once. */
export async function countLoaded(page: Page): Promise<() => number> {
  const network = await page.context().newCDPSession(page);
  const read = new Map<string, string>();
  const loaded = new Map<string, number>();
  network.on('Network.requestWillBeSent', ({ requestId, request: { method, url } }) => {
    if (method === 'GET') read.set(requestId, url);
  });
  network.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    const what = read.get(requestId) ?? requestId;
    if (!loaded.has(what)) loaded.set(what, encodedDataLength);
  });
  await network.send('Network.enable');
  return () => [...loaded.values()].reduce((sum, bytes) => sum + bytes, 0);
}

const windows = new WeakMap<Service, Promise<BrowserContext>>();

/**
 * A page of the admin at a place, in a window that tests share: its login and the files of the page are there. A test that
 * ends the session takes a window of its own.
 */
export async function openAs(t: Test, browser: Browser, service: Service, place: string): Promise<Watched> {
  const context = await (windows.get(service) ?? openWindow(browser, service));
  const watched = watch(await context.newPage(), service);
  t.teardown(() => watched.page.close());
  await watched.page.goto(`/console/${place}`);
  await settled(watched.page);
  return watched;
}

/** A window with the login of the admin, which {@link openAs} shares. */
export function openWindow(
  browser: Browser,
  service: Service,
  options: BrowserContextOptions = {},
): Promise<BrowserContext> {
  const logIn = async () => {
    const context = await newWindow(browser, { ...usual(service), ...options });
    const data = { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId };
    const answer = await context.request.post('/api/v1/auth/login-user', { data });
    const { csrfToken } = await answer.json();
    // A page that has renewed the session has a newer one.
    await context.addInitScript(`localStorage['slipway-csrf'] ??= ${JSON.stringify(csrfToken)}`);
    return context;
  };
  const window = logIn();
  windows.set(service, window);
  return window;
}

export async function signIn(
  page: Page,
  email = adminEmail,
  password = adminPassword,
  at = '/console/',
): Promise<void> {
  await page.goto(at);
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page
    .getByRole('button', { name: 'Sign out', exact: true })
    .or(page.getByRole('button', { name: 'Menu', exact: true }))
    .first()
    .waitFor();
}
