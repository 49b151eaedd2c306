/** Serial numbers as people, scanners and files give them. */
import { invalid } from '../errors.ts';

/**
 * What nobody sees at the ends: blanks of every kind, a byte order mark, control characters, soft hyphens, characters without
 * width, and marks of the direction of writing, which Windows and chats put around what is copied.
 */
const unseen = /[\s\p{Cc}\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f]/u;
const control = /\p{Cc}/u;

/** The serial number as it is kept: without what nobody sees at its ends, and composed (NFC), so that it has one form. */
export function normalizeSerialNumber(text: string): string {
  // NUL is refused in every text, and so it is here.
  if (text.includes('\0')) return text;
  let [from, to] = [0, text.length];
  while (from < to && unseen.test(text[from] as string)) from += 1;
  while (from < to && unseen.test(text[to - 1] as string)) to -= 1;
  return text.slice(from, to).normalize('NFC');
}

/** The sentence about a normalized serial number that no device can have; undefined for any other. */
export function serialNumberFault(text: string): string | undefined {
  if (text === '') return 'must not be empty';
  return control.test(text) ? 'must not contain control characters' : undefined;
}

/** The serial number as it is kept. @throws PlatformError 400/106 naming `path` for one of blanks, or with control characters. */
export function readSerialNumber(text: string, path = 'serialNumber'): string {
  const normal = normalizeSerialNumber(text);
  const fault = serialNumberFault(normal);
  if (fault !== undefined) throw invalid(path, fault);
  return normal;
}
