/**
 * Tokens that people and back-ends make for their programs: `slp_`, the account's slot, 32 random characters, and six that
 * are the checksum of all before. One that has leaked is found by its beginning, and a mistyped one without the registry.
 */
import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { slotOf } from '../ids.ts';

const prefix = 'slp_';
const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const randomLength = 32;
const checksumLength = 6;
const form = new RegExp(`^${prefix}[0-9a-f]{3}[0-9A-Za-z]{${randomLength + checksumLength}}$`);

/** Whether a text looks like a token, right or wrong. */
export function isAccessToken(text: string): boolean {
  return text.startsWith(prefix);
}

/** A new token of an account, with 190 random bits. */
export function makeAccessToken(accountId: string): string {
  const random = Array.from({ length: randomLength }, () => digits[randomInt(digits.length)]).join('');
  const before = prefix + slotOf(accountId) + random;
  return before + checksumOf(before);
}

/** CRC-32 in base 62. */
function checksumOf(text: string): string {
  let rest = crc32(text);
  let written = '';
  for (let n = 0; n < checksumLength; n += 1) {
    written = digits[rest % digits.length] + written;
    rest = Math.floor(rest / digits.length);
  }
  return written;
}

/** The token cannot be guessed: a plain digest cannot be turned back, and can be looked up. */
export function hashAccessToken(text: string): string {
  return hash('sha256', text, 'base64');
}

/** Whether a text has the form of a token, and its checksum. */
export function isWellFormedToken(text: string): boolean {
  return form.test(text) && checksumOf(text.slice(0, -checksumLength)) === text.slice(-checksumLength);
}
