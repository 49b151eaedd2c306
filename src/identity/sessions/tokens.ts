/** JSON Web Tokens: RS256, keys in the data directory. */
import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  importJWK,
  type JWK,
  type JWTPayload,
  jwtVerify,
  SignJWT,
} from 'jose';
import { replaceFile } from '../../../db/files/copies.ts';
import { DamagedFile } from '../../../db/files/damaged.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { Clock } from '../../core/clock.ts';

const issuer = 'slipway';
const algorithm = 'RS256';
/** A token can be renewed as long as its session lasts, at most 100 days: so long its key must verify it. */
const keyOverlap = 100 * 24 * 60 * 60_000;
/** Verified tokens that are remembered, so that a caller pays for one signature check, not for one a request. */
const verifiedKept = 20_000;

/** The claims of a token. `id` is the session. */
export interface Claims {
  id: string;
  userId: string;
  accountId: string;
  roles: string[];
  /** Seconds since 1970, as the standard has it. */
  iat: number;
  exp: number;
}

interface SigningKey {
  kid: string;
  privateKey: CryptoKey;
  publicKey: CryptoKey;
  publicJwk: JWK;
}

export class Tokens {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #keys = new Map<string, SigningKey>();
  #signing: SigningKey;
  readonly #verified = boundedCache<string, Claims>(verifiedKept);

  private constructor(directory: string, clock: Clock, keys: SigningKey[]) {
    this.#directory = directory;
    this.#clock = clock;
    this.#signing = this.#takeKeys(keys);
  }

  /** Reads the keys in `directory`; makes the first one. */
  static async open(directory: string, clock: Clock): Promise<Tokens> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    if (keyFiles(directory).length === 0) await makeKey(directory, clock);
    return new Tokens(directory, clock, await readKeys(directory));
  }

  /** Reads the keys again, after another process has changed them; tokens of a key that is gone are worth nothing. */
  async reload(): Promise<void> {
    this.#signing = this.#takeKeys(await readKeys(this.#directory));
    this.#verified.clear();
  }

  #takeKeys(keys: SigningKey[]): SigningKey {
    const newest = keys.at(-1);
    if (!newest) throw new Error('There is no signing key.');
    this.#keys.clear();
    for (const key of keys) this.#keys.set(key.kid, key);
    return newest;
  }

  /** A token for a session, valid for `lifetime` milliseconds from now. */
  sign(claims: Pick<Claims, 'id' | 'userId' | 'accountId' | 'roles'>, lifetime: number): Promise<string> {
    const now = this.#clock.now();
    const expires = now + lifetime;
    return new SignJWT({ ...claims, expires, cert: this.#signing.kid })
      .setProtectedHeader({ alg: algorithm, typ: 'JWT', kid: this.#signing.kid })
      .setIssuer(issuer)
      .setSubject(claims.userId)
      .setIssuedAt(Math.floor(now / 1000))
      .setExpirationTime(Math.floor(expires / 1000))
      .setJti(randomUUID())
      .sign(this.#signing.privateKey);
  }

  /**
   * Returns the claims of a token that this service signed, even if it has expired: the session decides whether it is
   * still valid. Returns undefined for any other token. A token that was verified before needs no promise.
   */
  verify(jwt: string): Claims | undefined | Promise<Claims | undefined> {
    return this.#verified.get(jwt) ?? this.#verifyFirst(jwt);
  }

  /** The account of a token that was verified before; undefined for any other text. */
  knownAccount(jwt: string): string | undefined {
    return this.#verified.get(jwt)?.accountId;
  }

  async #verifyFirst(jwt: string): Promise<Claims | undefined> {
    if (jwt.length > 4096) return undefined;
    try {
      const { payload } = await jwtVerify(jwt, ({ kid }) => this.#publicKey(kid), {
        algorithms: [algorithm],
        issuer,
        typ: 'JWT',
        clockTolerance: Number.MAX_SAFE_INTEGER,
      });
      const claims = readClaims(payload);
      if (claims) this.#verified.set(jwt, claims);
      return claims;
    } catch {
      return undefined;
    }
  }

  /** The public keys (RFC 7517). */
  jwks(): { keys: JWK[] } {
    return { keys: [...this.#keys.values()].map((key) => key.publicJwk) };
  }

  #publicKey(kid: string | undefined): CryptoKey {
    const key = kid === undefined ? undefined : this.#keys.get(kid);
    if (!key) throw new Error('unknown key');
    return key.publicKey;
  }
}

function readClaims({ id, userId, accountId, roles, iat, exp }: JWTPayload): Claims | undefined {
  if (typeof id !== 'string' || typeof userId !== 'string' || typeof accountId !== 'string') return undefined;
  if (!Array.isArray(roles) || iat === undefined || exp === undefined) return undefined;
  return { id, userId, accountId, roles: roles.map(String), iat, exp };
}

/**
 * Makes a new signing key in `directory` and removes those whose last token is over by `clock`: 100 days after the next key
 * was made; `endOld` ends the former keys at once, and with them every token. The id of the new key.
 */
export async function rotateKeys(directory: string, clock: Clock, endOld = false): Promise<string> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const kid = await makeKey(directory, clock);
  const files = keyFiles(directory);
  for (const [place, file] of files.entries()) {
    const next = files[place + 1];
    if (next === undefined) continue;
    if (endOld || madeAt(next) + keyOverlap <= clock.now()) rmSync(join(directory, file));
  }
  return kid;
}

/** When the key of a file was made, from its name; milliseconds since 1970. */
function madeAt(file: string): number {
  const [, day, hour, minute, second, milliseconds] =
    /^(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3})Z-/.exec(file) ?? [];
  return Date.parse(`${day}T${hour}:${minute}:${second}.${milliseconds}Z`);
}

function readKeys(directory: string): Promise<SigningKey[]> {
  return Promise.all(keyFiles(directory).map((file) => readKey(join(directory, file))));
}

/** Key files, oldest first: the name begins with the time of making. */
function keyFiles(directory: string): string[] {
  return readdirSync(directory)
    .filter((file) => file.endsWith('.json'))
    .sort();
}

async function makeKey(directory: string, clock: Clock): Promise<string> {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  const kid = randomUUID();
  // The newest key signs, whatever the clock was when the one before it was made.
  const newest = keyFiles(directory).at(-1);
  const time = Math.max(clock.now(), newest === undefined ? 0 : madeAt(newest) + 1);
  const made = new Date(time).toISOString().replace(/[:.]/g, '-');
  const target = join(directory, `${made}-${kid}.json`);
  const content = JSON.stringify({ ...(await exportJWK(privateKey)), kid, alg: algorithm, use: 'sig' });
  replaceFile(target, content);
  return kid;
}

/** @throws DamagedFile */
async function readKey(path: string): Promise<SigningKey> {
  const text = readFileSync(path, 'utf8');
  try {
    const jwk = JSON.parse(text) as JWK & { kid: string };
    const { kty, n, e, kid, alg, use } = jwk;
    const publicJwk = { kty, n, e, kid, alg, use } as JWK;
    const privateKey = (await importJWK(jwk, algorithm)) as CryptoKey;
    const publicKey = (await importJWK(publicJwk, algorithm)) as CryptoKey;
    if (kid) return { kid, privateKey, publicKey, publicJwk };
  } catch {}
  throw new DamagedFile(`${path} is not a signing key.`);
}
