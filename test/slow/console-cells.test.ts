/** The console over two cells: one address, and everybody works in the cell of their account. */

import t from 'tap';
import { openPage, settled, signIn } from '../console/browser.ts';
import { openBrowser } from '../console/shared-browser.ts';
import { placeOf, startCell, startProxy, through } from '../support/cells.ts';
import { withHaproxy } from '../support/haproxy.ts';
import { adminEmail, adminPassword } from '../support/service.ts';

t.test(
  'admins of accounts in two cells sign in at one address, and each sees what is theirs',
  withHaproxy,
  async (t) => {
    const own = [await startCell(t, 0), await startCell(t, 1)] as const;
    const proxied = await startProxy(t, [placeOf(own[0]), placeOf(own[1])]);
    const browser = await openBrowser();
    for (const [place, cell] of own.entries()) {
      const service = through(proxied, cell);
      t.teardown(() => service.close());
      await service.create('/devices', 'device', { serialNumber: `IN-CELL-${place}` });
      const { page, errors } = await openPage(t, browser, service);
      await page.goto('/console/');
      await page.getByLabel('Account id').waitFor();
      await signIn(page, adminEmail, adminPassword, `/console/?account=${service.accountId}`);
      await page.goto('/console/devices');
      await settled(page);
      await page.getByRole('link', { name: `IN-CELL-${place}`, exact: true }).waitFor();
      t.equal(await page.getByText(`IN-CELL-${1 - place}`).count(), 0);
      t.strictSame(errors, []);
    }
  },
);
