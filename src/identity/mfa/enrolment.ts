/** Second factors of an identity: enrolment, confirmation, removal. */

import { type Static, Type } from 'typebox';
import type { Tx } from '../../../db/registry/index.js';
import type { Row } from '../../../db/registry/records.js';
import type { Caller } from '../../access.js';
import type { Audit } from '../../audit/index.js';
import { timestamp } from '../../clock.js';
import type { Context } from '../../context.js';
import { noteAnswer } from '../../entity/kept-answers.js';
import { nameIgnored } from '../../entity/routes.js';
import { writeAs } from '../../entity/verbs.js';
import { invalid, PlatformError } from '../../errors.js';
import type { App } from '../../http/app.js';
import { sendAllowance } from '../../limits/attempts.js';
import { factorTry } from '../sessions/login-limits.js';
import {
  confirmedMethods,
  findMethod,
  type MfaMethod,
  makeRecoveryCodes,
  mfaMethods,
  newTotp,
  purposeOf,
  takeRecoveryCode,
  takeTotp,
} from './factors.js';

const tags = ['Identity'];
const family = 'identity';

/** Tries to confirm a method, and of one texted code; then it starts again. */
const maxAttempts = 5;

const params = Type.Object({ userId: Type.String({ description: 'The caller’s own identity.' }) });
const phoneBody = Type.Object({
  phoneNumber: Type.String({
    maxLength: 40,
    description: 'With + and the country code; blanks, hyphens, dots and parentheses do not count.',
  }),
});
const code = Type.String({ maxLength: 100 });
const confirmBody = Type.Object({ code });
const removeBody = Type.Object({
  code: Type.Optional({
    ...code,
    description: 'Of this method, or a recovery code; not from an admin, for an end-user.',
  }),
});
const totpShape = Type.Object(
  {
    secret: Type.String({ description: 'Base32, for authenticator apps without a camera.' }),
    otpauthUrl: Type.String(),
    qrSvg: Type.String({ description: 'The otpauthUrl as a picture.' }),
  },
  { description: 'The only answer with the secret.' },
);
const confirmedShape = Type.Object(
  {
    success: Type.Literal(true),
    recoveryCodes: Type.Optional(
      Type.Array(Type.String(), { description: 'With the first method only: each stands in for one code.' }),
    ),
  },
  { description: 'It is asked for from the next login on. With the first method, all other sessions have ended.' },
);
const success = (description: string) => ({ 200: Type.Object({ success: Type.Literal(true) }, { description }) });

export function mfaRoutes(app: App, ctx: Context): void {
  app.post(
    '/users/:userId/mfa/totp',
    {
      config: { family, right: ['create', 'mfaMethod'], errors: ['notFound', 'notUnique', 'forbidden'] },
      schema: {
        tags,
        summary: 'Begin to set up an authenticator app; an unconfirmed one is replaced',
        params,
        response: { 200: totpShape },
      },
    },
    async (request) => {
      demandOwn(request.caller, request.params.userId);
      return enrolTotp(ctx, request.caller);
    },
  );
  app.post(
    '/users/:userId/mfa/sms',
    {
      config: {
        family,
        right: ['create', 'mfaMethod'],
        errors: ['notFound', 'notUnique', 'tooMany', 'forbidden'],
        sends: ['ignored', 'limits'],
      },
      schema: {
        tags,
        summary: 'Begin to set up a phone, to which a code is texted; an unconfirmed one is replaced',
        params,
        body: phoneBody,
        response: success('The code is on its way.'),
      },
    },
    async (request, reply) => {
      demandOwn(request.caller, request.params.userId);
      nameIgnored(request, reply, phoneBody);
      const phoneNumber = readPhoneNumber(request.body.phoneNumber);
      const { id, accountId } = request.caller;
      sendAllowance(reply, ctx.textedCodes.count({ id, accountId, enrolling: phoneNumber }));
      await enrolPhone(ctx, request.caller, phoneNumber);
      return { success: true } as const;
    },
  );
  app.post(
    '/users/:userId/mfa/sms/code',
    {
      config: {
        family,
        right: ['update', 'mfaMethod'],
        errors: ['notFound', 'tooMany', 'forbidden'],
        sends: ['limits'],
      },
      schema: {
        tags,
        summary: 'Have a code texted to the confirmed phone, with which to remove it',
        params,
        response: success('The code is on its way.'),
      },
    },
    async (request, reply) => {
      demandOwn(request.caller, request.params.userId);
      const { id, accountId } = request.caller;
      sendAllowance(reply, ctx.textedCodes.count({ id, accountId }));
      await textRemovalCode(ctx, request.caller);
      return { success: true } as const;
    },
  );
  for (const method of mfaMethods) {
    app.post(
      `/users/:userId/mfa/${method}/confirm`,
      {
        config: {
          family,
          right: ['update', 'mfaMethod'],
          errors: ['notFound', 'badCode', 'forbidden'],
          sends: ['ignored', 'revocation'],
        },
        schema: {
          tags,
          summary: `Confirm the ${titles[method]} with a code of it`,
          params,
          body: confirmBody,
          response: { 200: confirmedShape },
        },
      },
      async (request, reply) => {
        demandOwn(request.caller, request.params.userId);
        nameIgnored(request, reply, confirmBody);
        const confirmed = recordingWrongCodes(ctx, request.caller, { mfaMethod: method, change: 'confirmed' }, () =>
          confirm(ctx, request.caller, method, request.body.code),
        );
        return { success: true, ...(await confirmed) } as const;
      },
    );
    app.delete(
      `/users/:userId/mfa/${method}`,
      {
        config: {
          family,
          right: ['delete', 'mfaMethod'],
          errors: ['notFound', 'badCode', 'tooMany', 'forbidden'],
          sends: ['ignored'],
        },
        // An admin needs no code, and so no body.
        preValidation: async (request) => {
          request.body ??= {};
        },
        schema: {
          tags,
          summary: `Remove the ${titles[method]}; the recovery codes end with the last method`,
          params: Type.Object({ userId: Type.String({ description: 'The caller’s own, or that of an end-user.' }) }),
          body: removeBody,
          response: success('It is asked for no longer.'),
        },
      },
      async (request, reply) => {
        const { caller, body } = request;
        const { userId } = request.params;
        nameIgnored(request, reply, removeBody);
        if (caller.id === userId)
          await recordingWrongCodes(ctx, caller, { mfaMethod: method, change: 'removed' }, () =>
            removeOwn(ctx, caller, method, body.code),
          );
        else await removeOfEndUser(ctx, caller, userId, method);
        return { success: true } as const;
      },
    );
  }
}

const titles: Record<MfaMethod, string> = { totp: 'authenticator app', sms: 'phone' };

/** @throws PlatformError 404/100 for anybody else's: it looks like none. */
function demandOwn(caller: Caller, userId: string): void {
  if (caller.id !== userId) throw new PlatformError('notFound');
}

/** A number in its one spelling, by which it is counted too. @throws PlatformError 400/106 if the text is not a phone number. */
function readPhoneNumber(given: string): string {
  const number = given.replace(/[\s().-]/g, '');
  if (!/^\+[1-9]\d{5,14}$/.test(number))
    throw invalid('phoneNumber', 'must be + and a country code and number of 6 to 15 digits together');
  return number;
}

/** Does something with one's own factors; a wrong code is in the audit record. */
async function recordingWrongCodes<T>(
  { audit }: { audit: Audit },
  caller: Caller,
  details: { mfaMethod: MfaMethod; change: 'confirmed' | 'removed' },
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof PlatformError && error.kind === 'badCode')
      audit.note({
        event: 'mfaChanged',
        outcome: 'failure',
        accountId: caller.accountId,
        actor: caller,
        target: { kind: 'identity', id: caller.id },
        details,
      });
    throw error;
  }
}

async function enrolTotp(ctx: Context, caller: Caller): Promise<Static<typeof totpShape>> {
  const { accountName, email } = await purposeOf(ctx.registry.query, caller.id);
  const totp = newTotp(accountName, email);
  const secret = totp.secret.base32;
  const otpauthUrl = totp.toString();
  // Loaded when somebody enrols.
  const { default: QRCode } = await import('qrcode');
  const qrSvg = await QRCode.toString(otpauthUrl, { type: 'svg' });
  const answer = { secret, otpauthUrl, qrSvg };
  await begin(ctx, caller, 'totp', { sealedSecret: ctx.sealing.seal(caller.id, secret) }, answer);
  return answer;
}

async function enrolPhone(ctx: Context, caller: Caller, phoneNumber: string): Promise<void> {
  const { code, stored } = ctx.textedCodes.make(caller.id);
  try {
    await begin(ctx, caller, 'sms', { phoneNumber, ...stored });
  } catch (error) {
    ctx.textedCodes.discount({ ...caller, enrolling: phoneNumber });
    throw error;
  }
  const { accountName } = await purposeOf(ctx.registry.query, caller.id);
  await ctx.textedCodes.send(phoneNumber, code, accountName);
}

/** Stores a method that is to be confirmed. @throws PlatformError 400/106 when a confirmed one is in its place. */
async function begin(
  ctx: Context,
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
async function textRemovalCode(ctx: Context, caller: Caller): Promise<void> {
  const { code, stored } = ctx.textedCodes.make(caller.id);
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
 * Makes a method count. With the first one there are recovery codes, and every other session of the identity ends: from
 * then on anyone who has a session has shown a second factor.
 * @throws PlatformError 404/100 when nothing waits to be confirmed, 400/106 for a wrong code or too many of them.
 */
async function confirm(ctx: Context, caller: Caller, method: MfaMethod, typed: string) {
  const { clock, sessions, audit, broker, revocations } = ctx;
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
  for (const sessionId of ended) revocations.note(caller, broker.loginEnded(sessionId));
  return recoveryCodes && { recoveryCodes };
}

/**
 * Removes one's own method; one that counts needs a code.
 * @throws PlatformError 404/100 when there is none, 400/106 without the right code, 429 after too many wrong ones.
 */
async function removeOwn(ctx: Context, caller: Caller, method: MfaMethod, typed: string | undefined): Promise<void> {
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
async function removeOfEndUser(ctx: Context, caller: Caller, userId: string, method: MfaMethod): Promise<void> {
  const target = ctx.access.callerOf(userId);
  const isHelped = target && target.accountId === caller.accountId && target.kind !== 'admin';
  if (caller.kind !== 'admin' || !isHelped) throw new PlatformError('notFound');
  await remove(ctx, caller, userId, method, async (tx) => {
    const admins = tx.selectFrom('accountUsers').select('id').where('userId', '=', userId);
    if (await admins.where('deleted', 'is', null).executeTakeFirst()) throw new PlatformError('notFound');
  });
}

/** Removes a method if `check` lets it; logins that wait for a code end, for the method may be the one they wait for. */
async function remove(
  ctx: Context,
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

function takeCode(ctx: Context, tx: Tx, stored: Row<'mfaMethods'>, typed: string): Promise<boolean> {
  if (stored.method === 'totp') return takeTotp(ctx, tx, stored, typed);
  return Promise.resolve(ctx.textedCodes.isRight(stored.userId, stored, typed));
}

/** Counts a try, on disk before the code is looked at; whether one was left. Each has its own number, also at once. */
async function countTry({ registry }: Context, userId: string, method: MfaMethod): Promise<boolean> {
  const counted = await registry.query
    .updateTable('mfaMethods')
    .set((eb) => ({ tries: eb('tries', '+', 1) }))
    .where('userId', '=', userId)
    .where('method', '=', method)
    .returning('tries')
    .executeTakeFirst();
  return counted !== undefined && counted.tries <= maxAttempts;
}
