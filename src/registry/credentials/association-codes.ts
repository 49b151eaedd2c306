/** Association codes as such: how one is made, checked and stored. */
import { alphabet, randomCharacters } from '../../formats/crockford.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import type { Secrets } from '../../identity/secrets/secrets.ts';

export const codeLength = 12;

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

/**
 * What a code is stored as: its digest under a key that lies next to the database, so that the database alone can try
 * nothing.
 */
export function hashOfCode(sealing: Sealing, accountId: string, code: string): string {
  return sealing.digest('associationCode', `${accountId}/${code}`);
}

/** Stored forms of a code, the latest first. */
export async function* hashesOfCode(
  { secrets, sealing }: { secrets: Secrets; sealing: Sealing },
  accountId: string,
  code: string,
): AsyncGenerator<string> {
  const keyed = hashOfCode(sealing, accountId, code);
  yield keyed;
  yield* secrets.hashCodeFormerly(accountId, keyed, code);
}
