/** Secrets that the platform makes: 256 random bits, shown once, stored hashed. */
import { hash as digest, randomBytes } from 'node:crypto';
import { argon2id, hash, verify } from 'argon2';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import { slotOf } from '../../core/ids.ts';
import { networkOf } from '../../core/limits/networks.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler, unbounded } from '../../core/scheduler/scheduler.ts';

/** A random secret of 256 bits cannot be guessed, so the hash needs no more than the least cost that argon2 has. */
const cost = { type: argon2id, memoryCost: 8, timeCost: 1, parallelism: 1, raw: true } as const;
const costText = '$argon2id$v=19$m=8,t=1,p=1';

/** Hashes of typed codes in earlier versions, keyed and unkeyed; stored ones are still found. */
const formerKeyedCost = { ...cost, memoryCost: 64 } as const;
const formerCodeCost = { type: argon2id, memoryCost: 19_456, timeCost: 2, parallelism: 1, raw: true } as const;

/** How many proven secrets are remembered, so that a fleet reconnects without hashing again. */
const provenKept = 200_000;

/** The lane of a secret whose account does not matter, as for unknown usernames. */
const nobodysAccount = '';

export class Secrets {
  // Connections and the rows of jobs, which wait here, have limits of their own.
  readonly #queue = new Scheduler({ atOnce: 4, maxWaiting: unbounded });
  readonly #codes = new Scheduler({ atOnce: 1 });
  readonly #key = randomBytes(32).toString('base64');
  readonly #proven = boundedCache<string, string>(provenKept);
  readonly #nobody = this.hash(makeSecret());

  /** Hashes that wait for their turn. */
  get waiting(): number {
    return this.#queue.waiting + this.#codes.waiting;
  }

  /** The stored form of a secret, hashed when it is the lane's turn. */
  hash(secret: string, lane: Lane = { accountId: nobodysAccount, callerId: '' }): Promise<string> {
    return this.#queue.run(lane, 1, () => hashSecret(secret));
  }

  /**
   * As association codes were hashed formerly, the latest first: on top of their digest `keyed`, and by themselves, with the
   * account as salt. These take turns, for they are slow.
   */
  async *hashCodeFormerly(accountId: string, keyed: string, code: string): AsyncGenerator<string> {
    const salt = codeSalt(accountId);
    const lane = { accountId, callerId: '' };
    yield (await this.#codes.run(lane, 1, () => hash(keyed, { ...formerKeyedCost, salt }))).toString('base64');
    yield (await this.#codes.run(lane, 1, () => hash(code, { ...formerCodeCost, salt }))).toString('base64');
  }

  /**
   * Whether the secret is the one whose hash is stored for `owner`; without a hash it takes the same time and is false. Accounts take
   * turns, then the networks of `address`: a flood of wrong secrets waits for itself.
   */
  async verify(
    owner: string,
    stored: string | undefined,
    secret: string,
    { accountId = nobodysAccount, address }: { accountId?: string | undefined; address: string },
  ): Promise<boolean> {
    if (secret.length > 256) return false;
    if (this.isProven(owner, stored, secret)) return true;
    const against = stored ?? (await this.#nobody);
    const matches = await this.#queue.run({ accountId, callerId: networkOf(address) }, 1, () =>
      verify(against, secret),
    );
    if (stored === undefined || !matches) return false;
    this.#proven.set(owner, this.#mark(stored, secret));
    return true;
  }

  /** As verify, of what has been proven before: at once, without a hash. */
  isProven(owner: string, stored: string | undefined, secret: string): boolean {
    const proven = this.#proven.get(owner);
    return (
      proven !== undefined && stored !== undefined && secret.length <= 256 && proven === this.#mark(stored, secret)
    );
  }

  /** Stays in memory, so a hash that begins with the key is as good as an HMAC, and costs a fraction. */
  #mark(stored: string, secret: string): string {
    return digest('sha256', `${this.#key}\0${stored}\0${secret}`, 'base64');
  }
}

/** The stored form of a secret, hashed at once: for a thread in which nobody else waits for a hash. */
export async function hashSecret(secret: string): Promise<string> {
  // A salt of its own would come by way of another thread; the package takes as long to write the text as to hash.
  const salt = randomBytes(16);
  return `${costText}$${unpadded(salt)}$${unpadded(await hash(secret, { ...cost, salt }))}`;
}

/** A stored form that no secret has: it is random itself, so nothing is hashed. */
export function hashOfNothing(): string {
  return `${costText}$${unpadded(randomBytes(16))}$${unpadded(randomBytes(32))}`;
}

/** Base64 as the text of a hash has it. */
function unpadded(bytes: Buffer): string {
  return bytes.toString('base64').replaceAll('=', '');
}

function codeSalt(accountId: string): Buffer {
  return Buffer.from(`code/${accountId}`);
}

/** A new secret: 32 random bytes as base64url. It never begins with a dash, which command lines take for an option. */
export function makeSecret(bytes = 32): string {
  const secret = randomBytes(bytes).toString('base64url');
  return secret.startsWith('-') ? makeSecret(bytes) : secret;
}

/** A new secret that stands alone in a request: it begins with the three digits of its account's slot. */
export function makeToken(accountId: string): string {
  return slotOf(accountId) + makeSecret();
}
