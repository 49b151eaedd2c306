/** Each place of the console larger, narrower, in forced colours, on paper, and with names written from right to left. */
import type { Browser, Page } from 'playwright-core';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { go, openAs, openPage, titled } from './browser.ts';
import { fill } from './fill.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let browser: Browser;
t.before(async () => {
  browser = await openBrowser();
});

const desk = { width: 1280, height: 800 };
const phone = { width: 360, height: 740 };
const widthOf = async (page: Page) => Number(await page.evaluate('document.documentElement.scrollWidth'));

/** Whatever is pressed on the page and is smaller than 24 pixels; the label of a box to tick is part of it. */
const smallTargets = `[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest('.hidden, .skip') && one.type !== 'hidden')
  .map((one) => {
    const { width, height } = (one.closest('label') ?? one).getBoundingClientRect();
    return [Math.min(width, height), one.outerHTML.slice(0, 120) + ' ' + width + ' x ' + height];
  })
  .filter(([size]) => size < 23.99)
  .map(([, text]) => text)`;

t.test('names of 200 letters without a blank are wrapped, and what is pressed has 24 pixels', async (t) => {
  const service = await startService(t);
  const places = await fill(t, service, (name) => name.padEnd(200, 'W'));
  const { page, errors } = await openAs(t, browser, service, '');
  for (const size of [desk, phone]) {
    await page.setViewportSize(size);
    for (const place of places) {
      await go(page, place);
      const wide = await widthOf(page);
      t.ok(wide <= size.width, `${place} is ${wide} wide of ${size.width}`);
      t.strictSame(await page.evaluate(smallTargets), [], `${place}, ${size.width} wide`);
    }
  }
  t.strictSame(errors, []);
});

t.test('a wide screen is used: tables are as wide as it, forms have two columns, a device has three', async (t) => {
  const service = await startService(t);
  const places = await fill(t, service);
  const wide = { width: 2560, height: 1440 };
  const { page } = await openAs(t, browser, service, 'devices');
  await page.setViewportSize(wide);
  const box = async (selector: string) => {
    const found = await page.locator(selector).first().boundingBox();
    return found ?? { x: 0, y: 0, width: 0, height: 0 };
  };
  /** Where the parts of a grid begin, from left to right. */
  const columns = (selector: string) =>
    page.evaluate(`new Set([...document.querySelectorAll(${JSON.stringify(selector)})]
      .map((one) => Math.round(one.getBoundingClientRect().x))).size`);
  for (const place of ['devices', 'products', 'people/roles', 'firmware', 'trash']) {
    await go(page, place);
    const table = await box('main .tablewrap');
    t.ok(table.x + table.width > wide.width - 60, `${place}: ${JSON.stringify(table)}`);
  }
  const device = places.find((place) => /^devices\/[0-9a-f-]{36}$/.test(place)) ?? '';
  await go(page, `${device}/fields`);
  t.equal(await columns('main .grid.fields:first-of-type > .field'), 2);
  await go(page, device);
  await page.getByRole('heading', { name: 'Position', exact: true }).waitFor();
  t.equal(await columns('main .aside > section, main .aside .stack > section'), 3);
  await page.setViewportSize(desk);
  t.equal(await columns('main .aside > section, main .aside .stack > section'), 2);

  const { page: door } = await openPage(t, browser, service, { viewport: wide });
  await door.goto('/console/');
  await door.getByLabel('Email address').waitFor();
  const panel = await door.locator('.door .panel').boundingBox();
  const middle = (panel?.x ?? 0) + (panel?.width ?? 0) / 2;
  t.ok(Math.abs(middle - wide.width / 2) < 20, `${middle} is the middle`);
});

t.test('New role fits a phone: each right is a box with its name, and nothing is beside the page', async (t) => {
  const service = await startService(t);
  const { page } = await openAs(t, browser, service, 'people/roles');
  await page.setViewportSize(phone);
  await page.getByRole('button', { name: 'New role', exact: true }).click();
  const rights = page.getByRole('dialog').locator('.rights');
  await rights.getByText('Read', { exact: true }).last().click();
  t.ok(
    await rights
      .getByRole('checkbox', { name: /^Read:/ })
      .last()
      .isChecked(),
    'the name ticks its box',
  );
  const [inside = 0, outside = 0]: number[] = await page.evaluate(`(() => {
    const { scrollWidth, clientWidth } = document.querySelector('.rights');
    return [scrollWidth, clientWidth];
  })()`);
  t.ok(outside > 0 && inside <= outside, `${inside} of ${outside}`);
  t.strictSame(await page.evaluate(smallTargets), []);
});

t.test('so it is on the pages of who is not signed in', async (t) => {
  const service = await startService(t);
  const { page } = await openPage(t, browser, service, { viewport: phone });
  for (const place of [
    '/console/',
    '/console/station',
    `/claim?account=${service.accountId}&code=x`,
    '/set-password',
  ]) {
    await page.goto(place);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.getByRole('button').last().waitFor();
    t.equal(await page.getByText('not loaded yet').count(), 0, `${place} does not say that it is missing`);
    t.ok((await widthOf(page)) <= phone.width, place);
    t.strictSame(await page.evaluate(smallTargets), [], place);
  }
});

/** A name that turns all text after it round, in a place that does not keep it to itself. */
const turning = /A\u202e.*?\u05d0\u05d1\u05d2/g;

/** Texts beside names that do not go from left to right, one after the other. */
const turnedTexts = `(() => {
  const turned = [];
  const walker = document.createTreeWalker(document.querySelector('#app'), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const rectOf = (node, from, to) => {
    range.setStart(node, from);
    range.setEnd(node, to);
    return [...range.getClientRects()].find(({ width }) => width > 0);
  };
  let before;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.parentElement.checkVisibility() || node.parentElement.closest('.hidden, option, textarea, svg')) continue;
    let box = node.parentElement;
    while (getComputedStyle(box).display === 'inline') box = box.parentElement;
    const names = [...node.data.matchAll(${turning})].map(({ index, 0: name }) => [index, index + name.length]);
    // Each letter outside of names, and each name as a whole.
    for (let at = 0; at < node.data.length; at += 1) {
      const name = names.find(([from, to]) => at >= from && at < to);
      const rect = rectOf(node, at, name ? name[1] : at + 1);
      if (name) at = name[1] - 1;
      if (!rect || (!name && node.data[at].trim() === '')) continue;
      const isBeside = before?.box === box && Math.abs(before.top - rect.top) < 8;
      if (isBeside && rect.left < before.left) {
        turned.push(box.tagName + '.' + box.className + ': ' + box.textContent.slice(0, 100));
        break;
      }
      before = { box, top: rect.top, left: rect.left };
    }
  }
  return turned;
})()`;

t.test('a name that is written from right to left does not turn what stands beside it', async (t) => {
  const service = await startService(t);
  const places = await fill(t, service, (name) => `A\u202e${name} \u05d0\u05d1\u05d2`);
  const { page, errors } = await openAs(t, browser, service, '');
  for (const place of places) {
    await go(page, place);
    t.strictSame(await page.evaluate(turnedTexts), [], place);
  }
  // A title, a question, and what is said of it then.
  const device = places.find((place) => /^devices\/[^/]+$/.test(place)) ?? '';
  await go(page, device);
  await page.getByRole('button', { name: 'More', exact: true }).click();
  await page.getByRole('menuitem', { name: 'Delete', exact: true }).click();
  t.strictSame(await page.evaluate(turnedTexts), [], 'a dialog');
  await titled(page, /^\u2068A\u202e.*\u2069 · My company · Slipway$/);
  await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText(/was moved to the trash/).waitFor();
  t.strictSame(await page.evaluate(turnedTexts), [], 'a notice');
  t.strictSame(errors, []);
});

t.test('in the colours of the person the open tab and the open place are told from the others', async (t) => {
  const service = await startService(t);
  const { device } = await service.device();
  const { page } = await openAs(t, browser, service, `devices/${device.id}/live`);
  type Look = { ground: string; text: string; line: string; isOpen: boolean };
  const looksOf = (links: string) =>
    page.evaluate(`[...document.querySelectorAll('${links}')].map((one) => {
      const { backgroundColor: ground, color: text, borderBottomColor: line } = getComputedStyle(one);
      return { ground, text, line, isOpen: one.hasAttribute('aria-current') };
    })`) as Promise<Look[]>;
  await page.emulateMedia({ forcedColors: 'active', reducedMotion: 'reduce' });
  for (const links of ['.tabs a', '.side nav a']) {
    const all = await looksOf(links);
    const [open, ...more] = all.filter(({ isOpen }) => isOpen);
    const others = all.filter(({ isOpen }) => !isOpen);
    t.ok(open && more.length === 0 && others.length > 1, links);
    for (const { ground, text } of others)
      t.notOk(ground === open?.ground || text === open?.text, `${JSON.stringify(open)} is not ${ground}, ${text}`);
    if (links === '.tabs a')
      t.strictSame(
        others.filter(({ line }) => line === open?.line),
        [],
        'no other tab is underlined',
      );
  }
});

t.test(
  'text has the size that the person has chosen, in every place, and nothing is wider than the page then',
  async (t) => {
    const service = await startService(t);
    const places = await fill(t, service);
    const { page, errors } = await openAs(t, browser, service, '');
    const devtools = await page.context().newCDPSession(page);
    // Sizes of all that has text of its own, of axes and fields, too.
    await page.addInitScript(`
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (...given) {
      this.canvas.dataset.font = this.font;
      return draw.apply(this, given);
    };`);
    const sizes = () =>
      page.evaluate(`[...document.querySelectorAll('#app *')]
      .filter((one) => one.matches('input, select, textarea, canvas') || [...one.childNodes].some(({ nodeType, data }) => nodeType === 3 && data.trim()))
      .map((one) => parseFloat((one.dataset.font ?? getComputedStyle(one).fontSize).replace(/^[a-z ]+/, '')))`) as Promise<
        number[]
      >;
    const scale = async (standard: number) => {
      await devtools.send('Page.setFontSizes', { fontSizes: { standard, fixed: standard } });
      await page.reload();
    };
    const smallest = new Map<string, number>();
    for (const standard of [16, 32]) {
      await scale(standard);
      for (const place of places) {
        await go(page, place);
        const size = Math.min(...(await sizes()));
        if (standard === 16) smallest.set(place, size);
        else t.ok(size >= 1.9 * (smallest.get(place) ?? 0), `${place}: ${smallest.get(place)} px, then ${size} px`);
        const wide = await widthOf(page);
        t.ok(wide <= desk.width, `${place} is ${wide} wide, text of ${standard} px`);
      }
    }
    t.strictSame(errors, []);
  },
);

t.end();
