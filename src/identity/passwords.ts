/** Passwords of people: the policy of spec 4.4 and argon2id off the event loop, a few at a time. */
import { availableParallelism } from 'node:os';
import { argon2id, hash, verify } from 'argon2';
import pLimit from 'p-limit';
import { invalid, PlatformError } from '../errors.js';
import { makeSecret } from './secrets.js';

/** OWASP's floor for argon2id (decisions 4): 19 MiB, two passes. */
const cost = { type: argon2id, memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const;

export class Passwords {
  // More at once would take every thread of the pool, and the broker's own checks wait in the same pool.
  readonly #limit = pLimit(Math.max(1, Math.min(3, availableParallelism() - 1)));
  readonly #nobody = this.hash('the password of nobody');

  /** The stored form of a password. */
  hash(password: string): Promise<string> {
    return this.#limit(() => hash(password.normalize('NFKC'), cost));
  }

  /** Whether the password is the one that was hashed. Without a hash it takes the same time and is false. */
  async verify(stored: string | null | undefined, password: string): Promise<boolean> {
    const against = stored ?? (await this.#nobody);
    // Longer ones cannot have been set; hashing megabytes would only cost time.
    const given = password.slice(0, 1024).normalize('NFKC');
    const matches = await this.#limit(() => verify(against, given));
    return matches && stored !== null && stored !== undefined;
  }
}

/** @throws PlatformError 400 with 106 when a new password breaks the policy (spec 4.4, decisions 4). */
export function checkPassword(path: string, password: string, email: string): void {
  const normal = password.normalize('NFKC');
  const characters = [...normal];
  if (characters.length < 8 || characters.length > 256) throw invalid(path, 'must have 8 to 256 characters');
  if (normal.toLowerCase().includes(email.normalize('NFKC').toLowerCase()))
    throw invalid(path, 'must not contain the e-mail address');
  if (characters.some((character, at) => at >= 3 && characters.slice(at - 3, at).every((one) => one === character)))
    throw invalid(path, 'must not repeat a character more than 3 times in a row');
}

/** A password of 144 random bits, drawn again in the rare case that the policy refuses one. */
export function makePassword(email: string): string {
  for (;;) {
    const password = makeSecret(18);
    try {
      checkPassword('password', password, email);
      return password;
    } catch (error) {
      if (!(error instanceof PlatformError)) throw error;
    }
  }
}
