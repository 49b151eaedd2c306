/** Passwords of people: the password policy, and argon2id off the event loop with few hashes at a time. */
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { argon2id, hash, verify } from 'argon2';
import { invalid, PlatformError } from '../../core/errors.ts';
import { lastRank, rankOf } from '../../core/limits/lanes.ts';
import { demandAwaited } from '../../core/log.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler } from '../../core/scheduler/scheduler.ts';
import { commonPasswords } from './common-passwords.ts';
import { makeSecret } from './secrets.ts';

/** What one hash takes: KiB of memory, and passes over it. */
export interface HashCost {
  memoryCost: number;
  timeCost: number;
}

/** OWASP's floor for argon2id: 19 MiB, two passes. */
const productCost: HashCost = { memoryCost: 19_456, timeCost: 2 };
const minCharacters = 8;
const maxCharacters = 256;
/** UTF-16 units that a body may have for a password, so that it can be refused as too long without being read through. */
export const maxPasswordLength = 4096;
const common = new Set(commonPasswords.trim().split(/\s+/));

const base64 = (bytes: number) => randomBytes(bytes).toString('base64').replaceAll('=', '');

/** More would take every thread of the pool, and the broker's own checks wait in the same pool. */
const hashesAtOnce = Math.max(1, Math.min(3, availableParallelism() - 1));

/** The lane of the service itself and of its command line. */
const ownLane: Lane = { accountId: '', callerId: '' };

interface Chosen {
  password: string;
  passwordHash: string;
}

export class Passwords {
  readonly #queue = new Scheduler({
    atOnce: hashesAtOnce,
    perAccount: Math.max(1, hashesAtOnce - 1),
    rankOf,
    lastRank,
  });
  readonly #cost: HashCost;
  /** Verified in place of a hash that does not exist, so that it takes the same time. No password has it. */
  readonly #nobody: string;

  /** `cost` is another one in tests, which hash thousands of passwords. */
  constructor(cost: HashCost = productCost) {
    this.#cost = cost;
    this.#nobody = `$argon2id$v=19$m=${cost.memoryCost},t=${cost.timeCost},p=1$${base64(16)}$${base64(32)}`;
  }

  /** Hashes that wait for their turn. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /**
   * The stored form of a new password; there is no other way to one, so that nothing gets round the policy. @throws PlatformError
   * 400/106 naming `path` when the password breaks it, 429 when the lane is full, 503.
   */
  async hashNew(path: string, password: string, email: string, lane: Lane = ownLane): Promise<string> {
    demandPassword(path, password, email);
    return this.#hash(password, lane);
  }

  /**
   * The given password, or one of 144 random bits, and its stored form.
   * @throws PlatformError 400 with 106 naming `path` when the given one breaks the policy.
   */
  async choose(path: string, given: string | undefined, email: string): Promise<Chosen> {
    for (;;) {
      const password = given ?? makeSecret(18);
      try {
        return { password, passwordHash: await this.hashNew(path, password, email) };
      } catch (error) {
        // In the rare case that the policy refuses what was drawn, it is drawn again.
        if (given !== undefined || !(error instanceof PlatformError)) throw error;
      }
    }
  }

  /**
   * Whether the password is the one that was hashed. Without a hash it takes the same time and is false. Lanes take
   * turns, strangers after all others. @throws PlatformError 429 when the lane is full; 503 when its client has gone.
   */
  async verify(stored: string | null | undefined, password: string, lane: Lane): Promise<boolean> {
    const against = stored ?? this.#nobody;
    // Longer ones cannot have been set; hashing megabytes would only cost time.
    const given = password.slice(0, 16 * maxCharacters).normalize('NFKC');
    const matches = await this.#inTurn(lane, () => verify(against, given));
    return matches && stored !== null && stored !== undefined;
  }

  #hash(password: string, lane: Lane): Promise<string> {
    return this.#inTurn(lane, () =>
      hash(password.normalize('NFKC'), { type: argon2id, ...this.#cost, parallelism: 1 }),
    );
  }

  #inTurn<R>(lane: Lane, work: () => Promise<R>): Promise<R> {
    return this.#queue.run(lane, 1, async () => {
      demandAwaited();
      return work();
    });
  }
}

/** @throws PlatformError 400 with 106 naming `path` when the password of the person with this email breaks the policy. */
export function demandPassword(path: string, password: string, email: string): void {
  if (password.length > maxPasswordLength) throw invalid(path, `must have at most ${maxCharacters} characters`);
  const normal = password.normalize('NFKC');
  const characters = [...normal];
  if (characters.length < minCharacters || characters.length > maxCharacters)
    throw invalid(path, `must have ${minCharacters} to ${maxCharacters} characters`);
  if (normal.toLowerCase().includes(email.normalize('NFKC').toLowerCase()))
    throw invalid(path, 'must not contain the email address');
  if (characters.some((character, at) => at >= 3 && characters.slice(at - 3, at).every((one) => one === character)))
    throw invalid(path, 'must not repeat a character more than 3 times in a row');
  if (common.has(normal.toLowerCase())) throw invalid(path, 'must not be one of the most common passwords');
}
