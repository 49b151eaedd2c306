/** Second factors of an identity over HTTP. */
import { Type } from 'typebox';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import type { App } from '../../http/app.ts';
import type { Audit } from '../../operations/audit/index.ts';
import type { IdentityContext } from '../context.ts';
import { confirm, enrolPhone, enrolTotp, removeOfEndUser, removeOwn, textRemovalCode, titles } from './enrolment.ts';
import { type MfaMethod, mfaMethods, recoveryCodes } from './factors.ts';

const tags = ['Identity'];
/** In the names of operations. */
const names: Record<MfaMethod, string> = { totp: 'Totp', sms: 'Sms' };
const family = 'identity';

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
      Type.Array(Type.String(), {
        maxItems: recoveryCodes,
        description: 'With the first method only: each stands in for one code.',
      }),
    ),
  },
  { description: 'It is asked for from the next login on. With the first method, all other sessions have ended.' },
);
const success = (description: string) => ({ 200: Type.Object({ success: Type.Literal(true) }, { description }) });

export function mfaRoutes(app: App, ctx: IdentityContext): void {
  enrolmentRoutes(app, ctx);
  for (const method of mfaMethods) {
    confirmationRoute(app, ctx, method);
    removalRoute(app, ctx, method);
  }
}

function confirmationRoute(app: App, ctx: IdentityContext, method: MfaMethod): void {
  app.post(
    `/users/:userId/mfa/${method}/confirm`,
    {
      config: {
        family,
        creates: true,
        right: ['update', 'mfaMethod'],
        errors: ['notFound', 'badCode', 'forbidden'],
        sends: ['revocation'],
      },
      schema: {
        tags,
        operationId: `confirm${names[method]}`,
        summary: `Confirm the ${titles[method]} with a code of it`,
        description: 'With the first method, the response has recovery codes, which are shown once.',
        params,
        body: confirmBody,
        response: { 200: confirmedShape },
      },
    },
    async (request) => {
      demandOwn(request.caller, request.params.userId);
      const confirmed = recordingWrongCodes(ctx, request.caller, { mfaMethod: method, change: 'confirmed' }, () =>
        confirm(ctx, request.caller, method, request.body.code),
      );
      return { success: true, ...(await confirmed) } as const;
    },
  );
}

function removalRoute(app: App, ctx: IdentityContext, method: MfaMethod): void {
  app.delete(
    `/users/:userId/mfa/${method}`,
    {
      config: {
        family,
        right: ['delete', 'mfaMethod'],
        errors: ['notFound', 'badCode', 'tooMany', 'forbidden'],
      },
      // An admin needs no code, and so no body.
      preValidation: async (request) => {
        request.body ??= {};
      },
      schema: {
        tags,
        operationId: `remove${names[method]}`,
        summary: `Remove the ${titles[method]}; the recovery codes end with the last method`,
        description: 'Needs a code, so that a stolen session cannot remove it.',
        params: Type.Object({ userId: Type.String({ description: 'The caller’s own, or that of an end-user.' }) }),
        body: removeBody,
        response: success('It is asked for no longer.'),
      },
    },
    async (request) => {
      const { caller, body } = request;
      const { userId } = request.params;
      if (caller.id === userId)
        await recordingWrongCodes(ctx, caller, { mfaMethod: method, change: 'removed' }, () =>
          removeOwn(ctx, caller, method, body.code),
        );
      else await removeOfEndUser(ctx, caller, userId, method);
      return { success: true } as const;
    },
  );
}

function enrolmentRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/users/:userId/mfa/totp',
    {
      config: { family, creates: true, right: ['create', 'mfaMethod'], errors: ['notFound', 'notUnique', 'forbidden'] },
      schema: {
        tags,
        operationId: 'enrolTotp',
        summary: 'Start to set up an authenticator app; it replaces an app that is not confirmed',
        description: 'It counts once confirmTotp has a code of the app.',
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
        creates: true,
        right: ['create', 'mfaMethod'],
        errors: ['notFound', 'notUnique', 'tooMany', 'forbidden'],
        sends: ['limits'],
      },
      schema: {
        tags,
        operationId: 'enrolSms',
        summary: 'Start to set up a phone for text message codes; it replaces a phone that is not confirmed',
        description: 'It counts once confirmSms has the code of the text message.',
        params,
        body: phoneBody,
        response: success('The code is on its way.'),
      },
    },
    async (request, reply) => {
      demandOwn(request.caller, request.params.userId);
      const phoneNumber = readPhoneNumber(request.body.phoneNumber);
      const { id, accountId } = request.caller;
      sendAllowance(reply, ctx.textedCodes.countText({ id, accountId, enrolling: phoneNumber }));
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
        operationId: 'sendSmsRemovalCode',
        summary: 'Send a text message code to the confirmed phone, which is needed to remove it',
        description: 'Send the code with removeSms.',
        params,
        response: success('The code is on its way.'),
      },
    },
    async (request, reply) => {
      demandOwn(request.caller, request.params.userId);
      const { id, accountId } = request.caller;
      sendAllowance(reply, ctx.textedCodes.countText({ id, accountId }));
      await textRemovalCode(ctx, request.caller);
      return { success: true } as const;
    },
  );
}

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
      audit.addSoon({
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
