/** What customers read, in the language of the page: English until another one is loaded. */
import { signal } from '@preact/signals';
import { isolating } from './isolated.ts';
import { english } from './languages/en.ts';

const files = {
  de: async () => (await import('./languages/de.ts')).german,
  en: () => english,
  es: async () => (await import('./languages/es.ts')).spanish,
  fr: async () => (await import('./languages/fr.ts')).french,
  it: async () => (await import('./languages/it.ts')).italian,
  nl: async () => (await import('./languages/nl.ts')).dutch,
  pl: async () => (await import('./languages/pl.ts')).polish,
  pt: async () => (await import('./languages/pt.ts')).portuguese,
};
export type Language = keyof typeof files;

const isLanguage = (code: string): code is Language => Object.hasOwn(files, code);

/** The first language of the browser decides; English stands for those that have no file. */
export function browserLanguage(): Language {
  const [code = ''] = navigator.language.toLowerCase().split('-');
  return isLanguage(code) ? code : 'en';
}

/** Everything that looks a text up when it shows it, shows it in the language of the page. */
export const texts = isolating(english);
/** The language that was asked for last and is there. */
export const spoken = signal<Language>('en');
let wanted: Language = 'en';

/** Changes the language of the page. English is there at once; without its file another one is English, too. */
export async function speak(language: Language): Promise<void> {
  wanted = language;
  const given = files[language]();
  const file = given instanceof Promise ? await given.catch(() => english) : given;
  if (wanted !== language) return;
  replace(texts, isolating(file));
  spoken.value = language;
}

/** In place: others hold parts of it. */
function replace(of: object, by: object): void {
  for (const [name, value] of Object.entries(by)) {
    const before: unknown = Reflect.get(of, name);
    if (typeof value === 'object' && typeof before === 'object' && before !== null) replace(before, value);
    else Reflect.set(of, name, value);
  }
}
