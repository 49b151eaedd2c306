// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
const ascii = /^[\x00-\x7f]*$/;

/**
 * A text without the difference of upper and lower case, for every letter: `Straße` and `STRASSE` become the
 * same, `É` and `é` too however they are composed, and no character depends on its neighbours.
 */
export function fold(text: string): string {
  if (ascii.test(text)) return text.toLowerCase();
  // Lower case before upper, for letters whose upper case is one of its own (ẞ); the final sigma is an ordinary one.
  const folded = text.normalize('NFC').toLowerCase().toUpperCase().toLowerCase();
  return folded.replaceAll('ς', 'σ').normalize('NFC');
}
