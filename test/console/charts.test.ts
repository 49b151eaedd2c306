/** Charts, in a real browser: values under the pointer, units, states, gaps, zoom, several devices, files. */
import { readFile } from 'node:fs/promises';
import type { Browser, Page } from 'playwright-core';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { openAs, openPage, settled, signIn } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
let deviceTemplateId: string;
const minute = 60_000;
/** Of each test: those before may take minutes. */
let now: number;
t.beforeEach(() => {
  now = Date.now();
});

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
    page.getByRole('button', { name: `CSV: values of ${title}`, exact: true }).click(),
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

t.test('where no point is, the label has the time under the pointer and no value', async (t) => {
  const day = 24 * 60;
  // At noon: the points of a chart of a month are the beginnings of hours.
  const since = (now - new Date(now).setHours(12, 0, 0, 0)) / minute;
  const points = [3, 2, 1].map((days): [number, number] => [days * day + since, days]);
  const { device } = await deviceWith('CHART-FAR', { temperature: points });
  const { page } = await openAs(t, browser, service, `devices/${device.id}/series?range=30d`);
  await drawn(page);
  const box = await page.locator('.u-over').boundingBox();
  if (!box) throw new Error('the chart is not there');
  const readout = page.locator('.readout');
  const dayOf = (ago: number) => String(new Date(now - ago * day * minute).getDate());
  await page.mouse.move(box.x + (box.width * 10) / 30, box.y + 20);
  await readout.getByText('–').waitFor();
  t.match(await readout.locator('time').textContent(), new RegExp(`^(${dayOf(20)}|${dayOf(19)}|${dayOf(21)}) `));
  await page.mouse.move(box.x + box.width * (28 / 30 - since / day / 30), box.y + 20);
  await readout.getByText('2 °C').waitFor();
  t.match(await readout.locator('time').textContent(), new RegExp(`^${dayOf(2)} `));
});

t.test('charts open on what was looked at last, else on the first channel that has points', async (t) => {
  const template = await service.template({ channels: ['empty', 'first', 'second'] });
  const make = async (serialNumber: string, channels: string[]) => {
    const { device } = await service.device({ serialNumber, deviceTemplateId: template.id });
    for (const channel of channels)
      await service.ok('POST', `/api/v4/data/${service.topic(device.id, channel)}`, {
        headers: { 'content-type': 'text/csv' },
        body: ',x,1,',
      });
    return `devices/${device.id}/series`;
  };
  const one = await make('CHART-OPEN-1', ['first', 'second']);
  const two = await make('CHART-OPEN-2', ['first', 'second']);
  const { page, errors } = await openPage(t, browser, service);
  await signIn(page, undefined, undefined, `/console/${one}`);
  await drawn(page);
  const channel = page.getByLabel('Channel');
  t.equal(await channel.inputValue(), 'first');
  await channel.selectOption('second');
  await page.getByLabel('Range').selectOption('7d');
  await page.goto(`/console/${two}`);
  await drawn(page);
  t.equal(await channel.inputValue(), 'second');
  t.equal(await page.getByLabel('Range').inputValue(), '7d');
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
  await page.getByRole('button', { name: 'Show the whole range', exact: true }).click();
  await page.waitForURL((url) => !url.searchParams.has('from'));
});

/** What the address says is shown, in minutes: how long, and until how long ago. */
function shownBy(page: Page) {
  const { searchParams } = new URL(page.url());
  const [from, to] = [Number(searchParams.get('from')), Number(searchParams.get('to'))];
  return { length: Math.round((to - from) / minute), until: Math.round((Date.now() - to) / minute) };
}

/** The clock goes on while the page works. */
function shows(t: Test, shown: ReturnType<typeof shownBy>, length: number, until: number, says = ''): void {
  const late = shown.until - until;
  t.ok(shown.length === length && late >= -1 && late <= 3, `${says} ${JSON.stringify(shown)}`);
}

t.test('a part is chosen by buttons, by keys, and by typing it', async (t) => {
  const points = Array.from({ length: 50 }, (_, n): [number, number] => [n + 1, n]);
  const { device } = await deviceWith('CHART-KEYS', { temperature: points });
  const { page, errors } = await openAs(t, browser, service, `devices/${device.id}/series?range=1h`);
  await drawn(page);
  const next = async (act: () => Promise<unknown>) => {
    const before = page.url();
    await act();
    await page.waitForURL((url) => url.href !== before);
    return shownBy(page);
  };
  const press = (name: string) => next(() => page.getByRole('button', { name, exact: true }).click());
  shows(t, await press('Zoom in'), 30, 15);
  shows(t, await press('Earlier'), 30, 30);
  shows(t, await press('Later'), 30, 15);
  shows(t, await press('Zoom out'), 60, 0);

  const keyed = page.locator('.keyed');
  await keyed.focus();
  const key = (name: string) => next(() => page.keyboard.press(name));
  shows(t, await key('+'), 30, 15);
  shows(t, await key('-'), 60, 0);
  shows(t, await key('Shift+ArrowLeft'), 60, 30);
  shows(t, await key('Shift+ArrowRight'), 60, 0);
  await page.locator('.readout').getByText('0 °C', { exact: true }).waitFor();
  // The drawing takes what was read after the next frame, and says where the keys have come to.
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => setTimeout(done)))');
  await page.keyboard.press('End');
  const last = await key('+');
  t.match(last, { length: 30 });
  t.ok(last.until <= 3, 'around the value that the keys have come to');
  await page.getByRole('status').filter({ hasText: ' – ' }).waitFor({ state: 'attached' });
  t.equal(await keyed.and(page.locator(':focus')).count(), 1, 'the focus stays');

  await page.getByText('Type a range').click();
  // A browser leaves out seconds that are none.
  const local = (ago: number) =>
    new Date(now - ago * minute).toLocaleString('sv').replace(' ', 'T').replace(/:00$/, '');
  const type = async (from: number, to: number) => {
    await page.getByLabel('From', { exact: true }).fill(local(from));
    await page.getByLabel('To', { exact: true }).fill(local(to));
    await page.getByRole('button', { name: 'Show', exact: true }).click();
  };
  await type(10, 20);
  await page.getByRole('alert').getByText('From must be before To.').waitFor();
  t.match(await next(() => type(40, 20)), { length: 20 });
  await page.reload();
  await page.getByText('Type a range').click();
  t.equal(await page.getByLabel('From', { exact: true }).inputValue(), local(40), 'the fields say what is shown');
  await page.getByRole('button', { name: 'Show the whole range', exact: true }).click();
  await page.waitForURL((url) => !url.searchParams.has('from'));
  t.strictSame(errors, []);
});

t.test('two fingers zoom a chart and move it, and one scrolls the page', async (t) => {
  const points = Array.from({ length: 50 }, (_, n): [number, number] => [n + 1, n]);
  const { device } = await deviceWith('CHART-FINGERS', { temperature: points });
  const { page, errors } = await openPage(t, browser, service, { hasTouch: true });
  await signIn(page, undefined, undefined, `/console/devices/${device.id}/series?range=1h`);
  await drawn(page);
  const devtools = await page.context().newCDPSession(page);
  const fingers = async (...steps: number[][]) => {
    await page.locator('.u-over').scrollIntoViewIfNeeded();
    const box = await page.locator('.u-over').boundingBox();
    if (!box) throw new Error('the chart is not there');
    const types = ['touchStart', ...steps.slice(1).map(() => 'touchMove')] as ('touchStart' | 'touchMove')[];
    for (const [at, step] of steps.entries()) {
      const touchPoints = step.map((x, id) => ({ x: box.x + x * box.width, y: box.y + box.height / 2, id }));
      await devtools.send('Input.dispatchTouchEvent', { type: types[at] ?? 'touchMove', touchPoints });
    }
    await devtools.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
  };
  // What was a fifth of the hour is three fifths of what is seen.
  await fingers([0.4, 0.6], [0.3, 0.7], [0.2, 0.8]);
  await page.waitForURL(/from=\d+.*to=\d+/);
  shows(t, shownBy(page), 20, 20);
  await drawn(page);
  const before = page.url();
  await fingers([0.5, 0.6], [0.6, 0.7], [0.75, 0.85]);
  await page.waitForURL((url) => url.href !== before);
  shows(t, shownBy(page), 20, 25, 'a quarter earlier');
  const after = page.url();
  await fingers([0.5], [0.6], [0.9]);
  // One of the two is beside the chart.
  await fingers([-0.2, 0.5], [-0.2, 0.9]);
  await page.getByRole('button', { name: 'Zoom out', exact: true }).click();
  await page.waitForURL((url) => url.href !== after);
  shows(t, shownBy(page), 40, 15, 'one finger has changed nothing');
  t.strictSame(errors, []);
});

t.test(
  'lines are told apart by their dashes, in the chart, beside the names and in the colours of the person',
  async (t) => {
    const ids: string[] = [];
    for (const n of [1, 2, 3])
      ids.push(
        (
          await deviceWith(`CHART-DASH-${n}`, {
            temperature: [
              [30, n],
              [10, n],
            ],
          })
        ).device.id,
      );
    const { page } = await openAs(t, browser, service, '');
    await page.addInitScript(`
    const stroke = CanvasRenderingContext2D.prototype.stroke;
    globalThis.strokes = [];
    CanvasRenderingContext2D.prototype.stroke = function (...path) {
      strokes.push([this.getLineDash().join(), this.strokeStyle, this.lineWidth].join(' '));
      return stroke.apply(this, path);
    };`);
    const series = `/console/devices/${ids[0]}/series?range=1h&with=${ids.slice(1).join()}`;
    for (const forcedColors of ['none', 'active'] as const) {
      await page.emulateMedia({ forcedColors });
      await page.goto(series);
      await drawn(page);
      const strokes: string[] = await page.evaluate('strokes');
      const lines = [...new Set(strokes.filter((one) => / 2$/.test(one)))];
      t.equal(new Set(lines.map((one) => one.split(' ')[0])).size, 3, `${forcedColors}: ${lines.join(' | ')}`);
      if (forcedColors === 'active') t.equal(new Set(lines.map((one) => one.split(' ')[1])).size, 1, 'of one colour');
      const swatches: string[] = await page.evaluate(
        `[...document.querySelectorAll('.compared .swatch path')].map((one) => getComputedStyle(one).strokeDasharray)`,
      );
      t.equal(new Set(swatches).size, 3, swatches.join(' | '));
    }
  },
);

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
    page.getByRole('button', { name: 'PNG: picture of Air', exact: true }).click(),
  ]);
  t.equal((await readFile(await picture.path())).subarray(1, 4).toString(), 'PNG');

  // Between the two parts of CHART-3 nothing is shown of it.
  await page.locator('.keyed').focus();
  await page.keyboard.press('Home');
  for (let n = 0; n < 10; n += 1) await page.keyboard.press('ArrowRight');
  await page.locator('.readout').getByText('CHART-3 –').waitFor();
  await page.getByRole('button', { name: 'Remove =CHART-4', exact: true }).click();
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
