/**
 * Changes of email addresses: a person's takes effect when the email to the new address is answered, one
 * by an admin at once. Nobody gets an address that somebody else of the account has, and the former one is told.
 */

import { Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { Id } from '../../db/registry/records.ts';
import { type Caller, isSelf } from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { emailKey } from '../core/formats/email-key.ts';
import type { Attempts } from '../core/limits/attempts.ts';
import { limitTries } from '../core/limits/tries.ts';
import { demandRightsOf } from '../entity/giving.ts';
import { writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { addressChangedEmail, confirmationEmail, headingFor, sendEmail } from '../operations/emails/texts.ts';
import type { IdentityContext } from './context.ts';
import { demandEmail, demandFree, isAccountUser, type Person } from './identities.ts';
import { findOwn } from './profile.ts';
import { findMailedToken, makeMailedToken, spendMailedToken } from './secrets/mailed-tokens.ts';

const tag = 'Identity';
const family = 'identity';

const changeBody = Type.Object({ userId: Type.String(), newEmailAddress: Type.String() });
const confirmBody = Type.Object({ token: Type.String({ description: 'From the email to the new address.' }) });
const done = (description: string) => ({ 200: Type.Object({ success: Type.Boolean() }, { description }) });

/** Endpoints for a change of address, called by the person or an admin. */
export function emailAddressRoutes(app: App, ctx: IdentityContext): void {
  const confirmations = limitTries('confirmationEmails', ctx);

  app.post(
    '/profile/update-email-address',
    {
      config: {
        family,
        right: ['update', 'profile'],
        errors: ['notFound', 'notUnique', 'userExists', 'tooMany', 'forbidden'],
      },
      schema: {
        tags: [tag],
        operationId: 'updateEmailAddress',
        summary: 'Change an email address: an admin changes it at once, others confirm by email',
        description: 'The new address must be confirmed with the link that is sent to it, unless an admin changes it.',
        body: changeBody,
        response: {
          200: Type.Object(
            { success: Type.Boolean(), userId: Id },
            { description: 'An email is on its way to the new address; or, for an admin, the address is changed.' },
          ),
        },
      },
    },
    async (request) => {
      const { caller, body } = request;
      demandEmail('newEmailAddress', body.newEmailAddress);
      const identity = await findOwn(ctx, caller, body.userId);
      if (isSelf(caller, identity.id)) {
        // Before it is looked whether the address is free: that tells whose it is.
        confirmations.takeTry(identity.id);
        await askNewAddress(ctx, confirmations, caller, identity, body.newEmailAddress);
      } else await changeAddressAsAdmin(ctx, caller, identity, body.newEmailAddress);
      return { success: true, userId: identity.id };
    },
  );
}

/** Endpoints without a login: the token from the email is enough. */
export function emailConfirmationRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/auth/confirm-email',
    {
      config: { family, errors: ['badToken', 'notUnique', 'userExists', 'storeFull'] },
      schema: {
        tags: [tag],
        operationId: 'confirmEmail',
        summary: 'Confirm a new email address with the token that was sent to it',
        description: 'The email with the token was sent by updateEmailAddress. The token can be used once.',
        security: [],
        body: confirmBody,
        response: done('The person logs in with the new address from now on.'),
      },
    },
    async (request) => {
      await confirmAddress(ctx, request.body.token, request.address);
      return { success: true };
    },
  );
}

/**
 * Mails a token to the new address; until it is used nothing changes.
 * @throws PlatformError 400/106, 400/110 when taken, 429 after too many emails, 500 when it cannot be sent.
 */
async function askNewAddress(
  ctx: IdentityContext,
  confirmations: Attempts,
  caller: Caller,
  person: Person,
  email: string,
): Promise<void> {
  const { id, accountId } = person;
  const { token, uncount } = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandFree(tx, 'newEmailAddress', person, email);
    const uncount = ctx.emailLimits.countEmail({ accountId, to: email, by: accountId });
    return { uncount, token: await makeMailedToken(tx, ctx.clock, { accountId, userId: id, kind: 'email', email }) };
  });
  const heading = await headingFor(ctx, accountId, email);
  if (await sendEmail(ctx, id, confirmationEmail(heading, token))) return;
  uncount();
  confirmations.giveBack(id);
  throw new PlatformError('server', { message: 'The mail could not be sent.' });
}

/** @throws PlatformError 403/21 for an admin, whose login would be the caller's then; 400/106, 400/110 when taken. */
async function changeAddressAsAdmin(
  ctx: IdentityContext,
  caller: Caller,
  person: Person,
  email: string,
): Promise<void> {
  await writeAs(ctx, caller, undefined, async (tx) => {
    if (await isAccountUser(tx, person.id)) throw new PlatformError('forbidden');
    await demandRightsOf(tx, caller, person.id);
    await changeAddress(tx, 'newEmailAddress', person, { email, emailConfirmed: 0 });
    await ctx.audit.record(tx, {
      event: 'emailChanged',
      outcome: 'success',
      accountId: person.accountId,
      actor: caller,
      target: { kind: 'identity', id: person.id },
    });
  });
  await tellFormerAddress(ctx, person);
}

/** @throws PlatformError 400 (badToken), or 400/106 and 400/110 when somebody has taken the address meanwhile. */
async function confirmAddress(ctx: IdentityContext, given: string, address: string): Promise<void> {
  const person = await ctx.registry.transaction(async (tx) => {
    const token = await findMailedToken(tx, ctx.clock, 'email', given);
    if (!token?.email || !(await spendMailedToken(tx, token))) throw new PlatformError('badToken');
    const identities = tx.selectFrom('identities').selectAll().where('id', '=', token.userId);
    const person = await identities.executeTakeFirstOrThrow();
    // A person who signed up confirms the address that there is.
    if (person.email === token.email) {
      await tx.updateTable('identities').set({ emailConfirmed: 1 }).where('id', '=', person.id).execute();
      return undefined;
    }
    await changeAddress(tx, 'token', person, { email: token.email, emailConfirmed: 1 });
    await ctx.audit.record(tx, {
      event: 'emailChanged',
      outcome: 'success',
      accountId: person.accountId,
      target: { kind: 'identity', id: person.id },
      address,
    });
    return person;
  });
  if (person) await tellFormerAddress(ctx, person);
}

/**
 * What the former address has proven is void from now on: tokens mailed to it, links to providers by it, and that the
 * password is its owner's. `emailConfirmed` is 1 when a token from the new address has come.
 */
async function changeAddress(
  tx: Tx,
  path: string,
  person: Person,
  { email, emailConfirmed }: { email: string; emailConfirmed: 0 | 1 },
): Promise<void> {
  await demandFree(tx, path, person, email);
  const changes = { email, emailKey: emailKey(email), emailConfirmed };
  const chosen = tx.updateTable('identities').set({ passwordChosenBy: 'other' }).where('id', '=', person.id);
  await chosen.where('passwordChosenBy', '=', 'owner').execute();
  const { numUpdatedRows } = await tx
    .updateTable('identities')
    .set(changes)
    .where('id', '=', person.id)
    .executeTakeFirst();
  if (numUpdatedRows === 0n) throw new PlatformError('notFound');
  for (const table of ['mailedTokens', 'federatedIdentities'] as const)
    await tx.deleteFrom(table).where('userId', '=', person.id).execute();
}

/** After the change, which stands whether or not the email can be sent. */
async function tellFormerAddress(ctx: IdentityContext, { id, accountId, email }: Person): Promise<void> {
  await sendEmail(ctx, id, addressChangedEmail(await headingFor(ctx, accountId, email)));
}
