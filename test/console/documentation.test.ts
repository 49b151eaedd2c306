/** The page at /docs in a real browser. */
import t from 'tap';
import { startService } from '../support/service.js';
import { openBrowser } from './browser.js';

t.test('/docs opens with every tag collapsed, and a tag opens with its operations', async (t) => {
  const service = await startService(t);
  const browser = await openBrowser(t);
  const page = await browser.newPage();
  await page.goto(`${service.server.url}/docs`);
  const tag = page.locator('.opblock-tag').first();
  await tag.waitFor();
  const { tags } = await service.ok('GET', '/docs/json');
  t.ok((await page.locator('.opblock-tag').count()) >= (tags?.length ?? 1));
  t.equal(await page.locator('.opblock').count(), 0, 'no operation is shown');
  await tag.click();
  await page.locator('.opblock').first().waitFor();
});
