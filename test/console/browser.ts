/** A real browser for the tests of the console: Debian's Chromium when it is there, else the one inside its npm package. */
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import type { Test } from 'tap';
import { adminEmail, adminPassword, type Service } from '../support/service.js';

const installed = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => existsSync(path));

export async function openBrowser(t: Test): Promise<Browser> {
  const browser = await chromium.launch({ headless: true, ...(await binary()) });
  t.teardown(() => browser.close());
  return browser;
}

async function binary() {
  if (installed) return { executablePath: installed, args: ['--no-sandbox'] };
  // Without this the package takes the machine for one that has NSS, and leaves its own libraries packed.
  process.env.AWS_LAMBDA_JS_RUNTIME ??= 'nodejs22.x';
  const { default: packed, setupLambdaEnvironment } = await import('@sparticuz/chromium').then(
    (module) => module as typeof module & { setupLambdaEnvironment?: (path: string) => void },
  );
  const executablePath = await packed.executablePath();
  setupLambdaEnvironment?.('/tmp/al2023/lib');
  return { executablePath, args: packed.args.filter((one) => one !== '--single-process') };
}

/** What a page must not do: say errors on the console, or ask another host. */
export interface Watched {
  page: Page;
  errors: string[];
  foreign: string[];
}

/** A page on the console of a service. Answers that a test provokes may fail, so failed requests are no errors. */
export async function openPage(
  t: Test,
  browser: Browser,
  service: Service,
  options: BrowserContextOptions = {},
): Promise<Watched> {
  const context = await browser.newContext({ baseURL: service.server.url, locale: 'en-GB', ...options });
  t.teardown(() => context.close());
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
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
    .getByRole('button', { name: 'Sign out' })
    .or(page.getByRole('button', { name: 'Menu' }))
    .first()
    .waitFor();
}
