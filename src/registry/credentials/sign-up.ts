/**
 * A person who holds a device signs up with its code: the login, an organization of their own and the claim are one
 * transaction. The code is the proof; the email address is confirmed before a second claim.
 */

import type { FastifyReply } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Tx } from '../../../db/registry/index.ts';
import { Id, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { emailKey } from '../../core/formats/email-key.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';
import type { App } from '../../http/app.ts';
import { findIdentity, insertIdentity, maxEmailLength, newIdentity, noPassword } from '../../identity/identities.ts';
import { mfaRequiredShape } from '../../identity/mfa/login.ts';
import { names } from '../../identity/person.ts';
import { makeMailedToken } from '../../identity/secrets/mailed-tokens.ts';
import { maxPasswordLength } from '../../identity/secrets/passwords.ts';
import { admitPerson, demandPassword } from '../../identity/sessions/login.ts';
import { headingFor, sendEmail, signUpEmail } from '../../operations/emails/texts.ts';
import type { RegistryContext } from '../context.ts';
import { associateWithin, deviceChanged } from '../devices/changes.ts';
import { insertOwnOrganization } from '../own-organization.ts';
import { readCode } from './association-codes.ts';
import { findByCode, taken, unknownCode } from './stored-codes.ts';

const tags = ['Association'];
const maxIdLength = 255;
/** Emails that are sent at the same time. */
const maxSending = 20;

const proof = {
  accountId: Type.String({ maxLength: maxIdLength }),
  associationCode: Type.String({ maxLength: 100 }),
};
const codeBody = Type.Object(proof);
const lookedUp = Type.Object(
  {
    serialNumber: Type.String(),
    productName: Type.String(),
    signUp: Type.Boolean({
      description:
        'Whether a person can sign up with the code: the device belongs to nobody, or its owner gives it away.',
    }),
    taken: Type.Boolean({
      description:
        'Whether the device belongs to somebody who does not give it away with this code: only people of the same organizations can move it.',
    }),
  },
  { description: 'What the code is for.' },
);
const signUpBody = Type.Object({
  ...proof,
  emailAddress: Type.String({ maxLength: maxEmailLength }),
  password: Type.String({ maxLength: maxPasswordLength }),
  organizationName: Type.Optional(
    Type.String({ minLength: 1, maxLength: 255, description: 'The email address before its @ when absent.' }),
  ),
  ...names,
});
const signedUp = Type.Object(
  { jwt: Type.String(), csrfToken: Type.String(), deviceId: Id, organizationId: Id },
  { description: 'A session has begun, and the device belongs to the organization.' },
);
const signUpShape = Type.Union([signedUp, mfaRequiredShape], {
  description: 'The person has the device, and is logged in; or, with a second factor, its code is waited for.',
});

type SignUpServices = RegistryContext & { keeping: { demandRoom(accountId: string): void } };
type Body = Static<typeof signUpBody>;
type Found = NonNullable<Awaited<ReturnType<typeof findByCode>>>;

/** Endpoints that need no token: the code is the proof. */
export function signUpRoutes(app: App, ctx: SignUpServices): void {
  const codes = limitTries('associationCodes', ctx);
  /** The live device of a code. Whatever else a code may be, it looks like one that does not exist. @throws PlatformError 404, 429. */
  async function demandDevice(
    { accountId, associationCode }: Static<typeof codeBody>,
    address: string,
  ): Promise<Found> {
    const code = readCode(associationCode);
    codes.takeTry({ address });
    const found = await findByCode(ctx, accountId, code);
    if (found?.deleted !== null) throw await wrongCode(ctx, accountId, address);
    codes.giveBack({ address });
    return found;
  }

  app.post(
    '/association/look-up-code',
    {
      config: { errors: ['notFound', 'tooMany'] },
      schema: {
        tags,
        operationId: 'lookUpAssociationCode',
        summary: 'Read what an association code is for',
        description: 'A page shows the product and the serial number before a person claims the device.',
        security: [],
        body: codeBody,
        response: { 200: lookedUp },
      },
    },
    async ({ body, address }) => lookUp(ctx, body.accountId, await demandDevice(body, address)),
  );

  const sending = new Set<Promise<unknown>>();
  app.addHook('onClose', async () => void (await Promise.all(sending)));
  app.post(
    '/association/sign-up-with-code',
    {
      config: {
        errors: ['notFound', 'notUnique', 'userExists', 'association', 'tooMany', 'forbidden', 'storeFull'],
        sends: ['token', 'limits'],
      },
      schema: {
        tags,
        operationId: 'signUpWithCode',
        summary: 'Sign up with the code of a device, and claim it',
        description:
          'The person gets a login, an organization and the device, or nothing of it. The same request again logs in, while the code counts: that of a label. The email address is confirmed before a second claim.',
        security: [],
        body: signUpBody,
        response: { 200: signUpShape },
      },
    },
    async ({ body, address }, reply) => {
      const found = await demandDevice(body, address);
      const { answer, email } = await signUp(ctx, reply, body, found, address);
      // The answer does not wait for it; beyond this number people ask for the email again.
      if (email && sending.size < maxSending) {
        const sent = email().finally(() => sending.delete(sent));
        sending.add(sent);
      }
      return answer;
    },
  );
}

async function wrongCode(ctx: SignUpServices, accountId: string, address: string): Promise<PlatformError> {
  const account = ctx.registry.query.selectFrom('accounts').select('id').where('id', '=', accountId);
  if (await account.executeTakeFirst())
    ctx.audit.addSoon({ event: 'association', outcome: 'failure', accountId, address });
  return unknownCode();
}

async function lookUp({ registry }: SignUpServices, accountId: string, found: Found): Promise<Static<typeof lookedUp>> {
  const { name } = await registry.query
    .selectFrom('deviceTemplates')
    .select('name')
    .where('id', '=', found.deviceTemplateId)
    .executeTakeFirstOrThrow();
  const taken = isTaken(found);
  const signUp = !taken && (await allowsSignUp(registry.query, accountId));
  return { serialNumber: found.serialNumber, productName: name, signUp, taken };
}

function isTaken({ kind, organizationId }: Found): boolean {
  return kind === 'label' && organizationId !== null;
}

async function allowsSignUp(db: SignUpServices['registry']['query'], accountId: string): Promise<boolean> {
  const accounts = db.selectFrom('accounts').select('signUp').where('id', '=', accountId);
  return (await accounts.executeTakeFirst())?.signUp === 1;
}

/** What a sign-up answers, and the email that it sends. @throws PlatformError as `make`; 429 after too many tries. */
async function signUp(ctx: SignUpServices, reply: FastifyReply, body: Body, found: Found, address: string) {
  const { accountId, emailAddress, password } = body;
  const findPerson = () => findIdentity(ctx.registry.query, accountId, emailAddress);
  const identity = await findPerson();
  const { passwords } = ctx;
  const attempt = { subject: `${accountId}\0${emailKey(emailAddress)}`, userId: identity?.id, address };
  sendAllowance(reply, await ctx.loginLimits.takeTry(attempt));
  const lane = await ctx.loginLimits.laneOf(accountId, attempt, found.id);
  const admit = async (person: Pick<Row<'identities'>, 'id' | 'passwordHash'>) => {
    ctx.loginLimits.succeeded(attempt);
    const { organizationId } = ctx.registry.entity('devices', found.id) ?? found;
    const caller = ctx.access.callerOf(person.id);
    const isOwn = caller?.kind === 'endUser' && caller.memberships.some((one) => one.organizationId === organizationId);
    if (!caller || !isOwn) throw otherLogin();
    const check = (tx: Tx) => demandPassword(tx, person);
    const session = await admitPerson(ctx, reply, { ...caller, address }, undefined, check);
    return 'jwt' in session ? { ...session, deviceId: found.id, organizationId: String(organizationId) } : session;
  };
  /** The answer of a first request may have been lost: the same person has the same device by now. */
  const answerAgain = async (person: Row<'identities'>) => {
    const verify = () => passwords.verify(person.passwordHash, password, lane);
    if (!(await ctx.loginLimits.unlessItFails(attempt, verify))) throw otherLogin();
    return { answer: await admit(person), email: undefined };
  };
  if (identity) return answerAgain(identity);
  if (!(await allowsSignUp(ctx.registry.query, accountId))) throw noSignUp();
  if (isTaken(found)) throw taken();
  ctx.keeping.demandRoom(accountId);
  const hash = () => passwords.hashNew('password', password, emailAddress, lane);
  const passwordHash = await ctx.loginLimits.unlessItFails(attempt, hash);
  try {
    const { id, sendEmail } = await make(ctx, body, passwordHash, found, address);
    return { answer: await admit({ id, passwordHash }), email: sendEmail };
  } catch (error) {
    // The same request may have been sent twice at once.
    const isBeaten = error instanceof PlatformError && ['notUnique', 'userExists', 'association'].includes(error.kind);
    const other = isBeaten ? await findPerson() : undefined;
    if (!other) throw error;
    return answerAgain(other);
  }
}

function otherLogin(): PlatformError {
  return new PlatformError('userExists', { message: 'There is a login with this email address. Sign in instead.' });
}

function noSignUp(): PlatformError {
  return new PlatformError('forbidden', { message: 'People cannot sign up here by themselves. Sign in to claim.' });
}

/**
 * Makes the login, its organization and the claim in one transaction.
 * @throws PlatformError 400/106, 400/110 for an address that is taken meanwhile, 403/21, 422 for a device that is.
 */
async function make(ctx: SignUpServices, body: Body, passwordHash: string, found: Found, address: string) {
  const { accountId, emailAddress: email } = body;
  const { name = null, firstName = null, lastName = null, phoneNumber = null } = body;
  const blank = newIdentity(ctx.clock, 'emailAddress', { accountId, email, ...noPassword });
  const identity: Row<'identities'> = {
    ...{ ...blank, name, firstName, lastName, phoneNumber, passwordHash },
    // Anyone who holds a device may have made up the address.
    ...{ passwordChosenBy: 'other', signedUp: 1, organizationsMade: 1 },
  };
  const caller: Caller = { kind: 'newcomer', id: identity.id, accountId, address };
  const done = await ctx.registry.transaction(async (tx) => {
    if (!(await allowsSignUp(tx, accountId))) throw noSignUp();
    await insertIdentity(tx, 'emailAddress', identity);
    const actor = caller;
    const target = { kind: 'identity', id: identity.id } as const;
    const details = { with: 'associationCode' };
    await ctx.audit.record(tx, { event: 'identityCreated', outcome: 'success', accountId, actor, target, details });
    const organizationName = body.organizationName ?? email.slice(0, email.indexOf('@'));
    const organization = await insertOwnOrganization(ctx, tx, caller, organizationName);
    const { id, codeHash, organizationId: from } = found;
    const changed = await associateWithin(tx, ctx, caller, { id, codeHash, from, to: organization.id });
    const token = await makeMailedToken(tx, ctx.clock, { accountId, userId: identity.id, kind: 'email', email });
    return { organization, changed, token };
  });
  ctx.access.organizationChanged(done.organization);
  ctx.access.identityChanged(identity.id);
  await deviceChanged(ctx, caller, done.changed);
  return { id: identity.id, sendEmail: () => confirm(ctx, identity, done.token) };
}

/** Asks the person to confirm the address. What goes wrong is in the log; the person asks for the email again. */
async function confirm(ctx: SignUpServices, { id, accountId, email }: Row<'identities'>, token: string): Promise<void> {
  try {
    const uncount = ctx.emailLimits.countEmail({ accountId, to: email, by: accountId });
    const heading = await headingFor(ctx, accountId, email);
    if (!(await sendEmail(ctx, id, signUpEmail(heading, token)))) uncount();
  } catch (error) {
    ctx.log.error({ err: error, userId: id }, 'the email to somebody who signed up could not be sent');
  }
}
