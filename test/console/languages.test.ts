/** The texts of customers in every language: none is missing, none is left in English, and the page says which one it is in. */
import type { Browser } from 'playwright-core';
import { english, my, type Words } from '../../console/languages/en.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { openPage } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

const languages: Record<string, () => Promise<Words>> = {
  de: async () => (await import('../../console/languages/de.ts')).german,
  es: async () => (await import('../../console/languages/es.ts')).spanish,
  fr: async () => (await import('../../console/languages/fr.ts')).french,
  it: async () => (await import('../../console/languages/it.ts')).italian,
  nl: async () => (await import('../../console/languages/nl.ts')).dutch,
  pl: async () => (await import('../../console/languages/pl.ts')).polish,
  pt: async () => (await import('../../console/languages/pt.ts')).portuguese,
};
/** What languages have in common with English. */
const shared = /^(Menu|Text|Code|Link|Details|Name|SMS|Online|Offline|Password|No|Camera|Support)$/;
const given = ['‹A›', '‹B›'];

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await sharedService(t);
  browser = await openBrowser();
});

/** Every text by its path; those with places for names are given some. */
function textsOf(of: object, path = ''): [string, string][] {
  return Object.entries(of).flatMap(([name, value]): [string, string][] => {
    const at = `${path}${name}`;
    if (typeof value === 'object') return textsOf(value, `${at}.`);
    if (typeof value !== 'function') return [[at, String(value)]];
    return [[at, String(isOfCount(at) ? value(5) : value(...given))]];
  });
}
/** Whether it has words besides what it is given. */
const isOurs = (text: string) => /\p{L}/u.test(given.reduce((rest, name) => rest.replaceAll(name, ''), text));
const isOfCount = (path: string) => ['ending', 'moreFound'].includes(path);

t.test(
  'each language has every text that English has, in its own words, with every name that it is given',
  async (t) => {
    const ours = new Map(textsOf({ ...english, my }));
    for (const [code, load] of Object.entries(languages)) {
      const file = await load();
      const theirs = new Map(textsOf(file));
      t.equal(file.language, code);
      t.strictSame([...theirs.keys()].sort(), [...ours.keys()].sort(), code);
      for (const [path, text] of theirs) {
        const inEnglish = ours.get(path) ?? '';
        t.not(text.trim(), '', `${code}: ${path}`);
        if (!shared.test(text) && isOurs(text)) t.not(text, inEnglish, `${code}: ${path}`);
        for (const name of given)
          t.equal(text.includes(name), inEnglish.includes(name), `${code}: ${path} has ${name}`);
        t.notMatch(text, /undefined|\[object/, `${code}: ${path}`);
      }
    }
  },
);

t.test(
  'the page to sign in and the page of labels are in the language of the browser, and in English without a file',
  async (t) => {
    const spoken = Object.entries(languages).map(async ([lang, load]) => {
      const { signIn } = await load();
      return [`${lang}-XX`, lang, signIn.title] as const;
    });
    for (const [locale, lang, title] of [...(await Promise.all(spoken)), ['da-DK', 'en', 'Sign in'] as const]) {
      const { page, errors } = await openPage(t, browser, service, { locale });
      await page.goto('/console/');
      await page.getByRole('heading', { name: title, level: 1 }).waitFor();
      t.equal(await page.locator('html').getAttribute('lang'), lang, locale);
      t.strictSame(errors, []);
    }
    const { page, errors } = await openPage(t, browser, service, { locale: 'fr-FR' });
    await page.goto(`/claim?code=0000-0000-0000&account=${service.accountId}`);
    await page.getByRole('heading', { name: 'Ajouter un appareil', level: 1 }).waitFor();
    t.equal(await page.locator('html').getAttribute('lang'), 'fr');
    t.strictSame(errors, []);
  },
);

t.test('an admin signs in in their own language; the console is in English, and so is the page', async (t) => {
  const { page, errors } = await openPage(t, browser, service, { locale: 'nl-NL' });
  await page.goto(`/console/?account=${service.accountId}`);
  await page.getByLabel('E-mailadres').fill('nobody@example.com');
  await page.getByLabel('Wachtwoord').fill('not the one');
  await page.getByRole('button', { name: 'Inloggen', exact: true }).click();
  await page.getByRole('alert').getByText('Het e-mailadres of het wachtwoord klopt niet.').waitFor();
  await page.getByLabel('E-mailadres').fill(adminEmail);
  await page.getByLabel('Wachtwoord').fill(adminPassword);
  await page.getByRole('button', { name: 'Inloggen', exact: true }).click();
  await page.getByRole('button', { name: 'Sign out', exact: true }).waitFor();
  t.equal(await page.locator('html').getAttribute('lang'), 'en');
  t.strictSame(errors, []);
});

t.test('a language whose file cannot be had is English', async (t) => {
  const { page } = await openPage(t, browser, service, { locale: 'it-IT' });
  await page.route(/\/console\/files\/it-/, (route) => route.abort());
  await page.goto('/console/');
  await page.getByRole('heading', { name: 'Sign in', level: 1 }).waitFor();
  t.equal(await page.locator('html').getAttribute('lang'), 'en');
});

t.end();
