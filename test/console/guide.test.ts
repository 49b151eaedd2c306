/** The guide at /guide: its pages, their links, and the way to them from each place. */
import { readdirSync, readFileSync } from 'node:fs';
import type { Browser } from 'playwright-core';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { go, openAs, openPage, signIn } from './browser.ts';
import { fill } from './fill.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

const get = (path: string) => service.http('GET', path, { token: null });
const linksIn = (html: string) => [...html.matchAll(/(?:href|src)="([^"]*)"/g)].map(([, href = '']) => href);
const idsIn = (html: string) => [...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id);

/** The page that an address of the guide leads to; fails the test if there is none, or no such place on it. */
async function follow(t: Test, address: string, from: string): Promise<string> {
  const [path = '', anchor] = address.split('#');
  const { status, text } = await get(path);
  t.equal(status, 200, `${from}: ${address}`);
  if (anchor !== undefined) t.ok(idsIn(text).includes(anchor), `${from}: ${address}`);
  return text;
}

t.test(
  'each page of docs is a page of the guide, and every link of them leads to a page or a place on it',
  async (t) => {
    const names = readdirSync('docs', { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.md'))
      .map((name) => name.slice(0, -3));
    t.ok(names.length > 30);
    const list = await follow(t, '/guide/', '');
    const reached = linksIn(list);
    for (const name of ['', ...names]) {
      const page = await get(`/guide/${name}`);
      t.match(page.headers.get('content-security-policy'), /default-src 'none'; script-src 'self'; style-src 'self'/);
      t.notMatch(page.text, /<script|{{|style=/);
      if (name !== '' && !/^decisions\/\d/.test(name)) t.ok(reached.includes(`/guide/${name}`), `${name} is listed`);
      const ids = idsIn(page.text);
      t.equal(new Set(ids).size, ids.length, `${name} has each place once`);
      for (const link of new Set(linksIn(page.text))) {
        if (/^(https?|data):/.test(link)) continue;
        await follow(t, link.startsWith('#') ? `/guide/${name}${link}` : link, name);
      }
    }
    const { text, headers } = await get('/guide/headings.json');
    t.match(headers.get('content-type'), 'application/json');
    const headings: { path: string; title: string; heading: string }[] = JSON.parse(text);
    t.ok(headings.length > names.length);
    for (const { path } of headings) await follow(t, `/guide/${path}`, 'headings');
    const keys = headings.map(({ title, heading }) => `${title} ${heading}`);
    t.ok(new Set(keys).size < keys.length, 'some headings of a page have the same words');
    t.equal(new Set(headings.map(({ path }) => path)).size, headings.length, 'and each has a place of its own');
    const nowhere = await get('/guide/nowhere');
    t.match([nowhere.status, nowhere.text], [404, /guide\/ lists all/]);
    t.equal((await get('/guide/../package.json')).status, 404);
  },
);

t.test('a page says what its source says: tables, code, and markup as text', async (t) => {
  const { text } = await get('/guide/mqtt');
  t.match(text, '<h1 id="mqtt">MQTT</h1>');
  t.match((await get('/guide/permissions')).text, /&(lt|#60);organization&(gt|#62);/, 'what looks like markup is text');
  const source = readFileSync('docs/mqtt.md', 'utf8');
  t.equal([...text.matchAll(/<table>/g)].length, [...source.matchAll(/^\|(-+\|)+$/gm)].length);
  t.equal([...text.matchAll(/<pre /g)].length, [...source.matchAll(/^ *```/gm)].length / 2);
});

t.test('each place has a link Help to its page, which a browser shows without asking anybody else', async (t) => {
  const places = await fill(t, service);
  const { page } = await openAs(t, browser, service, 'home');
  const helps = new Set<string>();
  for (const place of places) {
    await go(page, place);
    helps.add((await page.getByRole('link', { name: 'Help', exact: true }).getAttribute('href')) ?? place);
  }
  t.ok(helps.size > 20);
  const person = await service.endUser((await service.organization()).id);
  const { page: my } = await openPage(t, browser, service);
  await signIn(my, person.email, person.password, '/console/my');
  const help = await my.getByRole('link', { name: 'Help', exact: true }).getAttribute('href');
  helps.add(help ?? 'My devices');
  for (const help of helps) {
    t.match(help, /^\/guide\/[\w-]+(#[\w-]+)?$/);
    await follow(t, help, 'Help');
  }
  const phone = await openPage(t, browser, service, { viewport: { width: 360, height: 740 } });
  for (const path of ['/guide/', '/guide/api', '/guide/operations#doctor', '/guide/decisions/README']) {
    await phone.page.goto(path);
    t.ok(Number(await phone.page.evaluate('document.documentElement.scrollWidth')) <= 360, path);
  }
  await phone.page.goto('/guide/operations#doctor');
  await phone.page.getByRole('heading', { name: 'Doctor', exact: true }).and(phone.page.locator(':target')).waitFor();
  t.strictSame([phone.errors, phone.foreign], [[], []]);
});

t.end();
