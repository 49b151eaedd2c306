/** What somebody feels of the console in a real browser: the first view, a keystroke, scrolling, a page that stays open. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { launchBrowser, settled } from '../test/console/browser.ts';
import { logIn } from './api.ts';
import { type Equipped, equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import { openLink, publishBytes } from './link.ts';
import type { ServingService } from './processes.ts';
import { seedAdmin } from './seed.ts';
import type { Bench } from './sizes.ts';

/** Characters that are typed of each serial number. With more, one device would be left. */
const typedLength = 3;
const rowsOfPage = 1000;
/** Pixels of one turn of the wheel. */
const turn = 400;
/** Milliseconds between two messages of the device whose page stays open. */
const publishEvery = 50;

/** Runs in the page: it hears keys, long tasks and frames. */
const inPage = `
globalThis.bench = { tasks: [], frames: [], usable: undefined };
new PerformanceObserver((list) => bench.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask' });
const drawn = bench.drawn = (then) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => then(performance.now());
  port2.postMessage(0);
});
const once = bench.once = (isThere) => new Promise((resolve) => {
  const observer = new MutationObserver(() => {
    if (!isThere()) return;
    observer.disconnect();
    drawn(resolve);
  });
  observer.observe(document, { subtree: true, childList: true, characterData: true });
});
bench.usable = once(() => document.querySelector('input[type=email], tbody a'));
addEventListener('keydown', ({ timeStamp }) => { bench.pressed = timeStamp; }, true);
bench.expect = (text) => {
  const pages = () => document.querySelector('.pager')?.textContent;
  const before = pages();
  const rows = () => [...document.querySelectorAll('tbody a')];
  bench.answer = once(() => pages() !== before && rows().length > 0 && rows().every((row) => row.textContent.toLowerCase().includes(text)))
    .then((now) => now - bench.pressed);
};
let last;
const frame = (now) => { if (last !== undefined) bench.frames.push(now - last); last = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
`;

export async function measureConsole({ size, directory, serve, only }: Bench): Promise<Row[]> {
  const registry = await directory(size.registry);
  const [device] = await equip(registry, 1);
  if (!device) throw new Error('the registry has no device');
  const service = await serve(registry);
  const browser = await launchBrowser();
  try {
    const signedIn = await signIn(browser, service, device.accountId);
    const parts: Record<string, () => Promise<Row[]>> = {
      views: () => measureFirstViews(browser, service, signedIn, size.rounds),
      keys: async () =>
        (await measureKeys(signedIn, service, device, size.asks)).map((row) => ({ ...row, devices: size.registry })),
      scrolling: () => measureScrolling(signedIn),
      live: () => measureLive(signedIn, device.accountId, size.asks),
      memory: () => measureOpenPage(signedIn, service, device, size.asks, size.rest),
    };
    const rows: Row[] = [];
    for (const [name, measure] of Object.entries(parts))
      if (only.length === 0 || only.includes(name)) rows.push(...(await measure()));
    return rows;
  } finally {
    await browser.close();
    await service.stop();
  }
}

/** A window with the login of the admin, so that others can start with it. */
async function signIn(browser: Browser, { url }: ServingService, accountId: string): Promise<BrowserContext> {
  const context = await browser.newContext({ baseURL: new URL(url).origin, viewport: { width: 1280, height: 860 } });
  await context.addInitScript(inPage);
  const page = await context.newPage();
  await page.goto(`/console/?account=${accountId}`);
  await page.getByLabel('Email address').fill(seedAdmin.email);
  await page.getByLabel('Password', { exact: true }).fill(seedAdmin.password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
  await page.close();
  return context;
}

/** With an empty cache: until there is something to use, and what was transferred until nothing more came. */
async function measureFirstViews(browser: Browser, { url }: ServingService, signedIn: BrowserContext, rounds: number) {
  const storageState = await signedIn.storageState();
  const look = async (path: string, state: object) => {
    const times: number[] = [];
    const sizes: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const context = await browser.newContext({ baseURL: new URL(url).origin, ...state });
      await context.addInitScript(inPage);
      const page = await context.newPage();
      const network = await context.newCDPSession(page);
      let bytes = 0;
      network.on('Network.loadingFinished', ({ encodedDataLength }) => {
        bytes += encodedDataLength;
      });
      await network.send('Network.enable');
      await page.goto(path);
      times.push(Number(await page.evaluate('bench.usable')));
      await page.waitForLoadState('networkidle');
      sizes.push(bytes / 1024);
      await context.close();
    }
    return [median(times), median(sizes)] as const;
  };
  const [signInTime, signInSize] = await look('/console/', {});
  const [devicesTime, devicesSize] = await look('/console/devices', { storageState });
  const [time, transferred] = [
    { unit: 'ms', figure: { below: 1000 } },
    { unit: 'KB', figure: { below: 130 } },
  ];
  return [
    { what: 'Console, first view: until one can sign in', ours: signInTime, ...time },
    { what: 'Console, first view: transferred', ours: signInSize, ...transferred },
    { what: 'Console, devices with an empty cache: until the table is there', ours: devicesTime, ...time },
    {
      what: 'Console, devices with an empty cache: transferred, with the answers of the API',
      ours: devicesSize,
      unit: 'KB',
    },
  ];
}

async function openDevices(context: BrowserContext, query = ''): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`/console/devices${query}`);
  await settled(page);
  await page.locator('tbody a').first().waitFor();
  return page;
}

const emptyPage = 'empty page';

/** A page without the console: a search that asks for an answer of 40 bytes and shows it, and as many rows. */
async function openEmpty(context: BrowserContext): Promise<Page> {
  const page = await context.newPage();
  await page.goto('/health/live');
  await page.evaluate(`
    const rows = Array.from({ length: ${rowsOfPage} }, (_, at) => '<p>row ' + at + '</p>').join('');
    document.body.innerHTML = '<input aria-label="Search"><output></output>' + rows;
    document.querySelector('input').addEventListener('input', async () => {
      await (await fetch('/health/live')).text();
      document.querySelector('output').append('.');
    });
    bench.expect = () => {
      const length = () => document.querySelector('output').textContent.length;
      const before = length();
      bench.answer = bench.once(() => length() > before).then((now) => now - bench.pressed);
    };
  `);
  return page;
}

/** What the machine and the browser take by themselves: a busy machine makes it longer, so the ratio says more than the time. */
async function measureEmptyKeys(context: BrowserContext, count: number): Promise<number[]> {
  const page = await openEmpty(context);
  const times: number[] = [];
  await page.getByLabel('Search').focus();
  for (let key = 0; key < count; key += 1) {
    await page.evaluate('bench.expect()');
    await page.keyboard.press('a');
    times.push(Number(await page.evaluate('bench.answer')));
  }
  await page.close();
  console.log(`keystroke on an empty page: ${described(times)}`);
  return times;
}

/** From the key until the table that answers it is drawn; every text narrows what the one before has found. */
async function measureKeys(context: BrowserContext, service: ServingService, { accountId }: Equipped, asks: number) {
  const { call } = await logIn(service, accountId);
  const query = `accountId=${accountId}&pageSize=${asks}&sortBy=created`;
  const { devices } = await call<{ devices: { results: { serialNumber: string }[] } }>('GET', `/devices?${query}`);
  const page = await openDevices(context);
  const times: number[] = [];
  // Every serial number begins with SN: these letters would narrow nothing.
  const texts = devices.results
    .map(({ serialNumber }) => serialNumber.slice(2, 2 + typedLength).toLowerCase())
    .filter((text) => !/[sn]/.test(text))
    .slice(0, Math.ceil(asks / typedLength));
  for (const text of texts) {
    await page.getByLabel('Search').fill('');
    await page.waitForURL((url) => !url.searchParams.has('q'));
    await settled(page);
    await page.getByLabel('Search').focus();
    for (let length = 1; length <= typedLength; length += 1) {
      await page.evaluate(`bench.expect(${JSON.stringify(text.slice(0, length))})`);
      await page.keyboard.press(text.charAt(length - 1));
      times.push(Number(await page.evaluate('bench.answer')));
    }
  }
  await page.close();
  console.log(`keystroke until the table answers: ${described(times)}`);
  const empty = await measureEmptyKeys(context, times.length);
  return [
    {
      what: 'Console: from a key in the search to the table that answers it, p95',
      ours: at(times, 0.95),
      unit: 'ms',
      peer: { name: emptyPage, value: at(empty, 0.95) },
      figure: { below: 150 },
    },
  ];
}

/** A page of 1,000 rows: with the wheel to its end, then by keys to both ends. */
async function measureScrolling(context: BrowserContext): Promise<Row[]> {
  const page = await openDevices(context, `?size=${rowsOfPage}`);
  const ours = await scrollThrough(page, 'frames while scrolling');
  const empty = await scrollThrough(await openEmpty(context), 'frames while an empty page scrolls');
  return [
    {
      what: `Console: longest task while a page of ${rowsOfPage} rows scrolls`,
      ours,
      unit: 'ms',
      // A task of less is not reported.
      peer: { name: emptyPage, value: Math.max(50, empty) },
      figure: { below: 50 },
    },
  ];
}

/** A page of 1,000 rows that is looked at while devices come. */
async function measureLive(context: BrowserContext, accountId: string, asks: number): Promise<Row[]> {
  const page = await openDevices(context, `?size=${rowsOfPage}`);
  await page.evaluate('bench.tasks.length = 0');
  const csrf = String(await page.evaluate(`localStorage.getItem('slipway-csrf')`));
  for (let n = 0; n < asks / 10; n += 1) {
    const serialNumber = `0-LIVE-${n}`;
    const headers = { 'platform-csrf-token': csrf };
    const before = (await page.locator('.pager').textContent()) ?? '';
    const answer = await page.request.post('/api/v1/devices', { headers, data: { accountId, serialNumber } });
    if (!answer.ok()) throw new Error(await answer.text());
    // The row itself is at the end of a long page, where nothing is drawn.
    await page.locator('.pager').filter({ hasNotText: before }).waitFor();
  }
  const tasks = (await page.evaluate('bench.tasks')) as number[];
  await page.close();
  console.log(`long tasks while ${rowsOfPage} rows are live: ${tasks.map(Math.round).join(', ') || 'none'} ms`);
  return [
    {
      what: `Console: longest task while a page of ${rowsOfPage} rows is live and devices come`,
      ours: Math.max(0, ...tasks),
      unit: 'ms',
      figure: { below: 50 },
    },
  ];
}

/** The longest task, in milliseconds; 0 if none took more than 50. */
async function scrollThrough(page: Page, what: string): Promise<number> {
  await page.mouse.move(600, 400);
  await page.evaluate('bench.tasks.length = bench.frames.length = 0');
  const height = Number(await page.evaluate('document.documentElement.scrollHeight'));
  for (let top = 0; top < height; top += turn) await page.mouse.wheel(0, turn);
  for (const key of ['Home', 'End', 'Home']) {
    await page.keyboard.press(key);
    await page.evaluate('new Promise((resolve) => bench.drawn(resolve))');
  }
  const [tasks, frames] = (await page.evaluate('[bench.tasks, bench.frames]')) as [number[], number[]];
  await page.close();
  console.log(`${what}: ${described(frames)}; long tasks: ${tasks.map(Math.round).join(', ') || 'none'} ms`);
  return Math.max(0, ...tasks);
}

/** The page of a device that publishes all the time: what the tab holds after garbage collection, at its begin and end. */
async function measureOpenPage(
  context: BrowserContext,
  { mqttPort }: ServingService,
  device: Equipped,
  samples: number,
  every: number,
): Promise<Row[]> {
  const page = await context.newPage();
  await page.goto(`/console/devices/${device.id}/live`);
  await page.getByText('Listening').waitFor();
  const link = await openLink({ port: mqttPort }, { username: device.id, password: device.secret, clientId: 'open' });
  let sent = 0;
  const timer = setInterval(() => {
    sent += 1;
    link.send(publishBytes(device.topic('chat'), `message ${sent} ${'.'.repeat(200)}`));
  }, publishEvery);
  try {
    const session = await context.newCDPSession(page);
    const held: number[] = [];
    for (let sample = 0; sample < samples; sample += 1) {
      await sleep(every);
      await session.send('HeapProfiler.collectGarbage');
      const { usedSize } = await session.send('Runtime.getHeapUsage');
      held.push(usedSize / 2 ** 20);
    }
    const { nodes } = await session.send('Memory.getDOMCounters');
    const third = Math.max(1, Math.floor(samples / 3));
    const [first, last] = [median(held.slice(0, third)), median(held.slice(-third))];
    console.log(`heap: ${held.map((one) => one.toFixed(1)).join(' ')} MB; ${nodes} nodes after ${sent} messages`);
    const minutes = Math.round((samples * every) / 6000) / 10;
    return [
      { what: `Console: memory of a page that stays open for ${minutes} minutes, last third`, ours: last, unit: 'MB' },
      { what: 'Console: growth since the first third', ours: last - first, unit: 'MB', figure: { below: 1 } },
    ];
  } finally {
    clearInterval(timer);
    link.socket.destroy();
    await page.close();
  }
}
