/** Second factors of an identity: enrolment, confirmation, removal. */
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { type Caller, usesForOthers } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { qrSvg } from '../../core/formats/qr-code.ts';
import { demandRightsOf } from '../../entity/giving.ts';
import { noteAnswer } from '../../entity/kept-answers.ts';
import { writeAs } from '../../entity/verbs.ts';
import type { IdentityContext } from '../context.ts';
import { factorTry } from '../sessions/login-limits.ts';
import {
  confirmedMethods,
  findMethod,
  type MfaMethod,
  makeRecoveryCodes,
  newTotp,
  purposeOf,
  takeRecoveryCode,
  takeTotp,
} from './factors.ts';

type EnrolmentServices = Pick<
  IdentityContext,
  | 'access'
  | 'audit'
  | 'clock'
  | 'loginLimits'
  | 'registry'
  | 'revocations'
  | 'revoked'
  | 'sealing'
  | 'sessions'
  | 'textedCodes'
>;

/** Tries to confirm a method, and of one texted code; then it starts again. */
const maxAttempts = 5;

export const titles: Record<MfaMethod, string> = { totp: 'authenticator app', sms: 'phone' };

/** What an authenticator app needs; the only answer with the secret. */
export interface TotpEnrolment {
  /** Base32. */
  secret: string;
  otpauthUrl: string;
  /** The otpauthUrl as a picture. */
  qrSvg: string;
}

export async function enrolTotp(ctx: EnrolmentServices, caller: Caller): Promise<TotpEnrolment> {
  const { accountName, email } = await purposeOf(ctx.registry.query, caller.id);
  const totp = newTotp(accountName, email);
  const secret = totp.secret.base32;
  const otpauthUrl = totp.toString();
  const answer = { secret, otpauthUrl, qrSvg: qrSvg(otpauthUrl) };
  await storeUnconfirmed(ctx, caller, 'totp', { sealedSecret: ctx.sealing.seal(caller.id, secret) }, answer);
  return answer;
}

export async function enrolPhone(ctx: EnrolmentServices, caller: Caller, phoneNumber: string): Promise<void> {
  const { code, stored } = ctx.textedCodes.makeCode(caller.id);
  try {
    await storeUnconfirmed(ctx, caller, 'sms', { phoneNumber, ...stored });
  } catch (error) {
    ctx.textedCodes.discount({ ...caller, enrolling: phoneNumber });
    throw error;
  }
  const { accountName } = await purposeOf(ctx.registry.query, caller.id);
  await ctx.textedCodes.send(phoneNumber, code, accountName);
}

/** Stores a method that is to be confirmed. @throws PlatformError 400/106 when a confirmed one is in its place. */
async function storeUnconfirmed(
  ctx: EnrolmentServices,
  caller: Caller,
  method: MfaMethod,
  values: Partial<Row<'mfaMethods'>>,
  answer?: object,
) {
  const nothing = { confirmed: null, sealedSecret: null, phoneNumber: null, lastStep: null };
  const row = { userId: caller.id, method, created: timestamp(ctx.clock), ...nothing };
  await writeAs(ctx, caller, undefined, async (tx) => {
    const before = await findMethod(tx, caller.id, method);
    if (before?.confirmed)
      throw new PlatformError('notUnique', { message: `The ${titles[method]} is confirmed already; remove it first.` });
    if (before) await deleteMethod(tx, caller.id, method);
    await tx
      .insertInto('mfaMethods')
      .values({ ...row, codeHash: null, codeExpires: null, tries: 0, ...values })
      .execute();
    if (answer) await noteAnswer(tx, answer);
  });
}

/** @throws PlatformError 404/100 without a confirmed phone. */
export async function textRemovalCode(ctx: EnrolmentServices, caller: Caller): Promise<void> {
  const { code, stored } = ctx.textedCodes.makeCode(caller.id);
  const phone = await writeAs(ctx, caller, undefined, (tx) =>
    tx
      .updateTable('mfaMethods')
      .set({ ...stored, tries: 0 })
      .where('userId', '=', caller.id)
      .where('method', '=', 'sms')
      .where('confirmed', 'is not', null)
      .returning('phoneNumber')
      .executeTakeFirst(),
  );
  if (!phone?.phoneNumber) {
    ctx.textedCodes.discount(caller);
    throw new PlatformError('notFound');
  }
  const { accountName } = await purposeOf(ctx.registry.query, caller.id);
  await ctx.textedCodes.send(phone.phoneNumber, code, accountName);
}

/**
 * Makes a method count. With the first one there are recovery codes, and every other session of the identity ends.
 * @throws PlatformError 404/100 when nothing waits to be confirmed, 400/106 for a wrong code or too many of them.
 */
export async function confirm(ctx: EnrolmentServices, caller: Caller, method: MfaMethod, typed: string) {
  const { clock, sessions, audit, revocations, revoked } = ctx;
  const userId = caller.id;
  const isTryLeft = await countTry(ctx, userId, method);
  const { recoveryCodes, ended } = await writeAs(ctx, caller, undefined, async (tx) => {
    const waiting = await findMethod(tx, userId, method);
    if (!waiting) throw new PlatformError('notFound');
    const isRight = waiting.confirmed === null && isTryLeft && (await takeCode(ctx, tx, waiting, typed));
    if (!isRight) throw new PlatformError('badCode');
    const isFirst = (await confirmedMethods(tx, userId)).length === 0;
    await tx
      .updateTable('mfaMethods')
      .set({ confirmed: timestamp(clock), codeHash: null, codeExpires: null, tries: 0 })
      .where('userId', '=', userId)
      .where('method', '=', method)
      .execute();
    await audit.record(tx, {
      event: 'mfaChanged',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'identity', id: userId },
      details: { mfaMethod: method, change: 'confirmed' },
    });
    if (!isFirst) return { recoveryCodes: undefined, ended: [] };
    const recoveryCodes = await makeRecoveryCodes(ctx, tx, userId);
    await noteAnswer(tx, { success: true, recoveryCodes });
    return {
      recoveryCodes,
      ended: await sessions.endAll(tx, userId, caller.sessionId),
    };
  });
  for (const sessionId of ended) revoked.noteRevoked(caller, revocations.loginEnded(sessionId));
  return recoveryCodes && { recoveryCodes };
}

/**
 * Removes one's own method; one that counts needs a code.
 * @throws PlatformError 404/100 when there is none, 400/106 without the right code, 429 after too many wrong ones.
 */
export async function removeOwn(
  ctx: EnrolmentServices,
  caller: Caller,
  method: MfaMethod,
  typed: string | undefined,
): Promise<void> {
  const before = await findMethod(ctx.registry.query, caller.id, method);
  if (!before) throw new PlatformError('notFound');
  if (before.confirmed === null) return remove(ctx, caller, caller.id, method, demandUnconfirmed);
  if (typed === undefined) throw invalid('code', 'is required');
  const attempt = factorTry(caller.id, caller.address ?? '');
  await ctx.loginLimits.takeShortCode(attempt);
  const isTryLeft = method === 'totp' || (await countTry(ctx, caller.id, method));
  await remove(ctx, caller, caller.id, method, async (tx, stored) => {
    if (isTryLeft && (await takeCode(ctx, tx, stored, typed))) return;
    if (!(await takeRecoveryCode(ctx, tx, caller.id, typed))) throw new PlatformError('badCode');
  });
  ctx.loginLimits.succeeded(attempt);
}

/** It may have been confirmed since it was looked at. */
async function demandUnconfirmed(_tx: Tx, { confirmed }: Row<'mfaMethods'>): Promise<void> {
  if (confirmed !== null) throw new PlatformError('badCode');
}

/** Helps somebody who has lost it. @throws PlatformError 404/100 unless an admin asks for an end-user of the account. */
export async function removeOfEndUser(
  ctx: EnrolmentServices,
  caller: Caller,
  userId: string,
  method: MfaMethod,
): Promise<void> {
  const target = ctx.access.callerOf(userId);
  const isHelped = target && target.accountId === caller.accountId && target.kind !== 'admin';
  if (caller.kind !== 'admin' || !isHelped) throw new PlatformError('notFound');
  if (!usesForOthers(caller)) throw new PlatformError('forbidden');
  await remove(ctx, caller, userId, method, async (tx) => {
    await demandRightsOf(tx, caller, userId);
    const admins = tx.selectFrom('accountUsers').select('id').where('userId', '=', userId);
    if (await admins.where('deleted', 'is', null).executeTakeFirst()) throw new PlatformError('notFound');
  });
}

/** Removes a method if `check` lets it; logins that wait for a code end, for the method may be the one they wait for. */
async function remove(
  ctx: EnrolmentServices,
  caller: Caller,
  userId: string,
  method: MfaMethod,
  check: (tx: Tx, stored: Row<'mfaMethods'>) => Promise<void>,
): Promise<void> {
  await writeAs(ctx, caller, undefined, async (tx) => {
    const stored = await findMethod(tx, userId, method);
    if (!stored) throw new PlatformError('notFound');
    await check(tx, stored);
    await deleteMethod(tx, userId, method);
    await tx.deleteFrom('mfaLogins').where('userId', '=', userId).execute();
    const left = await confirmedMethods(tx, userId);
    if (left.length === 0) await tx.deleteFrom('recoveryCodes').where('userId', '=', userId).execute();
    await ctx.audit.record(tx, {
      event: 'mfaChanged',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'identity', id: userId },
      details: { mfaMethod: method, change: 'removed' },
    });
  });
}

async function deleteMethod(tx: Tx, userId: string, method: MfaMethod): Promise<void> {
  await tx.deleteFrom('mfaMethods').where('userId', '=', userId).where('method', '=', method).execute();
}

function takeCode(ctx: EnrolmentServices, tx: Tx, stored: Row<'mfaMethods'>, typed: string): Promise<boolean> {
  if (stored.method === 'totp') return takeTotp(ctx, tx, stored, typed);
  return Promise.resolve(ctx.textedCodes.isRight(stored.userId, stored, typed));
}

/** Counts a try, on disk before the code is looked at; whether one was left. Each has its own number, also at once. */
async function countTry({ registry }: EnrolmentServices, userId: string, method: MfaMethod): Promise<boolean> {
  const counted = await registry.query
    .updateTable('mfaMethods')
    .set((eb) => ({ tries: eb('tries', '+', 1) }))
    .where('userId', '=', userId)
    .where('method', '=', method)
    .returning('tries')
    .executeTakeFirst();
  return counted !== undefined && counted.tries <= maxAttempts;
}
