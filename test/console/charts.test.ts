/** Charts, in a real browser: values under the pointer, units, states, gaps, zoom, several devices, files. */
import { readFile } from 'node:fs/promises';
import type { Browser, Page } from 'playwright-core';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { openAs, settled } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
let deviceTemplateId: string;
const minute = 60_000;
const now = Date.now();

t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
  const template = await service.template({
    channels: [
      {
        name: 'data',
        persistenceType: 'timeSeries',
        categories: [
          { name: 'temperature', label: 'Air', unit: '°C', kind: 'number' },
          { name: 'door', label: 'Door', kind: 'state' },
        ],
      },
    ],
  });
  deviceTemplateId = template.id;
});

/** A device with a point each minute of these minutes ago: `[minutes, value]`. */
async function deviceWith(serialNumber: string, points: Record<string, [number, number | string][]>) {
  const { device, secret } = await service.device({ serialNumber, deviceTemplateId });
  const client = await service.connect({ deviceId: device.id, secret });
  const lines = Object.entries(points).flatMap(([category, values]) =>
    values.map(([ago, value]) => {
      const both = typeof value === 'number' ? `${value},` : `,${value}`;
      return `${now - ago * minute},${category},${both}`;
    }),
  );
  await client.publishAsync(service.topic(device.id, 'data'), lines.join('\n'), { qos: 1 });
  return { device, client };
}

const chart = (page: Page, title: string) =>
  page.locator('.charted').filter({ has: page.getByRole('heading', { name: title }) });
async function drawn(page: Page) {
  await settled(page);
  await page.locator('.u-over').first().waitFor();
}

async function csvOf(page: Page, title: string): Promise<string> {
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: `CSV: values of ${title}` }).click(),
  ]);
  return `${file.suggestedFilename()}\n${await readFile(await file.path(), 'utf8')}`;
}

t.test('a chart names its value, unit and time under the pointer, and by the arrow keys', async (t) => {
  const points = Array.from({ length: 50 }, (_, n): [number, number] => [n + 1, 20 + n / 10]);
  const { device } = await deviceWith('CHART-1', {
    temperature: points,
    door: [
      [40, 'open'],
      [20, 'closed'],
    ],
    light: [
      [30, 1],
      [10, 0],
    ],
  });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/series?range=1h`);
  await drawn(page);
  t.strictSame(
    (await page.locator('.charted h3').allTextContents()).map((one) => one.trim()),
    ['Air °C', 'Door', 'light'],
    'labels and units, in the order of the channel template',
  );
  const air = chart(page, 'Air');
  t.match(await air.locator('.readout').textContent(), /20(\.0)? °C/, 'the latest value');
  const box = await air.locator('.u-over').boundingBox();
  if (!box) throw new Error('the chart is not there');
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  // Half an hour ago, in 24 hours, as the British write times.
  await air
    .locator('.readout')
    .getByText(/2[23]\.\d °C/)
    .waitFor();
  t.match(await air.locator('.readout time').textContent(), /\d{1,2} \w{3,4} 20\d\d, \d\d:\d\d:\d\d$/);
  await page.mouse.move(0, 0);
  await air.getByRole('group').focus();
  await page.keyboard.press('Home');
  await air.locator('.readout').getByText('24.9 °C').waitFor();
  await page.keyboard.press('ArrowRight');
  await air.locator('.readout').getByText('24.8 °C').waitFor();

  const door = chart(page, 'Door');
  t.match(await door.locator('.readout').textContent(), /closed/);
  await door.getByRole('group').focus();
  await page.keyboard.press('Home');
  await door.locator('.readout').getByText('open').waitFor();
  t.strictSame(errors, []);
});

t.test('a part is chosen by dragging, shown finer, kept in the address, and left again', async (t) => {
  const points = Array.from({ length: 300 }, (_, n): [number, number] => [n + 1, n]);
  const { device } = await deviceWith('CHART-2', { temperature: points });
  const { page } = await openAs(t, browser, service, `devices/${device.id}/series?range=7d`);
  await drawn(page);
  const box = await page.locator('.u-over').boundingBox();
  if (!box) throw new Error('the chart is not there');
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.9, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.99, y, { steps: 5 });
  await page.mouse.up();
  await page.waitForURL(/from=\d+.*to=\d+/);
  await drawn(page);
  const { searchParams } = new URL(page.url());
  const span = Number(searchParams.get('to')) - Number(searchParams.get('from'));
  t.ok(span > 13 * 60 * minute && span < 17 * 60 * minute, `a tenth of a week: ${span / minute / 60} h`);
  await page.reload();
  await page.getByRole('button', { name: 'Show the whole range' }).click();
  await page.waitForURL((url) => !url.searchParams.has('from'));
});

t.test('devices are compared, and their values go to a file and a picture; a gap has no values', async (t) => {
  const early = Array.from({ length: 10 }, (_, n): [number, number] => [50 - n, 1]);
  const late = Array.from({ length: 10 }, (_, n): [number, number] => [10 - n, 2]);
  const { device } = await deviceWith('CHART-3', { temperature: [...early, ...late] });
  const { device: other } = await deviceWith('=CHART-4', { temperature: [[30, 7]] });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/series?range=1h`);
  await drawn(page);
  await page.getByLabel('Compare with').selectOption({ label: '=CHART-4' });
  await page.waitForURL(new RegExp(`with=${other.id}`));
  await page.locator('.readout').getByText('CHART-4 7 °C').waitFor();
  t.match(await page.locator('.readout').textContent(), /CHART-3 2 °C.*=CHART-4 7 °C/);
  const rows = (await csvOf(page, 'Air')).trim().split('\r\n');
  t.match(rows[0], /^Air 20\d\d-\d\d-\d\d\.csv\n\ufefftime,device,category,value$/);
  t.equal(rows.filter((row) => row.includes(',CHART-3,Air,')).length, 20);
  t.match(rows.at(-1), /^20\d\d-.*Z,'=CHART-4,Air,7$/);
  const [picture] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'PNG: picture of Air' }).click(),
  ]);
  t.equal((await readFile(await picture.path())).subarray(1, 4).toString(), 'PNG');

  // Between the two parts of CHART-3 nothing is shown of it.
  await page.locator('.keyed').focus();
  await page.keyboard.press('Home');
  for (let n = 0; n < 10; n += 1) await page.keyboard.press('ArrowRight');
  await page.locator('.readout').getByText('CHART-3 –').waitFor();
  await page.getByRole('button', { name: 'Remove =CHART-4' }).click();
  await page.waitForURL((url) => !url.searchParams.has('with'));
  t.strictSame(errors, []);
});

t.test('a chart is live', async (t) => {
  const { device, client } = await deviceWith('CHART-5', { temperature: [[5, 1]] });
  const { page } = await openAs(t, browser, service, `devices/${device.id}/series?range=1h`);
  await drawn(page);
  await page.locator('.readout').getByText('1 °C').waitFor();
  const publishing = setInterval(() => client.publish(service.topic(device.id, 'data'), ',temperature,33.3,'), 300);
  t.teardown(() => clearInterval(publishing));
  // Nobody has asked for it: screen readers say nothing.
  await page.evaluate(`
    globalThis.announced = [];
    new MutationObserver((changes) => {
      for (const { target } of changes)
        announced.push(...[(target.closest ? target : target.parentElement).closest('[aria-live], [role=status]')?.outerHTML ?? []].flat());
    }).observe(document.querySelector('.charts'), { subtree: true, childList: true, characterData: true });`);
  await page.locator('.readout').getByText('33.3 °C').waitFor();
  t.strictSame(await page.evaluate('announced'), []);
  await page.locator('.keyed').focus();
  await page.keyboard.press('End');
  await page.locator('.charted').getByRole('status').getByText('33.3 °C').waitFor();
});

t.test('while charts are loaded, the page does not say that there are none', async (t) => {
  const { device } = await deviceWith('CHART-LOADS', {
    temperature: [
      [5, 20],
      [4, 21],
    ],
  });
  const { page } = await openAs(t, browser, service, `devices/${device.id}`);
  await page.evaluate(`
    globalThis.saidNone = false;
    new MutationObserver(() => {
      if (document.body.textContent.includes('No points in this range.')) saidNone = true;
    }).observe(document.body, { subtree: true, childList: true });`);
  await page.getByRole('link', { name: 'Charts', exact: true }).click();
  await drawn(page);
  t.notOk(await page.evaluate('saidNone'));
});

t.test('numbers have as many digits as tell them apart, beside the axis and under the pointer', async (t) => {
  for (const [serialNumber, base, step] of [
    ['CHART-TINY', 0, 0.00001],
    ['CHART-CLOSE', 59.9142, 0.0001],
    ['CHART-HALVES', 0, 0.25],
    ['CHART-LARGE', 1_234_567, 1000],
  ] as const) {
    const points = [5, 4, 3, 2, 1].map((ago): [number, number] => [ago, base + step * ago]);
    const { device } = await deviceWith(serialNumber, { temperature: points });
    const { page } = await openAs(t, browser, service, '');
    await page.addInitScript(`
      const draw = CanvasRenderingContext2D.prototype.fillText;
      globalThis.drawn = [];
      CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        drawn.push(text);
        return draw.call(this, text, ...more);
      };`);
    await page.goto(`/console/devices/${device.id}/series?range=1h`);
    await drawn(page);
    const texts: string[] = await page.evaluate('[...new Set(drawn)]');
    // Beside the axis of values, which has no times; the same text twice would be one here.
    const values = texts
      .filter((text) => !text.includes(':') && !/[a-z]/i.test(text))
      .map((text) => Number(text.replaceAll(',', '')));
    t.ok(
      values.length >= 2 && values.some((value) => Math.abs(value - (base + 3 * step)) < 3 * step),
      texts.join(' | '),
    );
    const readout = Number((await page.locator('.readout b').textContent())?.replace(/[^\d.]/g, ''));
    t.ok(Math.abs(readout - (base + step)) < step / 5, String(readout));
  }
});

t.end();
