/** Versions as texts that sort by precedence. */

const version = /^v?(\d+(?:\.[\da-z]+)*)(?:-([\da-z-]+(?:\.[\da-z-]+)*))?(?:\+[\da-z.-]*)?$/;

/**
 * A text that sorts among those of other versions as Semantic Versioning orders them, without letter case; null for what is no version.
 * It may have any number of parts: those that are missing are 0. A number is before a word, whatever its length.
 */
export function versionKey(text: string): string | null {
  const [, release, preRelease] = version.exec(text.toLowerCase()) ?? [];
  if (release === undefined) return null;
  const parts = release
    .replace(/(?:\.0+)+$/, '')
    .split('.')
    .map(partKey);
  // Where the release ends, its pre-releases come first; both come before a further part.
  const end = preRelease === undefined ? '01' : `00${preRelease.split('.').map(partKey).join('')}`;
  return parts.join('') + end;
}

/** A number sorts by its digits, of which more are more; a word ends with what comes before all of its characters. */
function partKey(part: string): string {
  if (!/^\d+$/.test(part)) return `2${part} `;
  const digits = part.replace(/^0+/, '');
  return `1${String(digits.length).padStart(4, '0')}${digits}`;
}
