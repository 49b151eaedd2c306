/** Data for the page before a login: the account, identity providers, and password reset. */

import { Type } from 'typebox';
import { Id } from '../../db/registry/records.ts';
import { PlatformError } from '../core/errors.ts';
import { type Attempts, sendAllowance } from '../core/limits/attempts.ts';
import { limitTries } from '../core/limits/tries.ts';
import type { App } from '../http/app.ts';
import { headingFor, resetEmail, sendEmail } from '../operations/emails/texts.ts';
import type { IdentityContext } from './context.ts';
import { findIdentity, maxEmailLength } from './identities.ts';
import { makeMailedToken } from './secrets/mailed-tokens.ts';

const tags = ['Identity'];
const family = 'identity';
const maxIdLength = 255;
const maxProviders = 50;
/** Emails that are sent at the same time. */
const maxSending = 20;

const accountShape = Type.Object({ accountId: Id }, { description: 'The only account of this service.' });
const providersQuery = Type.Object({ accountId: Type.String({ maxLength: maxIdLength }) });
const providersShape = Type.Object(
  { identityProviders: Type.Array(Type.Object({ id: Id, name: Type.String() }), { maxItems: maxProviders }) },
  { description: 'Empty for an account that does not exist.' },
);
const forgotBody = Type.Object({
  accountId: Type.String({ maxLength: maxIdLength }),
  emailAddress: Type.String({ maxLength: maxEmailLength }),
});
const forgotShape = Type.Object(
  { success: Type.Literal(true) },
  { description: 'If there is a login with this email address, an email is on its way. The answer never tells.' },
);

/** Endpoints that need no token. */
export function signInRoutes(app: App, ctx: IdentityContext): void {
  const { registry } = ctx;
  app.get(
    '/auth/default-account',
    {
      config: { family, errors: ['notFound'] },
      schema: {
        tags,
        operationId: 'getDefaultAccount',
        summary: 'Read the id of the account, while there is only one',
        description: 'Answers 404 while there is no account, or more than one.',
        security: [],
        response: { 200: accountShape },
      },
    },
    async () => {
      const [account, other] = await registry.query.selectFrom('accounts').select('id').limit(2).execute();
      if (!account || other) throw new PlatformError('notFound');
      return { accountId: account.id };
    },
  );
  app.get(
    '/auth/login-providers',
    {
      config: { family },
      schema: {
        tags,
        operationId: 'listLoginProviders',
        summary: 'List the identity providers that people of an account can log in at',
        description: 'Returns all of them. A login page shows a button for each.',
        security: [],
        querystring: providersQuery,
        response: { 200: providersShape },
      },
    },
    async ({ query }) => ({
      identityProviders: await registry.query
        .selectFrom('identityProviders')
        .select(['id', 'name'])
        .where('accountId', '=', query.accountId)
        .where('deleted', 'is', null)
        .orderBy('name')
        .limit(maxProviders)
        .execute(),
    }),
  );

  const requests = limitTries('signInRequests', ctx);
  const emails = limitTries('signInEmails', ctx);
  const sending = new Set<Promise<void>>();
  app.addHook('onClose', async () => void (await Promise.all(sending)));
  app.post(
    '/auth/forgot-password',
    {
      config: { family, errors: ['tooMany'], sends: ['limits'] },
      schema: {
        tags,
        operationId: 'forgotPassword',
        summary: 'Send an email with a token that sets a new password',
        description: 'The response is the same whether the address is known or not.',
        security: [],
        body: forgotBody,
        response: { 200: forgotShape },
      },
    },
    async ({ body, address }, reply) => {
      sendAllowance(reply, requests.takeTry({ address }));
      // The answer does not wait: its time would tell whether there is such a person.
      if (sending.size < maxSending) {
        const email = sendReset(ctx, emails, body.accountId, body.emailAddress, address)
          .catch((error) => ctx.log.error({ err: error }, 'an email for a forgotten password could not be sent'))
          .finally(() => sending.delete(email));
        sending.add(email);
      }
      return { success: true } as const;
    },
  );
}

/** Sends nothing to an address that nobody logs in with, or that has reached its limit of emails for this hour. */
async function sendReset(
  ctx: IdentityContext,
  emails: Attempts,
  accountId: string,
  emailAddress: string,
  address: string,
) {
  const { registry, clock, emailLimits, audit } = ctx;
  const identity = await findIdentity(registry.query, accountId, emailAddress);
  if (!identity) return;
  try {
    emails.takeTry(identity.id);
    emailLimits.countEmail({ accountId, to: identity.email });
  } catch (error) {
    if (error instanceof PlatformError && error.kind === 'tooMany') return;
    throw error;
  }
  const userId = identity.id;
  const token = await registry.transaction(async (tx) => {
    const target = { kind: 'identity', id: userId } as const;
    const details = { with: 'signInPage' };
    await audit.record(tx, { event: 'passwordReset', outcome: 'success', accountId, target, address, details });
    return makeMailedToken(tx, clock, { accountId, userId, kind: 'reset' });
  });
  const heading = await headingFor(ctx, accountId, identity.email);
  await sendEmail(ctx, userId, resetEmail(heading, userId, token));
}
