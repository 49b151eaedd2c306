/**
 * Second factors of a person: what is set up, and the codes that prove it. A code is taken in the
 * transaction of what it permits, so that it works once however often it comes at once.
 */

import { randomInt } from 'node:crypto';
import { Secret, TOTP } from 'otpauth';
import type { Db, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import type { Allowance } from '../../core/errors.ts';
import { inGroups, randomCharacters, readTyped } from '../../core/formats/crockford.ts';
import type { Attempts } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';
import type { Sms } from '../../operations/emails/mail.ts';
import type { Sealing } from '../secrets/sealing.ts';

export const mfaMethods = ['totp', 'sms'] as const;
export type MfaMethod = (typeof mfaMethods)[number];

const minute = 60_000;
/** A clock may be one step of 30 seconds away from ours. */
const stepsAway = 1;
/** How long a texted code is good, in milliseconds. */
const textLifetime = 10 * minute;
export const recoveryCodes = 10;
/** 80 random bits, so that a plain keyed hash is enough. */
const recoveryLength = 16;

/** The methods that an identity has confirmed, in the order of `mfaMethods`. */
export async function confirmedMethods(db: Db, userId: string): Promise<MfaMethod[]> {
  const rows = await db
    .selectFrom('mfaMethods')
    .select('method')
    .where('userId', '=', userId)
    .where('confirmed', 'is not', null)
    .execute();
  return mfaMethods.filter((one) => rows.some(({ method }) => method === one));
}

/** A method of an identity, confirmed or not yet. */
export function findMethod(db: Db, userId: string, method: MfaMethod): Promise<Row<'mfaMethods'> | undefined> {
  return db
    .selectFrom('mfaMethods')
    .selectAll()
    .where('userId', '=', userId)
    .where('method', '=', method)
    .executeTakeFirst();
}

/** The label of a factor in the authenticator app. */
export async function purposeOf(db: Db, userId: string): Promise<{ accountName: string; email: string }> {
  return db
    .selectFrom('identities')
    .innerJoin('accounts', 'accounts.id', 'identities.accountId')
    .select(['accounts.name as accountName', 'identities.email'])
    .where('identities.id', '=', userId)
    .executeTakeFirstOrThrow();
}

/** The text of the QR code for an authenticator app. The account's name is cut so that it fits. */
export function newTotp(accountName: string, email: string): TOTP {
  let issuer = '';
  for (const character of [...accountName].slice(0, 30))
    if (Buffer.byteLength(issuer + character) <= 80) issuer += character;
  return new TOTP({ issuer, label: email, secret: new Secret({ size: 20 }) });
}

/** Takes the code of an authenticator app; false when it is wrong, or one of its time or a later one has been taken. */
export async function takeTotp(
  { clock, sealing }: { clock: Clock; sealing: Sealing },
  tx: Tx,
  { userId, sealedSecret }: Row<'mfaMethods'>,
  typed: string,
): Promise<boolean> {
  const token = typed.replace(/\s/g, '');
  if (sealedSecret === null || !/^\d{6}$/.test(token)) return false;
  const totp = new TOTP({ secret: Secret.fromBase32(sealing.open(userId, sealedSecret)) });
  const timestamp = clock.now();
  const away = totp.validate({ token, timestamp, window: stepsAway });
  if (away === null) return false;
  const step = totp.counter({ timestamp }) + away;
  const { numUpdatedRows } = await tx
    .updateTable('mfaMethods')
    .set({ lastStep: step })
    .where('userId', '=', userId)
    .where('method', '=', 'totp')
    .where((eb) => eb.or([eb('lastStep', 'is', null), eb('lastStep', '<', step)]))
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Replaces the recovery codes of an identity; the answer is the only place where the new ones stand. */
export async function makeRecoveryCodes({ sealing }: { sealing: Sealing }, tx: Tx, userId: string): Promise<string[]> {
  const codes = Array.from({ length: recoveryCodes }, () => randomCharacters(recoveryLength));
  await tx.deleteFrom('recoveryCodes').where('userId', '=', userId).execute();
  await tx
    .insertInto('recoveryCodes')
    .values(codes.map((code) => ({ userId, codeHash: sealing.digest(userId, code) })))
    .execute();
  return codes.map(inGroups);
}

/** Takes a recovery code; false when it is wrong or has been taken. */
export async function takeRecoveryCode(
  { sealing }: { sealing: Sealing },
  tx: Tx,
  userId: string,
  typed: string,
): Promise<boolean> {
  const { numDeletedRows } = await tx
    .deleteFrom('recoveryCodes')
    .where('userId', '=', userId)
    .where('codeHash', '=', sealing.digest(userId, readTyped(typed)))
    .executeTakeFirst();
  return numDeletedRows === 1n;
}

/** The columns that hold a texted code. */
interface StoredCode {
  codeHash: string | null;
  codeExpires: string | null;
}

/** The owner of the text. */
interface TextToCome extends Pick<Caller, 'id' | 'accountId'> {
  /** The number, in its one spelling, that is not confirmed yet. */
  enrolling?: string;
}

/** Codes by text message: six digits for ten minutes. Anyone who checks one has counted the try before, and removes it. */
export class TextedCodes {
  readonly #ctx: { clock: Clock; sealing: Sealing; sms: Sms };
  readonly #texts: Attempts;
  // Apart from each other, so that anyone who names numbers keeps nobody from logging in.
  readonly #toEnrolling: Attempts;
  readonly #toConfirmed: Attempts;

  constructor(ctx: { clock: Clock; config: Config; sealing: Sealing; sms: Sms }) {
    this.#ctx = ctx;
    this.#texts = limitTries('texts', ctx);
    this.#toEnrolling = limitTries('textsToEnrolling', ctx);
    this.#toConfirmed = limitTries('textsToConfirmed', ctx);
  }

  /**
   * Counts a text to come: of the identity, of its account, and to a number that it enrols.
   * @throws PlatformError 429 when it would be too many, and counts nothing then.
   */
  countText(text: TextToCome): Allowance {
    const taken: Array<[Attempts, string]> = [];
    try {
      for (const [attempts, key] of this.#limitsOf(text)) {
        attempts.takeTry(key);
        taken.push([attempts, key]);
      }
    } catch (error) {
      for (const [attempts, key] of taken) attempts.giveBack(key);
      throw error;
    }
    return this.#texts.left(text.id);
  }

  /** The text that was counted does not come. */
  discount(text: TextToCome): void {
    for (const [attempts, key] of this.#limitsOf(text)) attempts.giveBack(key);
  }

  #limitsOf({ id, accountId, enrolling }: TextToCome): Array<[Attempts, string]> {
    if (enrolling === undefined)
      return [
        [this.#texts, id],
        [this.#toConfirmed, accountId],
      ];
    // Nor may many identities together ring a stranger's phone.
    return [
      [this.#texts, id],
      [this.#texts, enrolling],
      [this.#toEnrolling, accountId],
    ];
  }

  /** A new code of an identity, and how it is stored. */
  makeCode(userId: string): { code: string; stored: { codeHash: string; codeExpires: string } } {
    const code = String(randomInt(1_000_000)).padStart(6, '0');
    const codeExpires = new Date(this.#ctx.clock.now() + textLifetime).toISOString();
    return { code, stored: { codeHash: this.#ctx.sealing.digest(userId, code), codeExpires } };
  }

  /** Whether this is the stored code, in time. */
  isRight(userId: string, { codeHash, codeExpires }: StoredCode, typed: string): boolean {
    if (codeHash === null || codeExpires === null) return false;
    if (Date.parse(codeExpires) <= this.#ctx.clock.now()) return false;
    return codeHash === this.#ctx.sealing.digest(userId, typed.replace(/\s/g, ''));
  }

  /** Sends a code, once it is stored. */
  async send(to: string, code: string, accountName: string): Promise<void> {
    const name = [...accountName].slice(0, 40).join('');
    await this.#ctx.sms.send({
      to,
      text: `${code} is your code for ${name}. Tell it to nobody. It ends in 10 minutes.`,
    });
  }
}
