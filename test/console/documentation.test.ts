/** The page at /docs in a real browser. */
import type { Browser } from 'playwright-core';
import t from 'tap';
import { type Service, startService } from '../support/service.js';
import { openBrowser } from './browser.js';

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser(t);
});

t.test('/docs opens with every tag collapsed, and a tag opens with its operations', async (t) => {
  const page = await browser.newPage();
  await page.goto(`${service.server.url}/docs`);
  const tag = page.locator('.opblock-tag').first();
  await tag.waitFor();
  const { tags } = JSON.parse((await service.http('GET', '/openapi.json')).text);
  t.ok((await page.locator('.opblock-tag').count()) >= (tags?.length ?? 1));
  t.equal(await page.locator('.opblock').count(), 0, 'no operation is shown');
  const settings = await (await fetch(`${service.server.url}/docs/static/swagger-initializer.js`)).text();
  t.match(settings, 'components,securitySchemes', 'nor is the whole document resolved, which takes a second');
  await tag.click();
  await page.locator('.opblock').first().waitFor();
});

t.test('/docs shows an operation with its fields, and every way to authorize', async (t) => {
  const page = await browser.newPage();
  const failures: string[] = [];
  page.on('pageerror', (error) => failures.push(error.message));
  await page.goto(`${service.server.url}/docs`);
  await page.locator('.authorize').first().click();
  await page.locator('.auth-container').first().waitFor();
  const { components } = JSON.parse((await service.http('GET', '/openapi.json')).text);
  const schemes = Object.keys(components.securitySchemes);
  const shown = await page.locator('.auth-container h4 code').allTextContents();
  t.strictSame(shown.sort(), schemes.sort());
  await page.locator('.modal-ux .close-modal').click();

  await page.locator('#operations-tag-Devices').click();
  await page.locator('[id$="-createDevice"] .opblock-summary-control').click();
  await page.locator('[id$="-createDevice"]').getByText('serialNumber').first().waitFor();
  t.strictSame(failures, []);
});
