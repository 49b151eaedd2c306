/** Association codes as such: how one is made, read, checked and hashed. Threads load it. */
import { invalid } from '../../core/errors.ts';
import { alphabet, randomCharacters, readTyped } from '../../core/formats/crockford.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';

const codeLength = 12;

/** The check character of the first eleven: Luhn's method in base 32, which finds every single wrong character. */
export function checkCharacter(characters: string): string {
  let sum = 0;
  for (let place = 0; place < characters.length; place += 1) {
    const value = alphabet.indexOf(characters.charAt(characters.length - 1 - place)) * (place % 2 === 0 ? 2 : 1);
    sum += Math.floor(value / alphabet.length) + (value % alphabet.length);
  }
  return alphabet.charAt((alphabet.length - (sum % alphabet.length)) % alphabet.length);
}

/** A new code, without hyphens. */
export function makeCode(): string {
  const characters = randomCharacters(codeLength - 1);
  return characters + checkCharacter(characters);
}

/** Whether it is a code, without hyphens, all of whose characters go together. */
export const isCode = (code: string) =>
  code.length === codeLength &&
  [...code].every((one) => alphabet.includes(one)) &&
  checkCharacter(code.slice(0, -1)) === code.at(-1);

/** The code that a person typed. @throws PlatformError 400 with 106 when it cannot be one. */
export function readCode(typed: string): string {
  const code = readTyped(typed);
  const characters = code.slice(0, -1);
  if (code.length !== codeLength || [...code].some((one) => !alphabet.includes(one)))
    throw invalid('associationCode', `must be ${codeLength} letters and digits`);
  if (checkCharacter(characters) !== code.at(-1)) throw invalid('associationCode', 'is mistyped');
  return code;
}

/**
 * What a code is stored as: its digest under a key that lies next to the database, so that the database alone can try
 * nothing.
 */
export function hashOfCode(sealing: Sealing, accountId: string, code: string): string {
  return sealing.digest('associationCode', `${accountId}/${code}`);
}
