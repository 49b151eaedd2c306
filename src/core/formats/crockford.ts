/** Codes that people type: Crockford base32, which has no I, L, O, U, for they are read as others. */
import { randomInt } from 'node:crypto';

export const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Random characters, of five bits each. */
export function randomCharacters(length: number): string {
  return Array.from({ length }, () => alphabet.charAt(randomInt(alphabet.length))).join('');
}

/** A code as it is shown: in groups of four. */
export function inGroups(code: string): string {
  return code.replace(/(.{4})(?=.)/g, '$1-');
}

/** The code that somebody typed: hyphens, blanks and case do not matter. */
export function readTyped(typed: string): string {
  return typed.toUpperCase().replace(/[\s-]/g, '').replace(/[IL]/g, '1').replace(/O/g, '0');
}
