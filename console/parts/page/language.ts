/** The language that a part of the page is in. */
import { useLayoutEffect } from 'preact/hooks';
import { type Language, speak, spoken, texts } from '../../words.ts';

/** Whether the page is in this language; it changes to it. */
export function useLanguage(language: Language): boolean {
  useLayoutEffect(() => {
    speak(language);
  }, [language]);
  const shown = spoken.value;
  useLayoutEffect(() => {
    document.documentElement.lang = texts.language;
  }, [shown]);
  return shown === language;
}
